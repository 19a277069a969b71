"""Stateless functions: warm slots first, cold ones up to the ceiling, then a queue."""

from artangram.core.scheduling.lease import Allocation, FunctionSlots
from artangram.core.scheduling.policies.base import LaneContext, Ticket
from artangram.core.scheduling.policies.counted import CountedLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.pools.functions import FunctionPool


class SlotLane(CountedLane):
    """The queue in front of function slots that scale from zero."""

    def __init__(self, pool: FunctionPool, context: LaneContext, served: FairUsage) -> None:
        super().__init__(pool, context, served)
        self._slots = pool
        self._cold_s = pool.cold_s

    def give_back(self, ticket: Ticket, now: float) -> None:
        assert isinstance(ticket.allocation, FunctionSlots), f"{ticket} has no slots"
        self.take_back(ticket, ticket.allocation, now)

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        assert isinstance(allocation, FunctionSlots), f"{allocation} are not slots"
        self._served.units.take(ticket.job, -allocation.units)
        self._slots.give_back(allocation.units, now, node=allocation.node)

    def _prepare_s(self, allocation: Allocation) -> float:
        assert isinstance(allocation, FunctionSlots)
        return self._cold_s if allocation.cold else 0.0
