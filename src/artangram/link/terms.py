"""What the two ends of a link agree on, and the hello by which they find out whether they do.

The side that dials says hello first; the side that accepts answers with its own hello, or refuses
with one sentence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from artangram.link.errors import LinkBroken, LinkRefused
from artangram.link.faults import FAULTS, Faults
from artangram.link.frames import MOST_FRAME_BYTES

R = TypeVar("R")
"""The tells and asks that one end hears: a union of records."""

MOST_RECORD_BYTES = 160 << 20
WINDOW_BYTES = 2 << 20
HELLO_PATIENCE_S = 10.0
"""How long a peer may take to say hello, or to answer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms(Generic[R]):
    """One kind of link, as one of its ends sees it."""

    name: str
    version: int
    decode: Callable[[bytes], R]
    """Of the tells and asks that this end hears."""
    faults: Faults = FAULTS
    silence_s: float | None = None
    """How long the peer may be silent until that is reported. Heartbeats are sent three times as
    often; without a limit none are."""
    most_record_bytes: int = MOST_RECORD_BYTES
    """The longest record that this end takes."""
    window_bytes: int = WINDOW_BYTES
    """How much of long records may be under way to this end: what a heartbeat has to wait for."""
    most_queued_bytes: int = 2 * MOST_RECORD_BYTES
    """What may wait in this end for a slow peer."""


class LinkHello(Struct, frozen=True, array_like=True):
    """The first frame of each side."""

    name: str
    version: int
    most_record_bytes: int
    window_bytes: int
    record: msgspec.Raw
    """What the side wants to say about itself."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LinkHello).decode


def hello_of(terms: LinkTerms[R], record: object) -> bytes:
    """The hello of this side, with `record` in it. `ValueError` if it is too long."""
    own = msgspec.Raw(_encode(record))
    limits = (terms.most_record_bytes, terms.window_bytes)
    body = _encode(LinkHello(terms.name, terms.version, *limits, own))
    if len(body) > MOST_FRAME_BYTES:
        raise ValueError(f"a hello of {len(body)} bytes is too long; {MOST_FRAME_BYTES} fit")
    return body


def greeted(terms: LinkTerms[R], body: bytes) -> LinkHello:
    """The hello of the peer. `LinkRefused` if it speaks something else."""
    try:
        hello = _decode(body)
    except msgspec.MsgspecError as error:
        raise LinkBroken(f"the other side did not say hello: {error}") from error
    if (hello.name, hello.version) != (terms.name, terms.version):
        theirs, ours = f"{hello.name} {hello.version}", f"{terms.name} {terms.version}"
        fix = "use the same version of artangram on both sides"
        raise LinkRefused(f"one side speaks {theirs!r} and the other {ours!r}; {fix}")
    return hello
