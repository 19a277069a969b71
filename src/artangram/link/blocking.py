"""One end of a link in a process without an event loop: it blocks until there is something.

- Of one thread: between two calls nothing is read, and no heartbeat is echoed. How long such a
  process may compute is the other side's limit of silence.
- `tell`, `ask` and answers return when all of them has left; what comes meanwhile waits for
  `receive`. `post` and `ready` let a process ask several peers at once.
- When the stream has ended, `receive` gives what came before, then raises `LinkEnded`.
"""

import contextlib
import math
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, overload

from artangram.link.errors import LinkBroken, LinkEnded, LinkRefused
from artangram.link.exchange import Exchange, IncomingAsk
from artangram.link.terms import HELLO_PATIENCE_S, LinkHello, LinkTerms

R = TypeVar("R")
T = TypeVar("T")

_READ_BYTES = 1 << 18
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Posted(Generic[T]):
    """An ask whose answer is on its way."""

    def __init__(self, link: "BlockingLink[Any]") -> None:
        self._link = link
        self._value: T | None = None
        self._error: Exception | None = None
        self.is_done = False

    def result(self) -> T:
        """Wait for the answer. Raises what the peer raised, or `LinkEnded`."""
        while not self.is_done:
            self._link.pump(None)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def answered(self, value: Any) -> None:
        self._value, self.is_done = value, True

    def failed(self, error: Exception) -> None:
        self._error, self.is_done = error, True


