"""What an embedded engine's worker and its owner say to each other, in a thread or over a socket.

- Orders arrive in order. `Add`, `Read` and `Abort` are not answered, but what was begun has an end
  in the news; the others are answered, by `CommandDone` or `CommandRefused` with their number.
- A request goes by its stream's number: names may come again, numbers do not.
- A frame is its length (four bytes, big-endian) and a msgpack list of records.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from artangram.gateway.engines.protocol import Cache, EngineRequest, FinishReason, Stats, TokenChunk


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


class Pause(Struct, frozen=True, tag="pause"):
    number: int


class Resume(Struct, frozen=True, tag="resume"):
    number: int


class Load(Struct, frozen=True, tag="load"):
    number: int
    version: int
    path: str


class PingEngine(Struct, frozen=True, tag="ping"):
    number: int


class LeaveEngine(Struct, frozen=True, tag="leave"):
    """The last order: the worker ends."""


Order = Add | Read | Abort | Pause | Resume | Load | PingEngine | LeaveEngine


class EngineReady(Struct, frozen=True, tag="ready"):
    """The model is loaded; the first news of a worker."""

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


class CommandDone(Struct, frozen=True, tag="done"):
    number: int


class CommandRefused(Struct, frozen=True, tag="refused"):
    number: int
    problem: str


class StatsReply(Struct, frozen=True, tag="counted"):
    stats: Stats


News = (
    EngineReady
    | WorkerFailed
    | Sampled
    | StreamEnded
    | Handed
    | CommandDone
    | CommandRefused
    | StatsReply
)

_HEAD_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode


def frame(records: Sequence[TorchEngineSettings | Order | News]) -> bytes:
    body = _encode(records)
    return len(body).to_bytes(_HEAD_BYTES, "big") + body


class FrameReader:
    """Bytes as they come; their bodies when they are whole."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def fed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` made whole."""
        self._bytes += data
        found: list[bytes] = []
        while len(self._bytes) >= _HEAD_BYTES:
            end = _HEAD_BYTES + int.from_bytes(self._bytes[:_HEAD_BYTES], "big")
            if len(self._bytes) < end:
                break
            found.append(bytes(self._bytes[_HEAD_BYTES:end]))
            del self._bytes[:end]
        return found
