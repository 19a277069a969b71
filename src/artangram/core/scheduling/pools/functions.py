"""The books of stateless function slots: warm, busy, and how many may still be started.

Slots scale from zero to `ceiling`. A call takes a warm slot when there is one, else it starts a
cold one. A slot idle for `idle_s` is given up.
"""

from collections import deque

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import FunctionsSpec, PoolSpec
from artangram.core.scheduling.lease import FunctionSlots
from artangram.core.scheduling.pools.slots import Slots


class FunctionPool:
    """Slots for stateless functions on demand."""

    __slots__ = ("_idle_since", "busy", "ceiling", "cold_s", "idle_s", "overhead_s", "resource")

    def __init__(self, resource: Resource, spec: FunctionsSpec) -> None:
        self.resource = resource
        self.overhead_s = spec.overhead_s
        self.ceiling = spec.ceiling
        self.cold_s = spec.cold_s
        self.idle_s = spec.idle_s
        self.busy = 0
        # Ascending times; the last one became idle last and is reused first, so the rest can end.
        self._idle_since: deque[float] = deque()

    def __repr__(self) -> str:
        idle = len(self._idle_since)
        return f"<FunctionPool {self.resource}: {self.busy} busy, {idle} idle of {self.ceiling}>"

    def warm(self, now: float) -> int:
        """How many idle slots are still warm."""
        idle = self._idle_since
        while idle and idle[0] + self.idle_s <= now:
            idle.popleft()
        return len(idle)

    def fits(self, units: int, now: float) -> bool:
        """May `units` calls start now, warm or cold?"""
        return self.busy + units <= self.ceiling

    def available(self, now: float) -> int:
        """How many calls may start now."""
        return max(0, self.ceiling - self.busy)  # Below 0 it is after the ceiling was lowered.

    def slots(self) -> Slots:
        """What `available` says, and of how many."""
        return Slots(max(0, self.ceiling - self.busy), self.ceiling)

    def reconfigure(self, spec: PoolSpec, now: float) -> None:
        """There are more or fewer slots from now on; those that are busy stay until they end."""
        assert isinstance(spec, FunctionsSpec), f"{self} has slots"
        self.ceiling = spec.ceiling

    def take(self, units: int, now: float) -> FunctionSlots:
        """`units` slots are busy now."""
        reused = min(units, self.warm(now))
        for _ in range(reused):
            self._idle_since.pop()
        self.busy += units
        return FunctionSlots(self.resource, units, units - reused)

    def give_back(self, units: int, now: float) -> None:
        """`units` slots are idle and warm."""
        self.busy -= units
        assert self.busy >= 0, f"{self} got back more than it gave"
        self._idle_since.extend([now] * units)
