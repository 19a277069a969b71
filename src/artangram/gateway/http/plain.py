"""Plain completions: text or tokens in, text out. And `generate`: tokens in, tokens out.

A prompt that begins with all a line of its session holds continues that line, token for token;
any other prompt is a line of its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec import UNSET, Struct

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import FinishReason, TokenChunk
from artangram.gateway.history import TokenHistory
from artangram.gateway.http.answer import (
    Completion,
    Head,
    TextChoice,
    TextLogprobs,
    exact,
    generated,
    text_logprobs,
    usage_of,
)
from artangram.gateway.http.merge import merged
from artangram.gateway.http.refusal import aborted
from artangram.gateway.http.sse import DONE, event
from artangram.gateway.http.wire import CompletionRequest, GenerateRequest
from artangram.gateway.session import Session
from artangram.gateway.text import Certain, TextStream, encoded_after, text_after
from artangram.gateway.turn import Reply
from artangram.models.tokenizer import Tokenizer

KIND = "text_completion"


class Begun(Struct, frozen=True):
    """A line to be continued, and by what."""

    line: TokenHistory
    given: tuple[int, ...]
    text: str | None
    """The whole prompt; `None` when it came as tokens."""

    @property
    def read(self) -> tuple[int, ...]:
        """All that the model reads, as long as it has not answered."""
        return self.line.token_ids() + self.given


class Told(Struct, frozen=True):
    """The text of a line at a given number of tokens."""

    line: TokenHistory
    text: str
    length: int


class PromptHistories:
    """The lines of one session, and the texts of those that plain completions have made.

    Knows the session's lines and not the session, which may end before it.
    """

    def __init__(self, session: Session, tokenizer: Tokenizer) -> None:
        self._lines = session.lines
        self._tokenizer = tokenizer
        self._told: list[Told] = []

    def begun(self, prompt: str | Sequence[int]) -> Begun:
        """The longest idle line that the prompt continues."""
        if isinstance(prompt, str):
            return self._begun_by_text(prompt)
        self._refuse_unknown(prompt)
        tokens = tuple(prompt)
        free = [line for line in self._lines if not line.is_busy]
        fitting = [line for line in free if line.token_ids() == tokens[: len(line)]]
        line = max(fitting, key=len, default=TokenHistory())
        return Begun(line, tokens[len(line) :], None)

    def _begun_by_text(self, prompt: str) -> Begun:
        told = [one for one in self._told if prompt.startswith(one.text) and _is_up_to_date(one)]
        if told:
            best = max(told, key=lambda one: len(one.text))
            new = prompt[len(best.text) :]
            return Begun(best.line, encoded_after(self._tokenizer, best.text, new), prompt)
        first = self._lines[0]
        line = TokenHistory() if len(first) or first.is_busy else first
        return Begun(line, self._tokenizer.encode(prompt), prompt)

    def answered(self, begun: Begun, read: Sequence[int], reply: Reply) -> None:
        """Record the reply to a prompt."""
        if begun.text is not None:
            # All of its tokens: a stop text is part of the line, but not of the reply.
            text = begun.text + text_after(self._tokenizer, read, reply.token_ids)
            self._told = [one for one in self._told if one.line is not begun.line]
            self._told.append(Told(begun.line, text, len(begun.line)))

    def _refuse_unknown(self, tokens: Sequence[int]) -> None:
        size = self._tokenizer.vocab_size
        if not all(0 <= token < size for token in tokens):
            raise BadInput("prompt", "has tokens that do not exist", f"use 0 to {size - 1}")


def _is_up_to_date(told: Told) -> bool:
    """False if another request has continued the line differently, or is about to."""
    return len(told.line) == told.length and not told.line.is_busy


class PlainCompletion:
    """The work behind one request; used once."""

    def __init__(
        self,
        session: Session,
        lines: PromptHistories,
        *,
        tokenizer: Tokenizer,
        asked: CompletionRequest,
        head: Head,
    ) -> None:
        self._session = session
        self._lines = lines
        self._tokenizer = tokenizer
        self._asked = asked
        self._head = head
        self._prompts = [one for one in asked.prompts() for _ in range(asked.choices)]

    async def whole(self) -> Completion:
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._choice(index, prompt))
                for index, prompt in enumerate(self._prompts)
            ]
        pairs = [one.result() for one in running]
        usage = usage_of([reply for _, reply in pairs], choices=self._asked.choices)
        return self._head.answer(KIND, [choice for choice, _ in pairs], usage=usage)

    async def events(self) -> AsyncGenerator[bytes, None]:
        replies: list[Reply] = []
        pieces = [self._pieces(*one, replies=replies) for one in enumerate(self._prompts)]
        async with aclosing(merged(pieces)) as choices:
            async for choice in choices:
                yield event(self._head.answer(KIND, [choice]))
        if self._asked.includes_usage:
            usage = usage_of(replies, choices=self._asked.choices)
            yield event(self._head.answer(KIND, [], usage=usage))
        yield DONE

    async def _items(self, index: int, begun: Begun) -> AsyncGenerator[TokenChunk | Reply, None]:
        asked, read = self._asked, begun.read
        begun.line.is_busy = True
        stream = self._session.stream_on(
            begun.line,
            begun.given,
            asked.sampling(choice=index, temperature=self._session.rules.temperature),
            stops=asked.stops,
            is_message=False,
        )
        try:
            async with aclosing(stream) as items:
                async for item in items:
                    if isinstance(item, Reply):
                        if item.finish is FinishReason.ABORT:
                            raise aborted()
                        self._lines.answered(begun, read, item)
                    yield item
        finally:
            begun.line.is_busy = False

    async def _choice(self, index: int, prompt: str | list[int]) -> tuple[TextChoice, Reply]:
        begun = self._lines.begun(prompt)
        read = begun.read
        async with aclosing(self._items(index, begun)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
        choice = TextChoice(
            index=index,
            text=reply.text,
            finish_reason=str(reply.finish),
            logprobs=self._logprobs(reply, Spelled(self._tokenizer, after=read)),
            artangram=exact(reply, read) if self._asked.return_token_ids else UNSET,
        )
        return choice, reply

    async def _pieces(
        self, index: int, prompt: str | list[int], *, replies: list[Reply]
    ) -> AsyncGenerator[TextChoice, None]:
        begun = self._lines.begun(prompt)
        read = begun.read
        text = TextStream(self._tokenizer, after=read)
        spelled = Spelled(self._tokenizer, after=read)
        certain = Certain(self._asked.stops)
        async with aclosing(self._items(index, begun)) as items:
            async for item in items:
                if isinstance(item, TokenChunk):
                    words = certain.push(text.push(item.token_ids))
                    logprobs = self._logprobs(item, spelled)
                    if words or logprobs:
                        yield TextChoice(
                            index=index, text=words, finish_reason=None, logprobs=logprobs
                        )
                else:
                    replies.append(item)
                    yield TextChoice(
                        index=index,
                        text=certain.rest(item.text),
                        finish_reason=str(item.finish),
                        artangram=exact(item, read) if self._asked.return_token_ids else UNSET,
                    )

    def _logprobs(self, part: TokenChunk | Reply, spelled: "Spelled") -> TextLogprobs | None:
        if self._asked.logprobs is None:
            return None
        return spelled.logprobs(part)


class Spelled:
    """The answer token by token, as far as it has come."""

    def __init__(self, tokenizer: Tokenizer, *, after: Sequence[int]) -> None:
        self._stream = TextStream(tokenizer, after=after)
        self._length = 0

    def logprobs(self, part: TokenChunk | Reply) -> TextLogprobs:
        texts = self._stream.push_each(part.token_ids)
        start, self._length = self._length, self._length + sum(map(len, texts))
        return text_logprobs(texts, part.logprobs, start=start)


async def generated_events(session: Session, asked: GenerateRequest) -> AsyncGenerator[bytes, None]:
    """Chunks, then the whole answer."""
    async with aclosing(session.stream(asked.token_ids, asked.sampling)) as items:
        async for item in items:
            yield event(generated(item) if isinstance(item, Reply) else item)
    yield DONE
