"""One end of a link in an event loop.

- `tell` returns at once; what is told in one turn of the loop leaves in one write. `ask` waits for
  its answer. A tell or ask waits only for long records of its own stream.
- Silence and the end of the stream are reported separately, and neither is the death of the peer:
  the user decides. A peer that is heard again after a silence is reported, too.
- However it ends, `on_end` is called once, after which tells do nothing and asks raise `LinkEnded`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast, overload

from artangram.core.errors import BadInput
from artangram.link.errors import LinkBroken, LinkEnded, LinkFull, LinkRefused
from artangram.link.exchange import Exchange, IncomingAsk
from artangram.link.frames import PART_BYTES
from artangram.link.heartbeat import Heartbeat
from artangram.link.terms import LinkHello, LinkTerms

R = TypeVar("R")
T = TypeVar("T")

CLOSE_PATIENCE_S = 2.0
"""How long the peer may take to read the last records before the connection is cut."""

_PARTS_A_TURN = 4
"""A loop that sends much must still hear; and what is told meanwhile leaves in between."""


class LinkUser(Generic[R]):
    """Hears what happens on one link. Unless it says otherwise, it ignores all of it."""

    __slots__ = ()

    def on_tell(self, record: R) -> None: ...

    def on_ask(self, asked: IncomingAsk[R]) -> None:
        """Answer or refuse it, now or later; `settle` does so with what a coroutine returns."""
        asked.refuse(ValueError("this side answers nothing"))

    def on_silent(self, silent_s: float) -> None:
        """Nothing came for `silent_s` seconds, not even an echo. The peer may still live."""

    def on_heard_again(self) -> None:
        """The silence is over."""

    def on_end(self, error: LinkEnded) -> None: ...


Greet = Callable[["Link[R]"], tuple[LinkUser[R], object]]
"""Given a link whose peer has said hello, returns its user and the record of this side's hello.

