"""The talk over a link without its I/O: bytes in, records and answers out.

- An ask has a number, and exactly one answer or refusal carries it back. An answer to a number that
  was never asked, or a second one, breaks the link.
- A heartbeat is echoed at once.
- Both ends, with an event loop and without one, share all of this.
"""

from functools import cache
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from artangram.link.errors import LinkBroken, LinkEnded, LinkRefused
from artangram.link.faults import Fault
from artangram.link.frames import (
    ANSWER,
    ASK,
    BEAT,
    CREDIT,
    ECHO,
    HELLO,
    OPEN,
    PART,
    REFUSAL,
    REFUSED,
    TELL,
    FrameReader,
)
from artangram.link.inbox import Inbox
from artangram.link.outbox import Outbox
from artangram.link.terms import LinkHello, LinkTerms, greeted, hello_of

R = TypeVar("R")
T = TypeVar("T")
R_contra = TypeVar("R_contra", contravariant=True)

_encode = msgspec.msgpack.Encoder().encode
_decode_fault = msgspec.msgpack.Decoder(Fault).decode


@cache
def decoder_of(type: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(type)


class AskReply(Protocol):
    """Is told how an ask went; one of the two, once."""

    def answered(self, value: Any) -> None: ...

    def failed(self, error: Exception) -> None: ...


class LinkSide(Protocol[R_contra]):
    """The end of a link that an exchange works for."""

    def on_tell(self, record: R_contra) -> None: ...

    def on_ask(self, asked: "IncomingAsk[Any]") -> None: ...

    def on_hello(self, hello: LinkHello) -> None: ...

    def on_refused(self, error: LinkRefused) -> None: ...

    def on_echo(self, number: int) -> None: ...

    def wake(self) -> None:
        """Something is in the outbox."""
        ...


class IncomingAsk(Generic[R]):
    """A record that the peer asked, to be answered or refused exactly once."""

    __slots__ = ("_exchange", "_number", "record")

    def __init__(self, record: R, exchange: "Exchange[R]", number: int) -> None:
        self.record = record
        self._exchange: Exchange[R] | None = exchange
        self._number = number

    def __repr__(self) -> str:
        state = "settled" if self._exchange is None else "open"
        return f"<IncomingAsk {self._number}: {self.record!r}, {state}>"

    def answer(self, value: object = None) -> None:
        """`ValueError` if it is longer than the peer accepts; the ask stays open then."""
        body = _encode(value)
        self._settle(ANSWER, body)

    def refuse(self, error: Exception) -> None:
        """The asker gets an error of the same type and with the same fields."""
        exchange = self._exchange
        assert exchange is not None, f"{self!r} was answered"
        self._settle(REFUSAL, _encode(exchange.terms.faults.fault(error)))

    def _settle(self, kind: int, body: bytes) -> None:
        assert self._exchange is not None, f"{self!r} was answered"
        self._exchange.put(kind, self._number, body, None)
        self._exchange = None


class Exchange(Generic[R]):
    """See the module. `end` hears what comes."""

    def __init__(self, terms: LinkTerms[R], end: LinkSide[R]) -> None:
        self.terms = terms
        self.outbox = Outbox(most_queued_bytes=terms.most_queued_bytes)
        self.ended: LinkEnded | None = None
        self._end = end
        self._frames = FrameReader()
        self._inbox = Inbox(
            most_record_bytes=terms.most_record_bytes, window_bytes=terms.window_bytes
        )
        self._is_met = False
        self._num_asked = 0
        self._waiting: dict[int, tuple[AskReply, msgspec.msgpack.Decoder[Any]] | None] = {}
        """Numbers that were not answered yet; `None` for those whose asker has gone."""

    def greet(self, record: object) -> None:
        """Send the hello of this side."""
        self.outbox.put_frame(HELLO, 0, hello_of(self.terms, record))
        self._end.wake()

    def refuse(self, sentence: str) -> None:
        """Send no hello, but why."""
        self.outbox.put_frame(REFUSED, 0, sentence.encode(errors="backslashreplace")[:4096])
        self._end.wake()

    def hello_record(self, hello: LinkHello, kind: type[T]) -> T:
        """What the peer says about itself. `LinkBroken` if that is no `kind`."""
        try:
            return msgspec.msgpack.decode(hello.record, type=kind)
        except msgspec.MsgspecError as error:
            raise LinkBroken(f"the hello of the other side makes no sense: {error}") from error

    def beat(self, number: int) -> None:
        if self.ended is None:
            self.outbox.put_frame(BEAT, number)
            self._end.wake()

    def tell(self, record: object, stream: str | None) -> None:
        self.put(TELL, 0, _encode(record), stream)

    def ask(self, record: object, answer: Any, reply: AskReply, stream: str | None) -> int:
        """Ask; `reply` hears an answer of the type `answer`. Returns the number for `forget`."""
        body, decoder = _encode(record), decoder_of(answer)
        number = self._num_asked + 1
        self.put(ASK, number, body, stream)
        self._num_asked = number
        self._waiting[number] = reply, decoder
        return number

    def forget(self, number: int) -> None:
        """Its asker is gone: the answer may come, and is not looked at."""
        if number in self._waiting:
            self._waiting[number] = None

    def put(self, kind: int, number: int, body: bytes, stream: str | None) -> None:
        """Queue a record; on a link that has ended nothing happens."""
        if self.ended is None:
            self.outbox.put(kind, number, body, stream)
            self._end.wake()

    def feed(self, data: bytes) -> None:
        """Hear what came. Raises `LinkBroken`, after all that came before the fault was heard."""
        for kind, number, body in self._frames.fed(data):
            if self.ended is not None:
                return
            if kind == TELL and self._is_met:
                self._end.on_tell(self._decoded(body))
            else:
                self._on_frame(kind, number, body)

    def finish(self, error: LinkEnded) -> None:
        """The link has ended: every ask that waits fails."""
        if self.ended is None:
            self.ended = error
            waiting, self._waiting = self._waiting, {}
            for each in waiting.values():
                if each is not None:
                    # One each: raising an error adds a traceback to it.
                    each[0].failed(type(error)(*error.args))

    def end_of_stream(self) -> LinkEnded:
        """How the stream ended."""
        where = "" if self._frames.is_between_frames else " in the middle of a frame"
        return LinkEnded(f"the other end closed the connection{where}")

    def _on_frame(self, kind: int, number: int, body: bytes) -> None:
        if not self._is_met:
            self._on_first(kind, body)
            return
        match kind:
            case _ if kind in (TELL, ASK, ANSWER, REFUSAL):
                self._on_record(kind, number, body)
            case _ if kind == BEAT:
                self.outbox.put_frame(ECHO, number)
                self._end.wake()
            case _ if kind == ECHO:
                self._end.on_echo(number)
            case _ if kind == OPEN:
                self._inbox.open(number, body)
            case _ if kind == PART:
                self._on_part(number, body)
            case _ if kind == CREDIT:
                self.outbox.credit_bytes += number
                self._end.wake()
            case _:
                raise LinkBroken("a second hello came")

    def _on_first(self, kind: int, body: bytes) -> None:
        if kind == REFUSED:
            self._end.on_refused(LinkRefused(body.decode(errors="replace")))
        elif kind != HELLO:
            raise LinkBroken("the other side did not say hello first")
        else:
            hello = greeted(self.terms, body)
            self.outbox.most_record_bytes = hello.most_record_bytes
            self.outbox.credit_bytes = hello.window_bytes
            self._is_met = True
            self._end.on_hello(hello)

    def _on_part(self, transfer: int, piece: bytes) -> None:
        record = self._inbox.part(transfer, piece)
        if credit := self._inbox.due_credit():
            self.outbox.put_frame(CREDIT, credit)
            self._end.wake()
        if record is not None:
            self._on_record(*record)

    def _on_record(self, kind: int, number: int, body: bytes) -> None:
        if kind == TELL:
            self._end.on_tell(self._decoded(body))
        elif kind == ASK:
            self._end.on_ask(IncomingAsk(self._decoded(body), self, number))
        elif kind in (ANSWER, REFUSAL):
            self._on_settled(kind, number, body)
        else:
            raise LinkBroken(f"a long record of kind {kind} is not of this protocol")

    def _on_settled(self, kind: int, number: int, body: bytes) -> None:
        if number not in self._waiting:
            raise LinkBroken(f"number {number} was answered, but does not wait for an answer")
        waiting = self._waiting.pop(number)
        if waiting is None:
            return
        reply, decoder = waiting
        try:
            if kind == REFUSAL:
                reply.failed(self.terms.faults.raised(_decode_fault(body)))
            else:
                reply.answered(decoder.decode(body))
        except msgspec.MsgspecError as error:
            broken = LinkBroken(f"the answer is not what was asked for: {error}")
            reply.failed(broken)
            raise broken from error

    def _decoded(self, body: bytes) -> R:
        try:
            return self.terms.decode(body)
        except msgspec.MsgspecError as error:
            raise LinkBroken(f"a record came that this side does not know: {error}") from error
