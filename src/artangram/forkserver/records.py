"""What a fork server and its zygote say to each other.

Each record is one msgpack packet on a SEQPACKET socket, which keeps packets apart and carries file
descriptors: `Fork` comes with the new process's end of its connection.
"""

import msgspec
from msgspec import Struct

PACKET_BYTES = 64 << 10
"""The longest packet; a record holds a number or the name of a module."""


class Fork(Struct, frozen=True, tag="fork"):
    """Fork process `number`; its connection is attached."""

    number: int


class Kill(Struct, frozen=True, tag="kill"):
    """Kill a process and everything in its process group; does nothing if it has ended."""

    number: int


class Preload(Struct, frozen=True, tag="preload"):
    """Import a module for all later forks."""

    module: str


class ZygoteReady(Struct, frozen=True, tag="ready"):
    """The zygote has imported its target and the modules it was started with."""


class ProcessStarted(Struct, frozen=True, tag="started"):
    number: int
    pid: int


class ProcessEnded(Struct, frozen=True, tag="ended"):
    """A process is gone and its memory is free."""

    number: int
    status: int
    """Its exit code; a signal's number, negated."""
    problem: str = ""
    """Why it could not be forked."""


encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(Fork | Kill | Preload).decode
decode_report = msgspec.msgpack.Decoder(ZygoteReady | ProcessStarted | ProcessEnded).decode
