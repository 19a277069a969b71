"""The books of stateless function slots: warm, busy, and how many may still be started.

Slots scale from zero to `ceiling`. A call takes a warm slot when there is one, else it starts a
cold one. A slot idle for `idle_s` is given up.
"""

from artangram.core.ids import Resource
from artangram.core.lease import Slots


class FunctionPool:
    """Slots for stateless functions on demand."""

    __slots__ = ("_idle_since", "busy", "ceiling", "cold_s", "idle_s", "resource")

    def __init__(self, resource: Resource, *, ceiling: int, cold_s: float, idle_s: float) -> None:
        self.resource = resource
        self.ceiling = ceiling
        self.cold_s = cold_s
        self.idle_s = idle_s
        self.busy = 0
        # Ascending times; the last one became idle last and is reused first, so the rest can end.
        self._idle_since: list[float] = []

    def __repr__(self) -> str:
        idle = len(self._idle_since)
        return f"<FunctionPool {self.resource}: {self.busy} busy, {idle} idle of {self.ceiling}>"

    def warm(self, now: float) -> int:
        """How many idle slots are still warm."""
        alive = [since for since in self._idle_since if since + self.idle_s > now]
        self._idle_since = alive
        return len(alive)

    def fits(self, units: int) -> bool:
        """May `units` calls start now, warm or cold?"""
        return self.busy + units <= self.ceiling

    def take(self, units: int, now: float) -> Slots:
        """`units` slots are busy now."""
        reused = min(units, self.warm(now))
        if reused:
            del self._idle_since[-reused:]
        self.busy += units
        return Slots(self.resource, units, units - reused)

    def give_back(self, units: int, now: float) -> None:
        """`units` slots are idle and warm."""
        self.busy -= units
        assert self.busy >= 0, f"{self} got back more than it gave"
        self._idle_since += [now] * units
