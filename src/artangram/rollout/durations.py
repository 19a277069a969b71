"""How long the trajectories of a task took lately: who is late?"""

from bisect import bisect_left, insort
from collections import deque


class Durations:
    """The latest of one task, and their quantiles."""

    REMEMBERED = 256
    LEAST = 16
    """Fewer say nothing about a tail."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, took_s: float) -> None:
        self._latest.append(took_s)
        insort(self._sorted, took_s)
        if len(self._latest) > self.REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]

    def quantile(self, share: float) -> float | None:
        """That share of them was not longer; `None` while too few are known."""
        if len(self._sorted) < self.LEAST:
            return None
        return self._sorted[min(len(self._sorted) - 1, int(share * len(self._sorted)))]
