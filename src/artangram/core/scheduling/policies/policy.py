"""A scheduling policy: which lane stands in front of which kind of pool."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from artangram.core.scheduling.policies.base import Lane, LaneContext, Ticket
from artangram.core.scheduling.policies.gpulane import GpuLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.ranking import NodeUse
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.pools.gpu import GpuPool
from artangram.core.scheduling.pools.quota import QuotaPool


class QuotaLane(Lane, Protocol):
    """A lane over an API that may ask for a pause."""

    def throttled(self, until: float) -> None:
        """The API takes no call before `until`."""

    def lends_at(self, ticket: Ticket, units: int, now: float) -> float | None:
        """When time alone lets it lend `units` to `ticket`; `None` if calls have to end first."""


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """One idea per kind of pool. Built by name in `catalog`."""

    name: str
    cpu: Callable[[CpuNode, LaneContext, NodeUse], Lane]
    gpu: Callable[[GpuPool, LaneContext, FairUsage], GpuLane]
    quota: Callable[[QuotaPool, LaneContext, FairUsage], QuotaLane]
    functions: Callable[[FunctionPool, LaneContext, FairUsage], Lane]
    request_milli: int = 0
    """Thousandths of a core reserved for each trajectory while it lives: the request of a pod."""
    has_control_plane: bool = False
    """Are sandboxes created by a control plane with a limited rate?"""