class BlockingLink(Generic[R]):
    """See the module. `dialed` and `accepted` make one; it owns its socket."""

    def __init__(self, sock: socket.socket, terms: LinkTerms[R]) -> None:
        self._sock = sock
        self._exchange = Exchange(terms, self)
        self._peer: LinkHello | None = None
        self._refused: LinkRefused | None = None
        self._heard: deque[R | IncomingAsk[R]] = deque()
        self._unsent = memoryview(b"")
        self._is_pushing = False
        self._is_feeding = False
        sock.setblocking(False)

    @classmethod
    def dialed(
        cls,
        sock: socket.socket,
        terms: LinkTerms[R],
        *,
        hello: object = None,
        patience_s: float = HELLO_PATIENCE_S,
    ) -> "BlockingLink[R]":
        """Say hello first. Raises `LinkRefused` or `LinkEnded`."""
        link = cls(sock, terms)
        link._exchange.greet(hello)
        link._meet(patience_s)
        return link

    @classmethod
    def accepted(
        cls,
        sock: socket.socket,
        terms: LinkTerms[R],
        *,
        hello: object = None,
        patience_s: float = HELLO_PATIENCE_S,
    ) -> "BlockingLink[R]":
        """Wait for a hello and answer it. Raises `LinkRefused` or `LinkEnded`."""
        link = cls(sock, terms)
        link._meet(patience_s)
        link._exchange.greet(hello)
        return link

    def __enter__(self) -> "BlockingLink[R]":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BlockingLink {self._exchange.terms.name}: {self._exchange.ended or 'open'}>"

    def fileno(self) -> int:
        return self._sock.fileno()

    def peer(self, kind: type[T]) -> T:
        """The record in the peer's hello. `LinkBroken` if it is no `kind`."""
        assert self._peer is not None, "the link was not greeted"
        return self._exchange.hello_record(self._peer, kind)

    def tell(self, record: object, *, stream: str | None = "") -> None:
        """Send a record. On a link that has ended nothing happens."""
        self._exchange.tell(record, stream)

    def post(self, record: object, answer: Any = None, *, stream: str | None = "") -> Posted[Any]:
        """Ask without waiting for the answer. Raises `LinkEnded`."""
        self._raise_if_ended()
        posted: Posted[Any] = Posted(self)
        self._exchange.ask(record, answer, posted, stream)
        return posted

    @overload
    def ask(self, record: object, *, stream: str | None = "") -> None: ...

    @overload
    def ask(self, record: object, answer: type[T], *, stream: str | None = "") -> T: ...

    def ask(self, record: object, answer: Any = None, *, stream: str | None = "") -> Any:
        """Send a record and wait for its answer. Raises what the peer raised, or `LinkEnded`."""
        return self.post(record, answer, stream=stream).result()

    def receive(self, timeout_s: float | None = None) -> R | IncomingAsk[R] | None:
        """The next record told or asked; `None` if none comes in time. Raises `LinkEnded`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._heard:
            self._raise_if_ended()
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            self.pump(left_s)
            if left_s == 0.0:
                break
        return self._heard.popleft() if self._heard else None

    def pump(self, timeout_s: float | None) -> None:
        """Wait until something comes, and take it in."""
        if self._exchange.ended is None and self._wait(select.POLLIN, timeout_s):
            self._read()
            self.wake()

    def close(self) -> None:
        self._exchange.finish(LinkEnded("this end closed the link"))
        self._sock.close()

    # What the exchange calls.

    def on_tell(self, record: R) -> None:
        self._heard.append(record)

    def on_ask(self, asked: IncomingAsk[R]) -> None:
        self._heard.append(asked)

    def on_hello(self, hello: LinkHello) -> None:
        self._peer = hello

    def on_refused(self, error: LinkRefused) -> None:
        self._refused = error

    def on_echo(self, number: int) -> None:
        pass

    def wake(self) -> None:
        """Send all that is in the outbox."""
        if self._is_pushing or self._is_feeding:
            return  # The caller up the stack empties the outbox next.
        self._is_pushing = True
        try:
            self._push()
        finally:
            self._is_pushing = False

    def _push(self) -> None:
        """Send, and take in what comes while the peer does not read."""
        outbox = self._exchange.outbox
        while self._exchange.ended is None:
            if not self._unsent:
                self._unsent = memoryview(outbox.whole() or outbox.part())
            if self._unsent:
                self._write()
            elif outbox.is_empty:
                return
            elif self._wait(select.POLLIN, None):  # It has to wait for credit.
                self._read()

    def _meet(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        try:
            while self._peer is None and self._refused is None:
                self._raise_if_ended()
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise LinkRefused(f"no hello came within {patience_s:g} s")
                self.pump(left_s)
            if self._refused is not None:
                raise self._refused
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except _NOT_NOW:
            return
        except OSError as error:
            self._exchange.finish(LinkEnded(f"the connection was lost: {error}"))
            return
        if not data:
            self._exchange.finish(self._exchange.end_of_stream())
            return
        self._is_feeding = True
        try:
            self._exchange.feed(data)
        except LinkBroken as error:
            self._exchange.finish(error)
        except LinkRefused as error:
            self._refused = error
            self._exchange.refuse(str(error))
        finally:
            self._is_feeding = False
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            self._read()  # No wait would see what TLS has read already.

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except _NOT_NOW:
            if self._wait(select.POLLIN | select.POLLOUT, None) & ~select.POLLOUT:
                self._read()
        except OSError as error:
            self._exchange.finish(LinkEnded(f"the connection was lost: {error}"))

    def _wait(self, events: int, timeout_s: float | None) -> int:
        """Which of `events` are there, or that the connection is over; 0 when time is up."""
        poll = select.poll()
        poll.register(self._sock, events)
        if timeout_s == math.inf:
            timeout_s = None
        found = poll.poll(None if timeout_s is None else timeout_s * 1000)
        return found[0][1] if found else 0

    def _raise_if_ended(self) -> None:
        if (ended := self._exchange.ended) is not None:
            raise type(ended)(*ended.args)


def ready(links: Iterable[BlockingLink[R]]) -> list[BlockingLink[R]]:
    """Wait until something came on some of the links, take it in, and say which those are."""
    with contextlib.closing(select.epoll()) as epoll:
        by_number = {link.fileno(): link for link in links}
        for number in by_number:
            epoll.register(number, select.EPOLLIN)
        found = [by_number[number] for number, _ in epoll.poll()]
    for link in found:
        link.pump(0)
    return found
