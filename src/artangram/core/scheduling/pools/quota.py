"""The books of an outside API: how many calls are under way and how many fell into its windows.

In any interval of `window_s` at most `limit` calls start, for every window that the API has, and at
most `concurrency` are under way at any time, whatever the order of calls, ends and refusals.
"""

from collections import deque

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import CallWindow, PoolSpec, QuotaSpec
from artangram.core.scheduling.lease import Calls
from artangram.core.scheduling.pools.slots import Slots
from artangram.core.scheduling.speedup import MOST_UNITS


class _Window:
    """One sliding window."""

    __slots__ = ("limit", "recent", "used", "window_s")

    def __init__(self, spec: CallWindow) -> None:
        self.limit = spec.limit
        self.window_s = spec.window_s
        self.recent: deque[tuple[float, int]] = deque()
        self.used = 0

    def take(self, units: int, now: float) -> None:
        self.recent.append((now, units))
        self.used += units

    def fits_at(self, units: int) -> float | None:
        """When it lets `units` calls start; `None` if it does now."""
        surplus = self.used + units - self.limit
        at: float | None = None
        for started, amount in self.recent:
            if surplus <= 0:
                break
            surplus -= amount
            at = started + self.window_s
        return at

    def forget(self, now: float) -> None:
        recent = self.recent
        # Computed as `fits_at` computes it, so that waking then finds the call forgotten.
        while recent and recent[0][0] + self.window_s <= now:
            self.used -= recent.popleft()[1]


def _windows(spec: QuotaSpec) -> list[CallWindow]:
    first = [] if spec.limit is None else [CallWindow(limit=spec.limit, window_s=spec.window_s)]
    return [*first, *spec.windows]


class QuotaPool:
    """A concurrency limit and sliding windows, any of which may be absent."""

    __slots__ = ("_windows", "closed_until", "concurrency", "overhead_s", "resource", "under_way")

    def __init__(self, resource: Resource, spec: QuotaSpec) -> None:
        self.resource = resource
        self.overhead_s = spec.overhead_s
        self.concurrency = spec.concurrency
        self.under_way = 0
        self.closed_until = 0.0
        self._windows = [_Window(one) for one in _windows(spec)]

    def __repr__(self) -> str:
        recent = " and ".join(f"{one.used} recent" for one in self._windows) or "no window"
        return f"<QuotaPool {self.resource}: {self.under_way} under way, {recent}>"

    def fits(self, units: int, now: float) -> bool:
        """May `units` calls start now?"""
        return units <= self.available(now)

    def available(self, now: float) -> int:
        """How many calls may start now; `MOST_UNITS` when nothing limits them."""
        self._forget(now)
        if now < self.closed_until:
            return 0
        rooms = [MOST_UNITS, *(one.limit - one.used for one in self._windows)]
        if self.concurrency is not None:
            rooms.append(self.concurrency - self.under_way)
        return max(0, min(rooms))  # Below 0 it is after a limit was lowered.

    def slots(self) -> Slots | None:
        """Calls that may be under way at once, if there is a number of them."""
        if self.concurrency is None:
            return None
        return Slots(max(0, self.concurrency - self.under_way), self.concurrency)

    def fits_at(self, units: int, now: float) -> float | None:
        """When the windows alone let `units` calls start; `None` if it is not the windows."""
        self._forget(now)
        if now < self.closed_until:
            return self.closed_until
        times = (one.fits_at(units) for one in self._windows)
        return max((at for at in times if at is not None), default=None)

    def take(self, units: int, now: float) -> Calls:
        """`units` calls start now."""
        self.under_way += units
        for one in self._windows:
            one.take(units, now)
        return Calls(self.resource, units)

    def give_back(self, units: int, now: float) -> None:
        """`units` calls ended. They stay in the windows."""
        self.under_way -= units
        assert self.under_way >= 0, f"{self} got back more than it gave"

    def close(self, until: float) -> None:
        """The API takes no call before `until`."""
        self.closed_until = max(self.closed_until, until)

    def reconfigure(self, spec: PoolSpec, now: float) -> None:
        """The API allows this from now on.

        A window goes on with what is in the one that had its place. In a further one, calls under
        way count as if they started now.
        """
        assert isinstance(spec, QuotaSpec), f"{self} is a quota"
        self._forget(now)
        before, self.concurrency = self._windows, spec.concurrency
        self._windows = [_Window(one) for one in _windows(spec)]
        for number, window in enumerate(self._windows):
            if number < len(before):
                window.recent, window.used = before[number].recent, before[number].used
            elif self.under_way:
                window.take(self.under_way, now)

    def _forget(self, now: float) -> None:
        for one in self._windows:
            one.forget(now)
