"""Answers to callers, as records with the names of OpenAI's interface."""

from collections.abc import Sequence
from itertools import accumulate

from msgspec import UNSET, Struct, UnsetType

from artangram.core.rollout.trajectory import Segment, VersionSpan
from artangram.gateway.engines.protocol import Alternatives, FinishReason, TokenChunk
from artangram.gateway.http.wire import ToolCall
from artangram.gateway.text import TextStream
from artangram.gateway.turn import Reply


class TokenUsage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class LikelyToken(Struct, frozen=True, kw_only=True):
    """A token that was likely."""

    token: str
    """What it adds to the text; see `TextStream.push_each`."""
    logprob: float
    bytes: list[int]


class TokenLogprob(LikelyToken, frozen=True, kw_only=True):
    top_logprobs: list[LikelyToken] = []


class ChatLogprobs(Struct, frozen=True, kw_only=True):
    content: list[TokenLogprob]


class TextLogprobs(Struct, frozen=True, kw_only=True):
    tokens: list[str]
    token_logprobs: list[float]
    text_offset: list[int]
    top_logprobs: None = None


class ExactTokens(Struct, frozen=True, kw_only=True):
    """For callers that ask: the exact tokens, and which version sampled them."""

    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    weight_versions: tuple[VersionSpan, ...]


class ReplyMessage(Struct, frozen=True, kw_only=True):
    content: str | None
    tool_calls: Sequence[ToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    role: str = "assistant"


class ChatChoice(Struct, frozen=True, kw_only=True):
    index: int
    message: ReplyMessage
    finish_reason: str
    logprobs: ChatLogprobs | None = None
    artangram: ExactTokens | UnsetType = UNSET


class TextChoice(Struct, frozen=True, kw_only=True):
    index: int
    text: str
    finish_reason: str | None
    logprobs: TextLogprobs | None = None
    artangram: ExactTokens | UnsetType = UNSET


class CallDelta(ToolCall, kw_only=True):
    index: int


class Delta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallDelta] | None = None


class DeltaChoice(Struct, frozen=True, kw_only=True):
    index: int
    delta: Delta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    artangram: ExactTokens | UnsetType = UNSET


class Completion(Struct, frozen=True, kw_only=True):
    """A whole answer, or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[ChatChoice | TextChoice | DeltaChoice]
    usage: TokenUsage | None = None


class Head(Struct, frozen=True, kw_only=True):
    """What every event of an answer repeats."""

    id: str
    created: int
    model: str

    def answer(
        self,
        kind: str,
        choices: Sequence[ChatChoice | TextChoice | DeltaChoice],
        *,
        usage: TokenUsage | None = None,
    ) -> Completion:
        return Completion(
            id=self.id,
            object=kind,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=usage,
        )


class ModelCard(Struct, frozen=True, kw_only=True):
    id: str
    created: int
    max_model_len: int | None
    object: str = "model"
    owned_by: str = "artangram"


class ModelList(Struct, frozen=True, kw_only=True):
    data: list[ModelCard]
    object: str = "list"


class GeneratedTokens(Struct, frozen=True, kw_only=True):
    """A whole answer in tokens."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[VersionSpan, ...]
    finish: FinishReason
    prompt_tokens: int
    tops: tuple[Alternatives, ...] = ()


class SessionOpened(Struct, frozen=True, kw_only=True):
    id: str
    api_key: str
    """Stands for this session alone, until it is closed."""


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as it can be looked at: `lines` are its main line and its forks."""

    id: str
    task: str
    oldest_version: int | None
    lines: list[tuple[Segment, ...]]


def usage_of(replies: Sequence[Reply], *, choices: int) -> TokenUsage:
    """Of all prompts, each counted once however many choices it had, and all answers."""
    prompt = sum(reply.prompt_tokens for reply in replies) // choices
    completion = sum(len(reply.token_ids) for reply in replies)
    return TokenUsage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )


def generated(reply: Reply) -> GeneratedTokens:
    return GeneratedTokens(
        token_ids=reply.token_ids,
        logprobs=reply.logprobs,
        spans=reply.spans,
        finish=reply.finish,
        prompt_tokens=reply.prompt_tokens,
        tops=reply.tops,
    )


def chat_logprobs(part: TokenChunk | Reply, spelled: TextStream) -> ChatLogprobs:
    """Of tokens that come next in the stream."""
    content: list[TokenLogprob] = []
    for number, (token, logprob) in enumerate(zip(part.token_ids, part.logprobs, strict=True)):
        tops = [
            LikelyToken(token=text, logprob=likely, bytes=list(text.encode()))
            for one, likely in (part.tops[number] if part.tops else ())
            for text in [spelled.would_add(one)]
        ]
        text = spelled.push([token])
        content.append(
            TokenLogprob(token=text, logprob=logprob, bytes=list(text.encode()), top_logprobs=tops)
        )
    return ChatLogprobs(content=content)


def text_logprobs(
    texts: Sequence[str], logprobs: Sequence[float], *, start: int = 0
) -> TextLogprobs:
    """Of tokens that add these texts, after `start` characters of the answer."""
    offsets = list(accumulate((len(text) for text in texts), initial=start))
    return TextLogprobs(tokens=list(texts), token_logprobs=list(logprobs), text_offset=offsets[:-1])


def exact(reply: Reply, prompt: tuple[int, ...]) -> ExactTokens:
    return ExactTokens(
        prompt_token_ids=prompt, token_ids=reply.token_ids, weight_versions=reply.spans
    )
