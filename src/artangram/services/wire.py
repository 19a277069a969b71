"""What a host and its replicas say to each other, and how it is framed.

A frame is its length (four bytes, big-endian) and a msgpack record.
"""

import asyncio
import socket
from typing import TypeVar

import msgspec
from msgspec import Struct

from artangram.services.devices import Answer

T = TypeVar("T")

OUT_OF_MEMORY = 3
"""Exit code of a replica that needed more than it may have."""

MOST_LEFT_MB = 64.0
"""A process that has more left of its past is not used again: no service answers for that."""


class ReplicaSpec(Struct, frozen=True, kw_only=True):
    """All a replica needs to know to begin; the first it hears from its host."""

    loader: str
    options: bytes
    """JSON."""
    files: tuple[str, ...]
    cores: tuple[int, ...] = ()
    """Where it may run; anywhere if empty."""
    threads: int = 1
    limit_mb: int
    environ: dict[str, str] = {}
    device: str = "cpu"
    """Where torch puts the model."""
    example: bytes | None = None
    """A payload to answer before it says that it is loaded; JSON."""
    batch: int = 1
    """How many of the example to answer at once."""
    may_follow: bool = False
    """It may take over a process that has dropped another model of its loader, and leave one."""


class Loaded(Struct, frozen=True, tag="loaded"):
    load_s: float
    used_mb: int
    is_forkable: bool
    """Importing the loader's module started no thread, so a zygote may import it."""
    batch_cost: float | None = None
    """What another payload adds to a batch, as a share of one alone; known with an example."""


class LoaderRefused(Struct, frozen=True, tag="refused"):
    """The loader cannot be used: which field of the service is wrong, and how to mend it."""

    field: str
    problem: str
    fix: str


class Answers(Struct, frozen=True, tag="answers"):
    answers: list[Answer]


class OutOfMemory(Struct, frozen=True, tag="out_of_memory"):
    problem: str


class ModelDropped(Struct, frozen=True, tag="dropped"):
    """The model is gone; the process waits for another spec."""

    left_mb: float
    """Memory that it has now and had not before its first model."""


Report = Loaded | LoaderRefused | Answers | OutOfMemory | ModelDropped


class Predict(Struct, frozen=True, tag="predict"):
    items: list[bytes]
    """Payloads; JSON."""


class Drop(Struct, frozen=True, tag="drop"):
    """Let go of the model, and wait for another spec."""


Request = Predict | Drop


def frame(message: object) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


async def next_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next frame; `None` at the end of the connection."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class BlockingChannel:
    """Frames over a blocking socket, for processes without a loop."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, message: object) -> None:
        self.connection.sendall(frame(message))

    def receive(self, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
        """The next message; `None` at the end of the connection."""
        head = self._exactly(4)
        body = self._exactly(int.from_bytes(head, "big")) if head else None
        return None if body is None else decoder.decode(body)

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            more = self.connection.recv(min(size - len(data), 1 << 20))
            if not more:
                return None
            data += more
        return bytes(data)
