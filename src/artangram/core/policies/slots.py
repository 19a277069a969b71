"""Stateless functions: warm slots first, cold ones up to the ceiling, then a queue."""

from artangram.core.lease import Allocation, Slots
from artangram.core.policies.base import Desk
from artangram.core.policies.counted import CountedLane
from artangram.core.policies.queue import Served
from artangram.core.pools.functions import FunctionPool


class SlotLane(CountedLane):
    """The queue in front of function slots that scale from zero."""

    def __init__(self, pool: FunctionPool, desk: Desk, served: Served) -> None:
        super().__init__(pool, desk, served)
        self._cold_s = pool.cold_s

    def _prepare_s(self, allocation: Allocation) -> float:
        assert isinstance(allocation, Slots)
        return self._cold_s if allocation.cold else 0.0
