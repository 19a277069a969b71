"""How many tokens an answer says it took, as OpenAI's and Anthropic's interfaces write it. Pure."""

import msgspec
from msgspec import Struct


class _TokenCounts(Struct):
    """As OpenAI's and Anthropic's interfaces name them."""

    total_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _WithUsage(Struct):
    usage: _TokenCounts | None = None


_decode = msgspec.json.Decoder(_WithUsage).decode


def tokens_in(body: bytes) -> int | None:
    """Tokens that an answer says it took; `None` if it says nothing."""
    if b'"usage"' not in body:
        return None
    try:
        usage = _decode(body).usage
    except (msgspec.MsgspecError, RecursionError):
        return None
    if usage is None:
        return None
    if usage.total_tokens is not None:
        return max(0, usage.total_tokens)
    parts = (usage.prompt_tokens, usage.completion_tokens, usage.input_tokens, usage.output_tokens)
    said = [max(0, part) for part in parts if part is not None]
    return sum(said) if said else None
