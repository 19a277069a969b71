"""What a worker and its owner say to each other: frames of a kind and bytes, over a stream socket.

A request is the msgpack of a `WorkerRequest`. A worker greets when it has started, then answers
each request with exactly one frame.
"""

import struct

import msgspec
from msgspec import Struct

STARTED, ANSWER, FAILED, UNKNOWN = b"b", b"a", b"f", b"u"
"""A worker: has started; answers; reports what the function raised; cannot find the function."""

HEAD = struct.Struct(">cQ")


class WorkerRequest(Struct, frozen=True, array_like=True):
    """One call."""

    target: str
    memory_mb: int | None
    body: bytes


encode_request = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(WorkerRequest).decode


def framed(kind: bytes, data: bytes) -> bytes:
    return HEAD.pack(kind, len(data)) + data
