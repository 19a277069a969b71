"""Stateless functions: warm slots first, cold ones up to the ceiling, then a queue."""

from artangram.core.scheduling.lease import Allocation, FunctionSlots
from artangram.core.scheduling.policies.base import LaneContext
from artangram.core.scheduling.policies.counted import CountedLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.pools.functions import FunctionPool


class SlotLane(CountedLane):
    """The queue in front of function slots that scale from zero."""

    def __init__(self, pool: FunctionPool, context: LaneContext, served: FairUsage) -> None:
        super().__init__(pool, context, served)
        self._cold_s = pool.cold_s

    def _prepare_s(self, allocation: Allocation) -> float:
        assert isinstance(allocation, FunctionSlots)
        return self._cold_s if allocation.cold else 0.0
