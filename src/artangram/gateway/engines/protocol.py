"""The contract of an engine: one replica of the model that samples tokens.

- Every request ends exactly once, in a `Finish`; its chunks come in order before it.
- Adding or aborting one request never stalls the others.
- While paused nothing is sampled; requests that were running or come meanwhile continue after
  `resume`, under the weights that are live then. Each token carries the version that sampled it.
- `load` swaps all weights or none: when it raises, the old version is still live. The caller pauses
  first.
- An engine that died or was closed raises `EngineGone` from every verb but `stats`, and from every
  running stream. `crash` makes it so, for code that knows that it hangs.
- A request that can never run raises `BadInput` from its stream; see `refuse_unfit`. An answer that
  fills the context ends with `LENGTH`.

Some engines also implement `Handover`: one reads a prompt, and another of its kind continues from
there.

- A cache is valid for its own prompt under its own version. An engine that gets another one, or one
  that is gone, reads the prompt itself: the answer is the same, only later.
- Handing over samples nothing, so every token has the version of the engine that gave it.
"""

from collections.abc import AsyncGenerator, Collection
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from artangram.core.errors import BadInput, InfraFailed


class EngineGone(InfraFailed):
    """The engine is gone, with all its requests."""


class BadWeights(InfraFailed):
    """A version could not be loaded; the one before is still live."""


class Sampling(Struct, frozen=True, kw_only=True):
    """How the next tokens are chosen."""

    max_tokens: int
    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    top_k: int = 0
    """Only the likeliest ones; 0 for all."""
    min_p: float = 0.0
    """Only tokens that have at least this share of the likeliest one's probability."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of a token that the answer has already."""
    frequency_penalty: float = 0.0
    """The same, as often as the answer has it."""
    repetition_penalty: float = 1.0
    """Divides the logit of a token that prompt or answer have; multiplies it if it is negative."""
    logit_bias: dict[int, float] = {}
    """Added to the logits of tokens."""
    json_schema: str = ""
    """The answer is JSON that follows it, as only some engines can ensure."""
    stop_ids: tuple[int, ...] = ()
    """Any of these ends the answer; it is part of it."""
    seed: int | None = None
    top_logprobs: int = 0
    """Tell this many of the likeliest tokens beside each sampled one."""

    @property
    def shaping(self) -> tuple[str, ...]:
        """Parameters by which tokens come from another distribution than the model's at
        `temperature`: no trainer can score them."""
        plain = Sampling(max_tokens=1)
        return tuple(name for name in SHAPING if getattr(self, name) != getattr(plain, name))


SHAPING = (
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "json_schema",
)
MOST_TOP_LOGPROBS = 20
MOST_BIAS = 100.0
_BOUNDS = {
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.01, 100.0),
    "top_k": (0, 2**31 - 1),
    "top_logprobs": (0, MOST_TOP_LOGPROBS),
}
_CALLED = {"json_schema": "response_format"}
"""Names that callers know, where they differ."""


class EngineRequest(Struct, frozen=True, kw_only=True):
    """Continue these tokens."""

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling
    session: str = ""
    """Requests of one session share a growing prefix, so the same replica is best."""
    num_sampled: int = 0
    """Of the prompt's last tokens, which another replica sampled for this answer."""


TEMPERATURES = (1e-4, 100.0)
"""Beyond, logits divided by it are all equal or not finite."""


def refuse_unfit(
    request: EngineRequest,
    *,
    max_context: int,
    vocab_size: int | None = None,
    lacks: Collection[str] = (),
    checked: int = 0,
) -> None:
    """Raise `BadInput` for a request that no weights could answer, or that needs a parameter of
    `Sampling` that the engine lacks.

    The first `checked` tokens of the prompt were in a request before it.
    """
    prompt, sampling = request.prompt, request.sampling
    if not prompt:
        raise BadInput("prompt", "is empty", "begin with at least one token")
    if len(prompt) >= max_context:
        fix = f"leave room for an answer within {max_context}"
        raise BadInput("prompt", f"has {len(prompt)} tokens", fix)
    new = prompt[checked:] or prompt
    if min(new) < 0 or (vocab_size is not None and max(new) >= vocab_size):
        known = "0 or more" if vocab_size is None else f"0 to {vocab_size - 1}"
        raise BadInput("prompt", "holds unknown tokens", f"use {known}")
    if not 1 <= sampling.max_tokens < 2**31:
        raise BadInput("max_tokens", f"is {sampling.max_tokens}", "ask for at least one")
    least, most = TEMPERATURES
    if sampling.temperature != 0 and not least <= sampling.temperature <= most:
        fix = f"use 0, or {least:g} to {most:g}"
        raise BadInput("temperature", f"is {sampling.temperature}", fix)
    if not 0 < sampling.top_p <= 1:
        raise BadInput("top_p", f"is {sampling.top_p}", "use a share above 0, at most 1")
    if sampling.seed is not None and not -(2**63) <= sampling.seed < 2**63:
        raise BadInput("seed", f"is {sampling.seed}", "use a number of 64 bits")
    refuse_unfit_shape(sampling, vocab_size=vocab_size)
    for name in lacks:
        if getattr(sampling, name):
            fix = "leave it out, or serve the model with a vLLM that can"
            raise BadInput(_CALLED.get(name, name), "is beyond the engine of this model", fix)


