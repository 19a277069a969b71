"""What lanes in front of a CPU node share: cores that one action has alone.

A lane adds the idea: who starts when, and how wide.
"""

from artangram.core.scheduling.lease import Allocation, Cores
from artangram.core.scheduling.policies.base import Lane, LaneContext, Ticket
from artangram.core.scheduling.pools.cpu import CpuNode


class CpuLane(Lane):
    """The cores of one node: taken, lent and given back."""

    def __init__(self, node: CpuNode, context: LaneContext) -> None:
        self.wake_at: float | None = None
        self._node = node
        self._context = context

    def give_back(self, ticket: Ticket, now: float) -> None:
        assert isinstance(ticket.allocation, Cores)
        self._node.give_back(ticket.allocation.cores)

    def lends(self, units: int, now: float) -> bool:
        return units <= self._node.free

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        return Cores(self._node.resource, self._node.id, self._node.take(units))

    def take_back(self, allocation: Allocation, now: float) -> None:
        assert isinstance(allocation, Cores)
        self._node.give_back(allocation.cores)

    def _start_on(self, ticket: Ticket, units: int, now: float, *, workers: int) -> None:
        """Run `ticket`, whose further resources are seized, on `units` free cores."""
        node = self._node
        cores = Cores(node.resource, node.id, node.take(units))
        self._context.start(ticket, cores, workers=workers, prepare_s=ticket.prepare_s, now=now)
