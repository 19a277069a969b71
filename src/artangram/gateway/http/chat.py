"""One chat completion: messages in, a message out, whole or in pieces."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import UNSET, Struct, UnsetType, structs

from artangram.gateway.engines.protocol import FinishReason, TokenChunk
from artangram.gateway.http.answer import (
    CallDelta,
    ChatChoice,
    ChatLogprobs,
    Completion,
    Delta,
    DeltaChoice,
    ExactTokens,
    Head,
    ReplyMessage,
    TokenUsage,
    chat_logprobs,
    exact,
    usage_of,
)
from artangram.gateway.http.callformats import SplitReply
from artangram.gateway.http.conversation import Conversation, Prompt
from artangram.gateway.http.dialect import Dialect
from artangram.gateway.http.merge import merged
from artangram.gateway.http.reader import ReplyReader
from artangram.gateway.http.refusal import aborted
from artangram.gateway.http.sse import DONE, event
from artangram.gateway.http.wire import ChatMessage, ChatRequest, ToolCall
from artangram.gateway.session import Session
from artangram.gateway.text import TextStream, cut
from artangram.gateway.turn import Reply
from artangram.models.tokenizer import Tokenizer

WHOLE, PIECE = "chat.completion", "chat.completion.chunk"


class ReplyView(Struct, frozen=True, kw_only=True):
    """A reply as the caller sees it."""

    words: str
    calls: list[ToolCall]
    reasoning: str
    finish: str


class Chat:
    """The work behind one request; used once."""

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        *,
        tokenizer: Tokenizer,
        dialect: Dialect,
        asked: ChatRequest,
        head: Head,
    ) -> None:
        self._session = session
        self._conversation = conversation
        self._tokenizer = tokenizer
        self._dialect = dialect
        self._asked = asked
        self._head = head
        self._tools = asked.offered_tools()
        self._said = dialect.chat(asked.messages, self._tools, asked.template_options)
        form = asked.form()
        self._opening = dialect.opening(form, self._tools) if form else ()
        """What every reply begins with: given to the model, and not sampled."""
        self._stop_ids = dialect.stop_ids_after_call() if asked.allows_one_call else ()

    async def whole(self) -> Completion:
        with self._conversation.prompts(self._said, choices=self._asked.choices) as prompts:
            if len(prompts) == 1:
                pairs = [await self._choice(0, prompts[0])]
            else:
                async with asyncio.TaskGroup() as group:
                    running = [group.create_task(self._choice(*one)) for one in enumerate(prompts)]
                pairs = [one.result() for one in running]
        usage = usage_of([reply for _, reply in pairs], choices=self._asked.choices)
        return self._head.answer(WHOLE, [choice for choice, _ in pairs], usage=usage)

    async def events(self) -> AsyncGenerator[bytes, None]:
        with self._conversation.prompts(self._said, choices=self._asked.choices) as prompts:
            replies: list[Reply] = []
            pieces = [self._pieces(*one, replies=replies) for one in enumerate(prompts)]
            async with aclosing(merged(pieces)) as choices:
                async for choice in choices:
                    yield event(self._head.answer(PIECE, [choice]))
        if self._asked.includes_usage:
            usage = usage_of(replies, choices=self._asked.choices)
            yield event(self._head.answer(PIECE, [], usage=usage))
        yield DONE

    async def deltas(self) -> AsyncGenerator[DeltaChoice | TokenUsage, None]:
        """The pieces of one choice, then what it took: for interfaces with events of their own."""
        replies: list[Reply] = []
        with self._conversation.prompts(self._said) as (prompt,):
            async with aclosing(self._pieces(0, prompt, replies=replies)) as pieces:
                async for piece in pieces:
                    yield piece
        yield usage_of(replies, choices=1)

    async def _items(self, index: int, prompt: Prompt) -> AsyncGenerator[TokenChunk | Reply, None]:
        """The turn on the branch of the prompt. A reply is part of the branch when it comes out."""
        usual = self._session.rules.temperature
        sampling = self._asked.sampling(choice=index, temperature=usual)
        stream = self._session.stream_on(
            prompt.branch.line,
            prompt.given + self._opening,
            structs.replace(sampling, stop_ids=self._stop_ids),
            stops=self._asked.stops,
        )
        async with aclosing(stream) as items:
            async for item in items:
                if isinstance(item, Reply):
                    if item.finish is FinishReason.ABORT:
                        raise aborted()
                    spoken = self._spoken(item, index, prompt)
                    said = ChatMessage(
                        role="assistant",
                        content=spoken.words,
                        tool_calls=spoken.calls,
                        reasoning_content=spoken.reasoning or None,
                    )
                    prompt.answered(self._dialect.message(said))
                yield item

    async def _choice(self, index: int, prompt: Prompt) -> tuple[ChatChoice, Reply]:
        base = len(prompt.branch.line)
        async with aclosing(self._items(index, prompt)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
        spoken = self._spoken(reply, index, prompt)
        choice = ChatChoice(
            index=index,
            message=ReplyMessage(
                content=None if spoken.calls and not spoken.words else spoken.words,
                tool_calls=spoken.calls or UNSET,
                reasoning_content=spoken.reasoning or UNSET,
            ),
            finish_reason=spoken.finish,
            logprobs=self._logprobs(reply, TextStream(self._tokenizer)),
            artangram=self._exact(reply, prompt.whole(base)),
        )
        return choice, reply

    def _exact(self, reply: Reply, prompt: tuple[int, ...]) -> ExactTokens | UnsetType:
        return exact(reply, prompt + self._opening) if self._asked.return_token_ids else UNSET

    async def _pieces(
        self, index: int, prompt: Prompt, *, replies: list[Reply]
    ) -> AsyncGenerator[DeltaChoice, None]:
        base = len(prompt.branch.line)
        spelled = TextStream(self._tokenizer)
        reader = self._dialect.reader(
            given=prompt.given, tools=self._tools, stops=self._asked.stops
        )
        reader.push(self._opening)
        is_first = True
        async with aclosing(self._items(index, prompt)) as items:
            async for item in items:
                if is_first:
                    is_first = False
                    yield DeltaChoice(index=index, delta=Delta(role="assistant", content=""))
                if isinstance(item, TokenChunk):
                    new = reader.push(item.token_ids)
                    logprobs = self._logprobs(item, spelled)
                    if new.words or new.reasoning or logprobs:
                        delta = Delta(content=new.words, reasoning_content=new.reasoning or None)
                        yield DeltaChoice(index=index, delta=delta, logprobs=logprobs)
                else:
                    replies.append(item)
                    yield self._last(index, item, reader=reader, prompt=prompt, base=base)

    def _last(
        self, index: int, reply: Reply, *, reader: ReplyReader, prompt: Prompt, base: int
    ) -> DeltaChoice:
        spoken = self._spoken(reply, index, prompt)
        calls = [
            CallDelta(index=number, id=call.id, function=call.function)
            for number, call in enumerate(spoken.calls)
        ]
        rest = reader.rest(SplitReply(reasoning=spoken.reasoning, words=spoken.words))
        return DeltaChoice(
            index=index,
            delta=Delta(
                content=rest.words or None,
                reasoning_content=rest.reasoning or None,
                tool_calls=calls or None,
            ),
            finish_reason=spoken.finish,
            artangram=self._exact(reply, prompt.whole(base)),
        )

    def _spoken(self, reply: Reply, index: int, prompt: Prompt) -> ReplyView:
        found = self._dialect.split(
            self._opened(reply), given=prompt.given, tools=self._tools, stops=self._asked.stops
        )
        named = [
            ToolCall(id=f"call_{self._head.id}_{index}_{number}", function=call)
            for number, call in enumerate(found.calls)
        ]
        finish = "tool_calls" if found.calls else str(reply.finish)
        return ReplyView(words=found.words, calls=named, reasoning=found.reasoning, finish=finish)

    def _opened(self, reply: Reply) -> Reply:
        """With what it begins with."""
        if not self._opening:
            return reply
        tokens = self._opening + reply.token_ids
        text = cut(self._tokenizer.decode(tokens), self._asked.stops)
        return structs.replace(reply, token_ids=tokens, text=text)

    def _logprobs(self, part: TokenChunk | Reply, spelled: TextStream) -> ChatLogprobs | None:
        if not self._asked.logprobs:
            return None
        return chat_logprobs(part, spelled)
