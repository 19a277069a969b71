"""The books of an outside API: how many calls are under way and how many fell into the window.

In any interval of `window_s` at most `limit` calls start, and at most `concurrency` are under way
at any time, whatever the order of calls, ends and refusals.
"""

from collections import deque

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import PoolSpec, QuotaSpec
from artangram.core.scheduling.lease import Calls
from artangram.core.scheduling.speedup import MOST_UNITS


class QuotaPool:
    """A concurrency limit and a sliding window, either of which may be absent."""

    __slots__ = (
        "_recent",
        "_window_used",
        "closed_until",
        "concurrency",
        "limit",
        "overhead_s",
        "resource",
        "under_way",
        "window_s",
    )

    def __init__(self, resource: Resource, spec: QuotaSpec) -> None:
        self.resource = resource
        self.overhead_s = spec.overhead_s
        self.concurrency = spec.concurrency
        self.limit = spec.limit
        self.window_s = spec.window_s
        self.under_way = 0
        self.closed_until = 0.0
        self._recent: deque[tuple[float, int]] = deque()
        self._window_used = 0

    def __repr__(self) -> str:
        used = f"{self.under_way} under way, {self._window_used} recent"
        return f"<QuotaPool {self.resource}: {used}>"

    def fits(self, units: int, now: float) -> bool:
        """May `units` calls start now?"""
        return units <= self.available(now)

    def available(self, now: float) -> int:
        """How many calls may start now; `MOST_UNITS` when nothing limits them."""
        self._forget(now)
        if now < self.closed_until:
            return 0
        rooms = [MOST_UNITS]
        if self.concurrency is not None:
            rooms.append(self.concurrency - self.under_way)
        if self.limit is not None:
            rooms.append(self.limit - self._window_used)
        return max(0, min(rooms))  # Below 0 it is after a limit was lowered.

    def fits_at(self, units: int, now: float) -> float | None:
        """When the window alone lets `units` calls start; `None` if it is not the window."""
        self._forget(now)
        if now < self.closed_until:
            return self.closed_until
        if self.limit is None or self._window_used + units <= self.limit:
            return None
        surplus = self._window_used + units - self.limit
        calls = iter(self._recent)
        while surplus > 0:
            started, amount = next(calls)
            surplus -= amount
        return started + self.window_s

    def take(self, units: int, now: float) -> Calls:
        """`units` calls start now."""
        self.under_way += units
        if self.limit is not None:
            self._recent.append((now, units))
            self._window_used += units
        return Calls(self.resource, units)

    def give_back(self, units: int, now: float) -> None:
        """`units` calls ended. They stay in the window."""
        self.under_way -= units
        assert self.under_way >= 0, f"{self} got back more than it gave"

    def close(self, until: float) -> None:
        """The API takes no call before `until`."""
        self.closed_until = max(self.closed_until, until)

    def reconfigure(self, spec: PoolSpec, now: float) -> None:
        """The API allows this from now on.

        Where it had no limit before, calls under way count as if they started now.
        """
        assert isinstance(spec, QuotaSpec), f"{self} is a quota"
        self._forget(now)
        if self.limit is None and spec.limit is not None and self.under_way:
            self._recent.append((now, self.under_way))
            self._window_used += self.under_way
        self.concurrency, self.limit, self.window_s = spec.concurrency, spec.limit, spec.window_s
        if spec.limit is None:
            self._recent.clear()
            self._window_used = 0

    def _forget(self, now: float) -> None:
        recent = self._recent
        # Computed as `fits_at` computes it, so that waking then finds the call forgotten.
        while recent and recent[0][0] + self.window_s <= now:
            self._window_used -= recent.popleft()[1]
