"""The description of a cluster: its pools, its services and what jobs may take of it.

Descriptions only. The books that change with every lease are in `pools`.
"""

import math
from typing import Literal

from msgspec import Struct, field

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, NodeId, Resource, ServiceId

NODE_LABEL = "artangram/node"
"""Every node has this label with its own name; a selector that asks for it names one node."""


class NodeSpec(Struct, frozen=True, kw_only=True):
    """What one node of a CPU pool has. Nodes of one pool may differ."""

    cores: int
    memory_mb: int
    numa: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    """What selectors ask for."""
    images: tuple[str, ...] = ()
    """The images that need not be fetched there."""
    slots: dict[Resource, int] = field(default_factory=dict)
    """Function slots that it brings, by pool."""


class CpuSpec(Struct, frozen=True, kw_only=True, tag="cpu"):
    """Nodes that run sandboxes."""

    nodes: int
    """How many there are from the beginning; others join, and these leave, by events."""
    cores: int
    memory_mb: int
    numa: int = 1
    squeeze_penalty: float = 0.0
    """Speed an action loses while it runs on fewer cores than it has workers, as a share."""
    create_s: float = 0.0
    """What the first action of a trajectory pays for its sandbox."""
    overhead_s: float = 0.0
    """What every action pays for dispatch."""
    pods_per_s: float = 20.0
    """How many pods a control plane creates per second; only policies with pods pay for it."""
    labels: dict[str, str] = field(default_factory=dict)
    """What its nodes have that selectors ask for; a node that joins may bring others."""

    def node(self) -> NodeSpec:
        """A node that joins without a spec of its own."""
        return NodeSpec(
            cores=self.cores, memory_mb=self.memory_mb, numa=self.numa, labels=self.labels
        )


class GpuSpec(Struct, frozen=True, kw_only=True, tag="gpu"):
    """Nodes whose devices hold model services."""

    nodes: int
    devices: int
    memory_mb: int
    """Of one device."""
    host_memory_mb: int = 0
    """Of one node, for the copies that services are restored from; 0 means enough for all."""
    restore_mb_per_s: float = 16_000.0
    """Into one device. A service of degree d restores d shards at once."""
    cold_mb_per_s: float = 1_000.0
    """From storage, when the node holds no host copy (`load-per-call`)."""
    overhead_s: float = 0.0


class CallWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several limits of an API: the most calls, or tokens, in any window of a length."""

    limit: int
    window_s: float
    unit: Literal["calls", "tokens"] = "calls"

    def __post_init__(self) -> None:
        if self.limit < 1 or not 0 < self.window_s < math.inf:
            problem = f"{self.limit} {self.unit} in {self.window_s:g} s is not a limit"
            fix = f"give whole {self.unit} from 1, and seconds above 0"
            raise BadInput("windows", problem, fix)


class QuotaSpec(Struct, frozen=True, kw_only=True, tag="quota"):
    """An outside API that limits its callers."""

    concurrency: int | None = None
    """The most calls under way at once."""
    limit: int | None = None
    """The most calls in any window of `window_s`."""
    window_s: float = 60.0
    windows: tuple[CallWindow, ...] = ()
    """Further limits, all of which hold."""
    overhead_s: float = 0.0


class FunctionsSpec(Struct, frozen=True, kw_only=True, tag="functions"):
    """Stateless function slots that scale from zero."""

    ceiling: int
    cold_s: float = 0.5
    idle_s: float = 60.0
    """An idle slot is given up after so long."""
    overhead_s: float = 0.0


PoolSpec = CpuSpec | GpuSpec | QuotaSpec | FunctionsSpec


class ServiceSpec(Struct, frozen=True, kw_only=True):
    """A model service: its weights are the same on every call, so evicting it only frees memory."""

    pool: Resource
    weights_mb: int
    degrees: tuple[int, ...] = (1,)
    runtime_mb: int = 0
    """What it needs on each device while it runs, beside its share of the weights."""
    batch: int = 1
    """How many actions one resident copy serves at a time."""
    batch_cost: float = 0.1
    """How much each further action of a batch slows down all of it, as a share."""
    restore_s: float | None = None
    """What a restore was measured to take; by its weights and the pool's rate if unsaid."""

    def shard_mb(self, degree: int) -> int:
        """Weights on each of `degree` devices."""
        return -(-self.weights_mb // degree)

    def device_mb(self, degree: int) -> int:
        """All it needs on each of `degree` devices to run."""
        return self.shard_mb(degree) + self.runtime_mb


class JobLimits(Struct, frozen=True, kw_only=True):
    """What a job always gets, and what it never exceeds, of each pool."""

    min_memory_mb: int = 0
    """Kept free for it when others ask, and it goes first until it holds so much."""
    max_memory_mb: int | None = None
    min_trajectories: int = 0
    """The job goes first until this many of its trajectories have a node."""
    max_trajectories: int | None = None
    min_cores: int = 0
    """Its actions start first, on cores that others run on if need be, until it holds this many."""
    max_cores: int | None = None
    min_calls: int = 0
    """Of each API and of function slots: kept free for it, and it goes first until it has them."""
    max_calls: int | None = None


class ClusterSpec(Struct, frozen=True, kw_only=True):
    pools: dict[Resource, PoolSpec]
    services: dict[ServiceId, ServiceSpec] = field(default_factory=dict)
    shares: dict[JobId, float] = field(default_factory=dict)
    """What each job is entitled to when resources are short, relative to others; 1 if unsaid."""
    limits: dict[JobId, JobLimits] = field(default_factory=dict)


def node_ids(resource: Resource, count: int) -> list[NodeId]:
    """The names of the nodes of a pool."""
    return [NodeId(f"{resource}-{index}") for index in range(count)]


def expect_pool(pools: dict[Resource, PoolSpec], resource: Resource, *kinds: type) -> None:
    """`BadInput` unless `resource` is a pool of one of these kinds."""
    if not isinstance(pools.get(resource), kinds):
        known = sorted(name for name, spec in pools.items() if isinstance(spec, kinds))
        raise BadInput(
            "resource",
            f"the cluster has no such pool {resource!r}",
            f"name one of: {', '.join(known)}" if known else "this cluster has none of its kind",
        )
