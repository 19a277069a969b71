"""Requests to a vLLM server and its answers, for tokens in and tokens out.

- `/inference/v1/generate` streams server-sent events. Its last one says which version sampled which
  tokens of the whole answer; before that it is not known.
- A prompt is read for another server by a request for one token, which is discarded; its answer
  has the `kv_transfer_params` for the other server.
- The very last event has no choice and says how much of the prompt was in the prefix cache, if the
  server runs with `--enable-prompt-tokens-details` and found anything.
- Weights are files of safetensors; only their headers are read here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.rollout.trajectory import VersionSpan
from artangram.gateway.engines.flights import name_of
from artangram.gateway.engines.protocol import Alternatives, BadWeights, Cache, EngineRequest

_HEADER_SIZE_BYTES = 8
_MOST_HEADER_BYTES = 2**28


class SamplingParams(Struct, kw_only=True, omit_defaults=True):
    max_tokens: int
    temperature: float
    logprobs: int
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    structured_outputs: dict[str, Any] | None = None
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    ignore_eos: bool = False
    detokenize: bool = True


class GenerateBody(Struct, kw_only=True):
    request_id: str
    token_ids: tuple[int, ...]
    sampling_params: SamplingParams
    stream: bool = True
    stream_options: dict[str, bool] | None = None
    kv_transfer_params: dict[str, Any] | None = None


class TopLogprob(Struct):
    token_id: int
    logprob: float


class Logprob(Struct):
    logprob: float
    top_logprobs: list[TopLogprob] = []

    def tops(self, count: int) -> Alternatives:
        """vLLM has the sampled token first, and then the likeliest ones, perhaps it again."""
        ranked = sorted(self.top_logprobs, key=lambda one: -one.logprob)
        return tuple((one.token_id, one.logprob) for one in ranked[:count])


class Logprobs(Struct):
    content: list[Logprob] | None = None


class Version(Struct):
    version: str
    start: int
    end: int


class GenerateChoice(Struct, kw_only=True):
    token_ids: list[int] | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    weight_versions: list[Version] | None = None


class ErrorInfo(Struct):
    message: str = ""


class PromptDetails(Struct):
    cached_tokens: int | None = None


class Usage(Struct, kw_only=True):
    prompt_tokens: int
    prompt_tokens_details: PromptDetails | None = None

    @property
    def found(self) -> int | None:
        """Tokens of the prompt that were in the cache; `None` where vLLM leaves that out."""
        details = self.prompt_tokens_details
        return None if details is None else details.cached_tokens


class GenerateEvent(Struct, kw_only=True):
    choices: list[GenerateChoice] = []
    usage: Usage | None = None
    error: ErrorInfo | None = None


class VllmGenerated(Struct, kw_only=True):
    """An answer that is not streamed."""

    choices: list[GenerateChoice] = []
    kv_transfer_params: dict[str, Any] | None = None


class Handle(Struct):
    """Where a server finds what another has read, and of which prompt that is."""

    prompt: str
    params: dict[str, Any]
    until: float
    """On the clock of the loop: a later fetch gets other data."""


class VllmModel(Struct):
    max_model_len: int


class VllmModels(Struct):
    data: list[VllmModel]


class VllmError(Struct):
    error: ErrorInfo | None = None


def body_of(request: EngineRequest, *, handle: Handle | None = None) -> bytes:
    sampling = request.sampling
    params = SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        stop_token_ids=sampling.stop_ids,
        seed=sampling.seed,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=sampling.logit_bias,
        structured_outputs={"json": sampling.json_schema} if sampling.json_schema else None,
        # One more: the sampled token takes a place.
        logprobs=sampling.top_logprobs + 1 if sampling.top_logprobs else 0,
        # Only the stop tokens of the request end an answer.
        ignore_eos=True,
        detokenize=False,
    )
    body = GenerateBody(
        request_id=request.id,
        token_ids=request.prompt,
        sampling_params=params,
        stream_options={"include_usage": True},
        kv_transfer_params=None if handle is None else handle.params,
    )
    return msgspec.json.encode(body)


def reading_of(request: EngineRequest) -> bytes:
    """Have the prompt read for another server."""
    params = SamplingParams(
        max_tokens=1, temperature=0.0, logprobs=0, ignore_eos=True, detokenize=False
    )
    body = GenerateBody(
        request_id=request.id,
        token_ids=request.prompt,
        sampling_params=params,
        stream=False,
        kv_transfer_params={"do_remote_decode": True, "do_remote_prefill": False},
    )
    return msgspec.json.encode(body)


def cache_in(body: bytes, request: EngineRequest, *, version: int, until: float) -> Cache | None:
    """What another server must be told; nothing if this one does not hand over."""
    said = msgspec.json.decode(body, type=VllmGenerated)
    if not said.kv_transfer_params or not said.choices:
        return None
    spans = said.choices[0].weight_versions or []
    tokens = len(request.prompt) - 1
    handle = Handle(name_of(request.prompt[:tokens]), said.kv_transfer_params, until)
    return Cache(
        version=int(spans[0].version) if spans else version,
        tokens=tokens,
        num_bytes=0,
        move_s=0.0,
        handle=msgspec.json.encode(handle).decode(),
    )


def handle_for(
    request: EngineRequest, cache: Cache | None, *, version: int, now: float
) -> Handle | None:
    """What a server with this version can use of the cache: vLLM itself takes any."""
    if cache is None or cache.version != version:
        return None
    handle = msgspec.json.decode(cache.handle, type=Handle)
    is_there = now < handle.until and handle.prompt == name_of(request.prompt[:-1])
    return handle if is_there else None


class Events:
    """Bytes as they come; events as they are complete."""

    def __init__(self) -> None:
        self._buffer = b""

    def fed(self, data: bytes) -> Iterator[GenerateEvent]:
        *complete, self._buffer = (self._buffer + data).split(b"\n\n")
        for one in complete:
            content = one.removeprefix(b"data: ")
            if content != b"[DONE]":
                yield _decode(content)


class Usages:
    """What a server says of its prefix cache. vLLM leaves out that it found nothing: a server that
    has ever said what it found counts as one that says it."""

    def __init__(self) -> None:
        self._are_detailed = False

    def found(self, usage: Usage) -> int | None:
        """Tokens of the prompt that were in the cache; `None` if the server does not say."""
        self._are_detailed = self._are_detailed or usage.found is not None
        return usage.found or 0 if self._are_detailed else None


_decode = msgspec.json.Decoder(GenerateEvent).decode


def spans_of(versions: list[Version]) -> list[VersionSpan]:
    return [VersionSpan(int(one.version), one.start, one.end) for one in versions]


class _Config(Struct):
    vocab_size: int | None = None


class _Tensor(Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


Shapes = dict[str, tuple[int, ...]]


def shapes_in(directory: Path) -> Shapes:
    """Names and shapes of the tensors of a directory. Raises `BadWeights` for broken files."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise BadWeights(f"{directory}: there are no weights")
    shapes: Shapes = {}
    for path in files:
        try:
            shapes |= _shapes_of(path)
        except (OSError, msgspec.MsgspecError) as error:
            raise BadWeights(f"{path}: {error}") from error
    return shapes


def vocab_in(directory: Path) -> int | None:
    """How many tokens the model of a directory knows; `None` if it does not say."""
    try:
        config = msgspec.json.decode((directory / "config.json").read_bytes(), type=_Config)
    except (OSError, msgspec.MsgspecError):
        return None
    return config.vocab_size


def _shapes_of(path: Path) -> Shapes:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_HEADER_SIZE_BYTES), "little")
        if length > _MOST_HEADER_BYTES:
            raise BadWeights(f"{path}: has no header")
        header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
    header.pop("__metadata__", None)
    tensors = {name: msgspec.json.decode(raw, type=_Tensor) for name, raw in header.items()}
    end = max((tensor.data_offsets[1] for tensor in tensors.values()), default=0)
    if path.stat().st_size != _HEADER_SIZE_BYTES + length + end:
        raise BadWeights(f"{path}: is cut short or too long")
    return {name: tensor.shape for name, tensor in tensors.items()}