It raises `LinkRefused` or `BadInput` for a peer that is not welcome, which hears the message."""


async def settle(asked: IncomingAsk[R], work: Awaitable[object]) -> None:
    """Answer with what `work` returns, or refuse with what it raises."""
    try:
        asked.answer(await work)
    except Exception as error:  # noqa: BLE001 - whatever it is, its asker must hear of it
        asked.refuse(error)


class Link(asyncio.Protocol, Generic[R]):
    """See the module. `dial` and `listen` make one."""

    def __init__(
        self,
        terms: LinkTerms[R],
        greet: Greet[R],
        *,
        hello: object,
        dials: bool,
        verify: Callable[[asyncio.BaseTransport], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._exchange = Exchange(terms, self)
        self._greet = greet
        self._hello = hello
        self._dials = dials
        self._verify = verify
        self._dialed_at = loop.time()
        self._peer: LinkHello | None = None
        self._user: LinkUser[R] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_flushing = False
        self._is_paused = False
        self._draining: list[asyncio.Future[None]] = []
        self._heartbeat: Heartbeat | None = None
        self.met: asyncio.Future[None] = loop.create_future()
        """Done when both sides have said hello; or with `LinkRefused` or `LinkEnded`."""
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the connection is gone."""

    def __repr__(self) -> str:
        state = self._exchange.ended or ("open" if self._peer else "not greeted yet")
        return f"<Link {self._exchange.terms.name}: {state}>"

    @property
    def round_trip_s(self) -> float | None:
        """How long the last heartbeat took to come back."""
        return None if self._heartbeat is None else self._heartbeat.round_trip_s

    @property
    def confirmed_at(self) -> float:
        """When the last sign of life left that the peer has answered, by the loop's clock.

        Before the first heartbeat it is the time when this end connected.
        """
        beat = self._heartbeat
        return self._dialed_at if beat is None or beat.confirmed_at is None else beat.confirmed_at

    @property
    def queued_bytes(self) -> int:
        """What waits for the peer to read."""
        return self._exchange.outbox.queued_bytes

    def extra(self, name: str) -> Any:
        """About the connection, see `asyncio.BaseTransport.get_extra_info`."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    def peer(self, kind: type[T]) -> T:
        """The record in the peer's hello. `LinkBroken` if it is no `kind`."""
        assert self._peer is not None, "the link was not greeted"
        return self._exchange.hello_record(self._peer, kind)

    def tell(self, record: object, *, stream: str | None = "") -> None:
        """Send a record. `LinkFull` for a peer that reads too slowly, `ValueError` if too long."""
        self._exchange.tell(record, stream)

    @overload
    async def ask(self, record: object, *, stream: str | None = "") -> None: ...

    @overload
    async def ask(self, record: object, answer: type[T], *, stream: str | None = "") -> T: ...

    async def ask(self, record: object, answer: Any = None, *, stream: str | None = "") -> Any:
        """Send a record and wait for its answer. Raises what the peer raised, or `LinkEnded`.

        While the queue is full it waits with sending, too.
        """
        reply = _FutureReply(self._loop)
        while True:
            if (ended := self._exchange.ended) is not None:
                raise type(ended)(*ended.args)
            try:
                number = self._exchange.ask(record, answer, reply, stream)
                break
            except LinkFull:
                await self.drain()
        try:
            return await reply.future
        finally:
            self._exchange.forget(number)

    async def drain(self) -> None:
        """Return when all that was told has left this process, or the link has ended."""
        self._flush()
        if self._exchange.ended is None and not self._is_drained:
            turn = self._loop.create_future()
            self._draining.append(turn)
            await turn

    def close(self) -> None:
        """End the link. Short records that were told still leave; `drain` first for long ones."""
        if self._transport is not None and self._exchange.ended is None:
            self._write_whole()
            self._transport.close()
            if self._transport.get_write_buffer_size():  # Its peer may never read it.
                self._loop.call_later(CLOSE_PATIENCE_S, self._cut)
        self._finish(LinkEnded("this end closed the link"))

    async def aclose(self) -> None:
        """Close, and return when the connection is gone."""
        self.close()
        if self._transport is not None:
            await asyncio.wait({self.closed}, timeout=CLOSE_PATIENCE_S)
            self._cut()
            await asyncio.wait({self.closed})

    def abort(self, error: LinkEnded) -> None:
        """End the link at once, whatever waits in it."""
        self._cut()
        self._finish(error)

    def _cut(self) -> None:
        if self._transport is not None and not self.closed.done():
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=2 * PART_BYTES)
        if not self._dials:
            return
        try:
            if self._verify is not None:
                self._verify(transport)
        except LinkRefused as error:
            self._meet_with(error)
            self.abort(LinkEnded(str(error)))
        else:
            self._dialed_at = self._loop.time()
            self._exchange.greet(self._hello)

    def data_received(self, data: bytes) -> None:
        if self._heartbeat is not None:
            self._heartbeat.heard()
        if self._exchange.ended is not None:
            return
        is_late, self._is_flushing = self._is_flushing, True
        try:
            self._exchange.feed(data)
        except LinkBroken as error:
            self.abort(error)
        except LinkRefused as error:
            self._refuse(error)
        # Records told in reply leave now, not in the next turn of the loop.
        self._is_flushing = is_late
        if self._exchange.outbox.has_ready:
            self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        ended = self._exchange.end_of_stream()
        self.closed.set_result(None)
        self._finish(ended if error is None else LinkEnded(f"the connection was lost: {error}"))

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._flush()

    # What the exchange calls.

    def on_tell(self, record: R) -> None:
        assert self._user is not None
        self._user.on_tell(record)

    def on_ask(self, asked: IncomingAsk[R]) -> None:
        assert self._user is not None
        self._user.on_ask(asked)

    def on_hello(self, hello: LinkHello) -> None:
        self._peer = hello
        try:
            self._user, record = self._greet(self)
        except (LinkRefused, LinkBroken, BadInput) as error:
            self._refuse(LinkRefused(str(error)))
            return
        except Exception:
            # Internal errors are not shown to a peer that may be a stranger.
            self._refuse(LinkRefused("the other side could not answer the hello; see its log"))
            raise
        if not self._dials:
            self._exchange.greet(record)
        if (silence_s := self._exchange.terms.silence_s) is not None:
            self._heartbeat = Heartbeat(self._loop, self._exchange, self._user, silence_s)
        if not self.met.done():
            self.met.set_result(None)

    def on_refused(self, error: LinkRefused) -> None:
        self._meet_with(error)
        self.close()

    def on_echo(self, number: int) -> None:
        if self._heartbeat is not None:
            self._heartbeat.echoed(number)

    def wake(self) -> None:
        if not self._is_flushing and not self._is_paused:
            self._is_flushing = True
            self._loop.call_soon(self._on_turn)

    @property
    def _is_drained(self) -> bool:
        return self._exchange.outbox.is_empty and not self._is_paused

    def _on_turn(self) -> None:
        self._is_flushing = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if self._is_paused or transport is None or self._exchange.ended is not None:
            return
        self._write_whole()
        for _ in range(_PARTS_A_TURN):
            if self._is_paused or not (part := self._exchange.outbox.part()):
                break
            transport.write(part)
        if self._exchange.outbox.has_ready:
            self.wake()
        if self._draining and self._is_drained:
            self._end_draining()

    def _write_whole(self) -> None:
        assert self._transport is not None
        if data := self._exchange.outbox.whole():
            self._transport.write(data)

    def _end_draining(self) -> None:
        for turn in self._draining:
            if not turn.done():
                turn.set_result(None)
        self._draining.clear()

    def _refuse(self, error: LinkRefused) -> None:
        """The peer is not welcome, and hears why."""
        self._exchange.refuse(str(error))
        self._meet_with(error)
        self.close()

    def _meet_with(self, error: Exception) -> None:
        if not self.met.done():
            self.met.set_exception(error)
            self.met.exception()  # Looked at: on a side that accepts, no caller may wait for it.

    def _finish(self, error: LinkEnded) -> None:
        if self._exchange.ended is not None:
            return
        self._exchange.finish(error)
        self._meet_with(error)
        self._end_draining()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._user is not None:
            self._user.on_end(error)


class _FutureReply:
    """See `exchange.AskReply`."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()

    def answered(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def failed(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