def refuse_unfit_shape(sampling: Sampling, *, vocab_size: int | None = None) -> None:
    """Raise `BadInput` for what no engine could obey."""
    for name, (lowest, highest) in _BOUNDS.items():
        if not lowest <= (value := getattr(sampling, name)) <= highest:
            raise BadInput(name, f"is {value:g}", f"use {lowest:g} to {highest:g}")
    for token, bias in sampling.logit_bias.items():
        if token < 0 or (vocab_size is not None and token >= vocab_size):
            raise BadInput("logit_bias", f"names the unknown token {token}", "leave it out")
        if not -MOST_BIAS <= bias <= MOST_BIAS:
            fix = f"use {-MOST_BIAS:g} to {MOST_BIAS:g}"
            raise BadInput("logit_bias", f"of token {token} is {bias:g}", fix)


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


Alternatives = tuple[tuple[int, float], ...]
"""The likeliest tokens in place of a sampled one and their logprobs, the likeliest first."""


class TokenChunk(Struct, frozen=True, gc=False):
    """Some tokens, all sampled by one version."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under the weights that sampled them, at the temperature they were sampled at (at 1 for the
    likeliest), with penalties and biases, before `top_p`, `top_k` and `min_p` cut. Scored alike,
    the ratio of weights that did not change is 1."""
    version: int
    tops: tuple[Alternatives, ...] = ()
    """Of each token, if the request asks for `top_logprobs`."""

    def part(self, start: int, stop: int) -> "TokenChunk":
        """Some of its tokens."""
        some = slice(start, stop)
        return TokenChunk(self.token_ids[some], self.logprobs[some], self.version, self.tops[some])

    def joined(self, new: "TokenChunk") -> "TokenChunk":
        """With tokens after its own, under its version."""
        return TokenChunk(
            self.token_ids + new.token_ids,
            self.logprobs + new.logprobs,
            self.version,
            self.tops + new.tops,
        )


class Finish(Struct, frozen=True, gc=False):
    reason: FinishReason
    found: int | None = None
    """Tokens of the prompt that were in the engine's prefix cache; `None` if it does not say."""


class Stats(Struct, frozen=True, kw_only=True):
    """A snapshot of an engine's counters."""

    version: int
    running: int
    waiting: int
    is_paused: bool
    prompt_tokens: int
    """Ever prefilled; cached prefixes not counted again."""
    sampled_tokens: int
    taken_tokens: int = 0
    """Of prompts that others have read and handed over."""


class Cache(Struct, frozen=True, kw_only=True, gc=False):
    """What an engine has read of a prompt, for others of its kind."""

    version: int
    tokens: int
    """From the first on; the engine that takes over reads the last one of the prompt itself."""
    num_bytes: int
    """0 if the engine does not report it."""
    move_s: float
    """That the transfer took."""
    handle: str
    """Where that is; only engines of its kind understand it."""


class Engine(Protocol):
    """A handful of verbs; see the module."""

    @property
    def name(self) -> str: ...

    @property
    def max_context(self) -> int:
        """Prompt and answer together."""
        ...

    def stream(self, request: EngineRequest) -> AsyncGenerator[TokenChunk | Finish, None]:
        """Chunks as they are sampled, then one `Finish`. Closing the iterator aborts it."""
        ...

    async def abort(self, request_id: str) -> None:
        """End one request; its stream finishes with `ABORT`. Nothing happens if it has ended."""
        ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def load(self, version: int, path: Path) -> None:
        """Make the weights in the directory `path` live as `version`. Raises `BadWeights`."""
        ...

    def stats(self) -> Stats: ...

    def crash(self, reason: str) -> None:
        """End all requests at once, even if the engine hangs. It still has to be closed."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class Handover(Protocol):
    """The verbs of an engine whose caches others understand; see the module."""

    @property
    def cache_kind(self) -> str:
        """Engines exchange caches with those of the same kind; empty if it does not."""
        ...

    def handing(self, request: EngineRequest) -> AbstractAsyncContextManager[Cache | None]:
        """Read the prompt. The cache is there while the block lasts; `None` if it was aborted."""
        ...

    def stream(
        self, request: EngineRequest, *, cache: Cache | None = None
    ) -> AsyncGenerator[TokenChunk | Finish, None]:
        """As an engine does, from `cache` on if that fits."""
        ...
