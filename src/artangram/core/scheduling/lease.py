"""The right to an allocation, and the allocation: which cores, which devices, which slot."""

from msgspec import Struct

from artangram.core.ids import ActionId, NodeId, Resource, ServiceId


class Cores(Struct, frozen=True, gc=False, tag="cores"):
    """Concrete cores of one node, exclusive to one action."""

    resource: Resource
    node: NodeId
    cores: tuple[int, ...]

    @property
    def units(self) -> int:
        return len(self.cores)


class CoreShare(Struct, frozen=True, gc=False, tag="core_share"):
    """A place on a node whose kernel shares its cores: what pods get instead of cores.

    Contending shares are served in proportion to `weight_milli`, none above `limit_milli`
    thousandths of a core.
    """

    resource: Resource
    node: NodeId
    weight_milli: int
    limit_milli: int

    @property
    def units(self) -> int:
        return max(1, self.limit_milli // 1000)


class Devices(Struct, frozen=True, gc=False, tag="devices"):
    """An aligned run of devices on one node with a service on it.

    `restored` says that the service was not resident and has to be loaded; `evicted` names the
    services whose memory must be freed first.
    """

    resource: Resource
    node: NodeId
    first: int
    degree: int
    service: ServiceId
    restored: bool = False
    evicted: tuple[ServiceId, ...] = ()

    @property
    def units(self) -> int:
        return self.degree


class Calls(Struct, frozen=True, gc=False, tag="calls"):
    """Some calls of an outside API, counted against its quota."""

    resource: Resource
    units: int
    tokens: int = 0
    """What they are taken to use, where the API limits tokens."""


HEAD = NodeId("")
"""Stands for the machine of the orchestrator, where a lease names no node."""


class FunctionSlots(Struct, frozen=True, gc=False, tag="slots"):
    """Stateless function slots; `cold` of them have to be started first."""

    resource: Resource
    units: int
    cold: int
    node: NodeId = HEAD


Allocation = Cores | CoreShare | Devices | Calls | FunctionSlots


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """An action's right to run on its allocations. It ends exactly once."""

    action_id: ActionId
    allocations: tuple[Allocation, ...]
    """The first one is of the resource that decides where and how fast the action runs."""
    workers: int = 1
    """The degree told to the action: it may run on fewer units for a while, never on more."""
    prepare_s: float = 0.0
    """What making the lease real is expected to take: a sandbox, a restore, a cold start."""
    attempt: int = 1
    pace: float = 1.0
    """Seconds of the action's time limit that pass in one second on these allocations."""


def is_on(allocation: Allocation, node: NodeId | None) -> bool:
    """Is it a part of `node`?"""
    return not isinstance(allocation, Calls) and allocation.node == node
