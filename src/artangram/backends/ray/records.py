"""What passes between the head, its watch process, the wardens and callers on a Ray cluster."""

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput

NAMESPACE = "artangram"
"""Of our actors, and of our key in Ray's key-value store."""


class AgentOrder(Struct, frozen=True, kw_only=True):
    """The agent that a warden keeps running."""

    node: str
    host: str
    port: int
    fingerprint: str
    token: str
    cores: int
    gpus: float = 0.0
    """That its warden claims; the agent has them in its environment."""
    patience_s: float
    """How long the agent stays without an orchestrator."""


class AgentState(Struct, frozen=True, kw_only=True):
    """What a warden sees of its agent."""

    pid: int | None = None
    is_adopted: bool = False
    """Did it run before its warden did?"""
    has_left: bool = False
    """Was it drained or told to stop? Then it is not started again."""
    trouble: str = ""
    """Its last line, if it ended otherwise; or what the user should know."""


class HeadRecord(Struct, frozen=True, kw_only=True, tag="head"):
    """Where the head is, as kept in Ray's key-value store."""

    url: str
    token: str
    cluster: str
    """See `agentlock.cluster_of`."""


class WatchSettings(Struct, frozen=True, kw_only=True, tag="settings"):
    """The first line to the watch process."""

    address: str
    """As `ray.init` takes it: auto, HOST:PORT or ray://HOST:PORT."""
    cluster: str
    cpus: int | None = None
    """To claim on each node; all of its CPUs by default."""
    with_gpu_nodes: bool = False
    with_gpus: bool = False
    placement_group: str | None = None
    """Claim its bundles and nothing else: an id, a name, or NAMESPACE/NAME."""


class HeadServes(Struct, frozen=True, kw_only=True, tag="serve"):
    """The head serves: tell callers where, and bring the agents up."""

    url: str
    token: str
    host: str
    port: int
    fingerprint: str
    join_token: str


class CloseWatch(Struct, frozen=True, tag="close"):
    """End the agents and the wardens, give the claims back, and exit."""


class Attached(Struct, frozen=True, kw_only=True, tag="attached"):
    """The watch process reached Ray."""

    address: str | None
    """Of this machine in the Ray cluster; `None` if it does not belong to it."""
    cpus: int
    """That Ray has on this machine."""


class Said(Struct, frozen=True, tag="said"):
    """A line for the user."""

    text: str


class Failed(Struct, frozen=True, tag="failed"):
    """The process cannot go on; see `BadInput`."""

    field: str
    problem: str
    fix: str

    @classmethod
    def by(cls, error: BadInput) -> "Failed":
        return cls(error.field, error.problem, error.fix)

    def error(self) -> BadInput:
        return BadInput(self.field, self.problem, self.fix)


ToWatch = WatchSettings | HeadServes | CloseWatch
FromWatch = Attached | Said | Failed
Answer = HeadRecord | Failed


def line(record: ToWatch | FromWatch | Answer) -> bytes:
    """As it is written to a pipe."""
    return msgspec.json.encode(record) + b"\n"
