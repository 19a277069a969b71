"""What callers get, as records with the names of OpenAI's interface."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from artangram.core.trajectory import Segment, VersionSpan
from artangram.gateway.engines.protocol import FinishReason
from artangram.gateway.http.wire import ToolCall
from artangram.gateway.turn import Reply
from artangram.models.tokenizer import Tokenizer


class Usage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class TokenLogprob(Struct, frozen=True, kw_only=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[str] = []


class ChatLogprobs(Struct, frozen=True, kw_only=True):
    content: list[TokenLogprob]


class TextLogprobs(Struct, frozen=True, kw_only=True):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: None = None
    text_offset: list[int] = []


class Exact(Struct, frozen=True, kw_only=True):
    """For callers who ask: the very tokens, and who sampled them."""

    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    weight_versions: tuple[VersionSpan, ...]


class ReplyMessage(Struct, frozen=True, kw_only=True):
    content: str | None
    tool_calls: Sequence[ToolCall] | UnsetType = UNSET
    role: str = "assistant"


class ChatChoice(Struct, frozen=True, kw_only=True):
    index: int
    message: ReplyMessage
    finish_reason: str
    logprobs: ChatLogprobs | None = None
    artangram: Exact | UnsetType = UNSET


class TextChoice(Struct, frozen=True, kw_only=True):
    index: int
    text: str
    finish_reason: str | None
    logprobs: TextLogprobs | None = None
    artangram: Exact | UnsetType = UNSET


class CallDelta(ToolCall, kw_only=True):
    index: int


class Delta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    tool_calls: list[CallDelta] | None = None


class DeltaChoice(Struct, frozen=True, kw_only=True):
    index: int
    delta: Delta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    artangram: Exact | UnsetType = UNSET


class Answer(Struct, frozen=True, kw_only=True):
    """A whole answer, or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[ChatChoice | TextChoice | DeltaChoice]
    usage: Usage | None = None


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
        usage: Usage | None = None,
    ) -> Answer:
        return Answer(
            id=self.id,
            object=kind,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=usage,
        )


class Model(Struct, frozen=True, kw_only=True):
    id: str
    created: int
    max_model_len: int | None
    object: str = "model"
    owned_by: str = "artangram"


class Models(Struct, frozen=True, kw_only=True):
    data: list[Model]
    object: str = "list"


class Generated(Struct, frozen=True, kw_only=True):
    """A whole answer in tokens."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    spans: tuple[VersionSpan, ...]
    finish: FinishReason
    prompt_tokens: int


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as it can be looked at: `lines` are its main line and its forks."""

    id: str
    task: str
    oldest_version: int | None
    lines: list[tuple[Segment, ...]]


def usage_of(replies: Sequence[Reply], *, choices: int) -> Usage:
    """Of all prompts, each counted once however many choices it had, and all answers."""
    prompt = sum(reply.prompt_tokens for reply in replies) // choices
    completion = sum(len(reply.token_ids) for reply in replies)
    return Usage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )


def generated(reply: Reply) -> Generated:
    return Generated(
        token_ids=reply.token_ids,
        logprobs=reply.logprobs,
        spans=reply.spans,
        finish=reply.finish,
        prompt_tokens=reply.prompt_tokens,
    )


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[float]
) -> ChatLogprobs:
    found = []
    for token_id, logprob in zip(token_ids, logprobs, strict=True):
        text = tokenizer.decode([token_id])
        found.append(TokenLogprob(token=text, logprob=logprob, bytes=list(text.encode())))
    return ChatLogprobs(content=found)


def text_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[float]
) -> TextLogprobs:
    texts = [tokenizer.decode([token_id]) for token_id in token_ids]
    return TextLogprobs(tokens=texts, token_logprobs=list(logprobs))


def exact(reply: Reply, prompt: tuple[int, ...]) -> Exact:
    return Exact(prompt_token_ids=prompt, token_ids=reply.token_ids, weight_versions=reply.spans)
