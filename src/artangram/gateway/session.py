"""One trajectory's conversation with the model.

- The session keeps exactly the tokens that were given and sampled; nothing is tokenised twice.
- A turn is all or nothing: when `generate` returns, what was given and what was sampled are in the
  history; when it raises or is cancelled, neither is.
- An aborted turn returns: its finish is `ABORT`, and what was sampled before is in the history.
- One turn at a time. `close` ends what runs, and the session.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from msgspec import structs

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.rollout.trajectory import Segment
from artangram.gateway.engines.protocol import FinishReason, Sampling, TokenChunk
from artangram.gateway.history import TokenHistory
from artangram.gateway.rules import SamplingRules
from artangram.gateway.text import StopTexts, cut, text_after
from artangram.gateway.turn import Reply, Turn
from artangram.models.tokenizer import ASSISTANT, USER, ChatInput, Message, Tokenizer

if TYPE_CHECKING:
    from artangram.gateway.gateway import Gateway

New = str | Sequence[int] | Sequence[Message]
"""What the model reads next: text of the user, messages, or tokens."""


class ReplyTimedOut(InfraFailed):
    """The deadline came before the reply."""


class SessionClosed(InfraFailed):
    """The session was closed before or during the call."""


class Session:
    """See the module. Made by `Gateway.open`."""

    def __init__(
        self,
        gateway: "Gateway",
        session_id: str,
        *,
        number: int,
        task: str,
        tokenizer: Tokenizer | None,
    ) -> None:
        self.id = session_id
        self.task = task
        self.tokenizer = tokenizer
        self.lines = [TokenHistory()]
        """The conversation, and whatever a caller branched off from it."""
        self.rules = SamplingRules()
        """How its turns may sample."""
        self._gateway = gateway
        self._number = number
        """Of all that were opened: an engine may still end the requests of one of the same name."""
        self._running: dict[str, Turn] = {}
        self._turns = 0
        self.last_finish: FinishReason | None = None
        """How the reply that came last ended."""
        self._queued_s = 0.0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Session {self.id} ({self.task}): {len(self.line)} tokens, {self._turns} turns>"

    @property
    def line(self) -> TokenHistory:
        return self.lines[0]

    def segments(self) -> tuple[Segment, ...]:
        return self.line.segments

    def branches(self) -> tuple[tuple[Segment, ...], ...]:
        """Further conversations in which something was sampled."""
        lines = (line.segments for line in self.lines[1:])
        return tuple(line for line in lines if any(one.is_sampled for one in line))

    @property
    def oldest_version(self) -> int | None:
        """Of the oldest sampled token, those of the running turn included; `None` without any."""
        versions = [line.oldest_version for line in self.lines]
        versions += [turn.oldest_version for turn in self._running.values()]
        return min((version for version in versions if version is not None), default=None)

    @property
    def queued_s(self) -> float:
        """Seconds for which its turns had no replica, the running turn included."""
        now = asyncio.get_running_loop().time()
        return self._queued_s + sum(turn.queued_s(now) for turn in self._running.values())

    async def generate(
        self, new: New, sampling: Sampling, *, deadline: float | None = None
    ) -> Reply:
        """The model's reply to `new`. `deadline` is a time of the running loop."""
        try:
            async with asyncio.timeout_at(deadline), aclosing(self.stream(new, sampling)) as items:
                async for item in items:
                    if isinstance(item, Reply):
                        return item
        except TimeoutError:
            raise ReplyTimedOut(f"session {self.id}: no reply before the deadline") from None
        raise AssertionError("a stream ends with its reply")

    async def stream(
        self, new: New, sampling: Sampling
    ) -> AsyncGenerator[TokenChunk | Reply, None]:
        """The chunks as they are sampled, then the reply. Close the stream to end the turn."""
        if self._running or self.line.is_busy:
            raise BadInput("session", f"{self.id} is in a turn", "wait for its reply")
        self.line.is_busy = True
        try:
            async with aclosing(self.stream_on(self.line, new, sampling)) as items:
                async for item in items:
                    yield item
        finally:
            self.line.is_busy = False

    async def stream_on(
        self,
        line: TokenHistory,
        new: New,
        sampling: Sampling,
        *,
        stops: Sequence[str] = (),
        is_message: bool = True,
    ) -> AsyncGenerator[TokenChunk | Reply, None]:
        """Like `stream`, on any line of this session; turns on different lines may overlap.

        The caller makes sure that no other turn uses the line meanwhile (`is_busy`). A text of
        `stops` ends the reply: its tokens are part of it, its text is not. The text of a reply that
        is no message of its own is what it adds to the prompt's.
        """
        if self._is_closed:
            raise SessionClosed(f"session {self.id} is closed")
        given = self.given(line, new)
        turn = self._turn(line.token_ids() + given, self.rules.applied(sampling))
        before = () if is_message else turn.prompt
        self._running[turn.id] = turn
        try:
            async with aclosing(self._chunks(turn, stops, before)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            del self._running[turn.id]
            self._queued_s += turn.queued_s(asyncio.get_running_loop().time())
        if self._is_closed:
            raise SessionClosed(f"session {self.id} was closed in its turn")
        self._commit(line, given, turn)
        now = asyncio.get_running_loop().time()
        yield turn.reply(cut(self._text(turn.sampled, before), stops), now=now)

    def _chunks(
        self, turn: Turn, stops: Sequence[str], before: Sequence[int]
    ) -> AsyncGenerator[TokenChunk, None]:
        if not stops:
            return self._gateway.serve(turn)
        if self.tokenizer is None:
            raise BadInput("stop", "is text", "open the session with a tokenizer")
        watch = StopTexts(self.tokenizer, stops, after=before)
        return self._until(watch, turn, self._gateway.serve(turn))

    async def _until(
        self, watch: StopTexts, turn: Turn, served: AsyncGenerator[TokenChunk, None]
    ) -> AsyncGenerator[TokenChunk, None]:
        async with aclosing(served) as chunks:
            async for chunk in chunks:
                found = watch.found_after(chunk.token_ids)
                if found is None:
                    yield chunk
                    continue
                turn.stop_at(len(turn.sampled) - len(chunk.token_ids) + found)
                yield chunk.part(0, found)
                return

    def _commit(self, line: TokenHistory, given: tuple[int, ...], turn: Turn) -> None:
        line.append(Segment(token_ids=given))
        line.append(turn.segment())
        self.last_finish = turn.finish
        if not any(line is known for known in self.lines):
            self.lines.append(line)

    def given(self, line: TokenHistory, new: New) -> tuple[int, ...]:
        """The tokens that come after `line` when `new` is said and the model is to answer."""
        if isinstance(new, str):
            return self._rendered(line, [Message(USER, new)])
        # A sequence holds tokens or messages, never both.
        if new and isinstance(new[0], Message):
            return self._rendered(line, cast(Sequence[Message], new))
        return tuple(cast(Sequence[int], new))

    def _rendered(self, line: TokenHistory, messages: Sequence[Message]) -> tuple[int, ...]:
        if self.tokenizer is None:
            raise BadInput("new", "are words", "open the session with a tokenizer, or give tokens")
        chat = ChatInput(messages)
        if not len(line):
            return self.tokenizer.first(chat)
        last_id = line.last_id if line.is_after_reply else None
        return self.tokenizer.after(chat, reply=Message(ASSISTANT, ""), last_id=last_id)

    async def abort(self) -> None:
        """End the running turn; its reply has the finish `ABORT`."""
        for turn in list(self._running.values()):
            await self._gateway.abort_turn(turn)

    async def close(self) -> None:
        """End the running turns and forget the session. The history stays readable."""
        if not self._is_closed:
            self._is_closed = True
            self._gateway.forget(self)
            await self.abort()

    def _turn(self, prompt: tuple[int, ...], sampling: Sampling) -> Turn:
        self._turns += 1
        if self.tokenizer is not None:
            stop_ids = dict.fromkeys((*sampling.stop_ids, *self.tokenizer.end_ids))
            sampling = structs.replace(sampling, stop_ids=tuple(stop_ids))
        turn_id = f"{self.id}/{self._number}-{self._turns}"
        return Turn(
            turn_id,
            prompt,
            sampling=sampling,
            session=self.id,
            task=self.task,
            number=self._turns - 1,
        )

    def _text(self, sampled: Sequence[int], before: Sequence[int]) -> str:
        return "" if self.tokenizer is None else text_after(self.tokenizer, before, sampled)
