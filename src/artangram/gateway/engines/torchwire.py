"""What an embedded engine's worker and its client say to each other over a link.

- The first ask is `OpenEngine`; it is answered when the model is loaded.
- `Add`, `Read` and `Abort` are told, in a stream of their own for each request. What was begun has
  an end in the news. The other commands are asked.
- A request goes by its stream's number: names may come again, numbers do not.
- News are told several at once.
"""

import msgspec
from msgspec import Struct

from artangram.gateway.engines.protocol import Cache, EngineRequest, FinishReason, Stats, TokenChunk
from artangram.link import LinkTerms

VERSION = 1


class TorchEngineSettings(Struct, frozen=True, kw_only=True):
    """What an embedded engine is made of."""

    directory: str
    """Of the model."""
    num_slots: int = 64
    """Requests that run side by side, and sessions whose keys are kept."""
    max_context: int | None = None
    """Fewer positions than the model knows need less memory."""
    version: int = 0
    seed: int = 0
    num_threads: int = 1
    """Of an engine in a process of its own: more than one rarely helps a small model."""


class Add(Struct, frozen=True, tag="add"):
    stream: int
    request: EngineRequest
    cache: Cache | None = None
    """What another engine has read of it."""


class Read(Struct, frozen=True, tag="read"):
    """Read the prompt, sample nothing, and leave what was read at `path`."""

    stream: int
    request: EngineRequest
    path: str


class Abort(Struct, frozen=True, tag="abort"):
    stream: int


class OpenEngine(Struct, frozen=True, tag="open"):
    """Load the model. Answered with `EngineReady`, refused with `BadInput`."""

    settings: TorchEngineSettings


class Pause(Struct, frozen=True, tag="pause"):
    """Answered when all that was sampled before has been told."""


class Resume(Struct, frozen=True, tag="resume"):
    pass


class Load(Struct, frozen=True, tag="load"):
    """Refused with `BadInput` for weights that do not fit."""

    version: int
    path: str


EngineCommand = OpenEngine | Add | Read | Abort | Pause | Resume | Load


class EngineReady(Struct, frozen=True):
    """The model is loaded."""

    max_context: int
    vocab_size: int
    cache_kind: str = ""


class WorkerFailed(Struct, frozen=True, tag="failed"):
    """The worker cannot go on; its last news."""

    reason: str


class Sampled(Struct, frozen=True, tag="sampled"):
    stream: int
    chunk: TokenChunk


class StreamEnded(Struct, frozen=True, tag="ended"):
    stream: int
    reason: FinishReason


class Handed(Struct, frozen=True, tag="handed"):
    """What was to be read is there."""

    stream: int
    cache: Cache


class StatsReply(Struct, frozen=True, tag="counted"):
    stats: Stats


News = WorkerFailed | Sampled | StreamEnded | Handed | StatsReply

worker_terms: LinkTerms[EngineCommand] = LinkTerms(
    name="embedded engine", version=VERSION, decode=msgspec.msgpack.Decoder(EngineCommand).decode
)


def client_terms(silence_s: float | None) -> LinkTerms[list[News]]:
    decode = msgspec.msgpack.Decoder(list[News]).decode
    return LinkTerms(name="embedded engine", version=VERSION, decode=decode, silence_s=silence_s)
