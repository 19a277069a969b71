"""How many units are expected to be free from when on: the near future of a pool.

A step function of time that starts now and rises as running actions are expected to end. Planned
actions are subtracted for as long as they are expected to run.
"""

from bisect import bisect_left

OVERDUE_S = 0.05
"""An action that outlived its estimate is expected to end this soon, again and again."""


class Profile:
    """Free units at the times they change."""

    __slots__ = ("free", "times")

    def __init__(self, now: float, free: int, releases: list[tuple[float, int, int]]) -> None:
        self.times = [now]
        self.free = [free]
        for at, _, units in releases:
            free += units
            self.times.append(max(at, now + OVERDUE_S))
            self.free.append(free)

    def subtract(self, units: int, begin: int, end_at: float) -> None:
        """`units` are used from step `begin` until `end_at`, and never for no time at all."""
        if end_at <= self.times[begin]:
            end_at = self.times[begin] + OVERDUE_S
        end = bisect_left(self.times, end_at)
        if end == len(self.times) or self.times[end] > end_at:
            self.times.insert(end, end_at)
            self.free.insert(end, self.free[end - 1])
        for step in range(begin, end):
            self.free[step] -= units
