"""The latest durations of one kind of work, and their quantiles: the measure of what is late."""

from bisect import bisect_left, insort
from collections import deque


class Durations:
    """Keeps the latest `most`; with fewer than `least` it says nothing about a tail."""

    __slots__ = ("_latest", "_least", "_most", "_sorted")

    def __init__(self, *, least: int, most: int) -> None:
        self._least, self._most = least, most
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def __repr__(self) -> str:
        return f"<Durations of {len(self._latest)}, half of them within {self.quantile(0.5)} s>"

    def add(self, took_s: float) -> None:
        self._latest.append(took_s)
        insort(self._sorted, took_s)
        if len(self._latest) > self._most:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]

    def quantile(self, share: float) -> float | None:
        """That share of them was not longer; `None` while too few are known."""
        if len(self._sorted) < self._least:
            return None
        return self._sorted[min(len(self._sorted) - 1, int(share * len(self._sorted)))]
