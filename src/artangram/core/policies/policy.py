"""A scheduling policy: which lane stands in front of which kind of pool."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from artangram.core.policies.base import Desk, Lane
from artangram.core.policies.gpulane import GpuLane
from artangram.core.policies.queue import Served
from artangram.core.pools.cpu import CpuNode
from artangram.core.pools.functions import FunctionPool
from artangram.core.pools.gpu import GpuPool
from artangram.core.pools.quota import QuotaPool


class QuotaLane(Lane, Protocol):
    """A lane over an API that may ask for a pause."""

    def throttled(self, until: float) -> None:
        """The API takes no call before `until`."""

    def lends_at(self, units: int, now: float) -> float | None:
        """When time alone lets it lend `units`; `None` if calls have to end first."""


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """One idea per kind of pool. Built by name in `catalog`."""

    name: str
    cpu: Callable[[CpuNode, Desk, Served], Lane]
    gpu: Callable[[GpuPool, Desk, Served], GpuLane]
    quota: Callable[[QuotaPool, Desk, Served], QuotaLane]
    functions: Callable[[FunctionPool, Desk, Served], Lane]
    request_milli: int = 0
    """Thousandths of a core reserved for each trajectory while it lives: the request of a pod."""
    has_control_plane: bool = False
    """Are sandboxes created by a control plane with a limited rate?"""
