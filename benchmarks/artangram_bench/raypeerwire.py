"""What `bench ray` asks of Ray's side (`raypeer`), and what it answers."""

from msgspec import Struct

from artangram.sandbox.protocol import HostImage

IN_FLIGHT = 64


class NoopRequest(Struct, frozen=True, kw_only=True, tag="noop"):
    """A number of no-ops, as tasks or as calls of actors."""

    count: int
    as_calls: bool


class PeerAction(Struct, frozen=True, kw_only=True):
    argv: list[str]
    cpus: int
    """To ask Ray for."""
    think_s: float
    """Afterwards."""


class TraceRequest(Struct, frozen=True, kw_only=True, tag="trace"):
    """The actions of each trajectory."""

    image: HostImage
    trajectories: list[list[PeerAction]]


class HostRequest(Struct, frozen=True, kw_only=True):
    """One action, for the process that keeps the sandboxes."""

    number: int
    """Of its trajectory."""
    image: HostImage
    argv: list[str]
    cpus: int


class PeerAnswer(Struct, frozen=True, kw_only=True):
    took_s: float
    acts_s: list[float] = []
    failed: int = 0


PeerRequest = NoopRequest | TraceRequest
