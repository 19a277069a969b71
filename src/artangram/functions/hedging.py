"""When a call is late, and whether another copy of it is worth starting. Pure.

- A call is late when it has taken longer than 95 % of the latest calls of its kind: then one in
  twenty gets a second copy, and what is stuck is found in the time of an ordinary call.
- Copies are paid from a budget that calls fill: when everything becomes slow, a second copy of
  everything would only make it slower.
"""

from bisect import bisect_left, insort
from collections import deque

QUANTILE = 0.95
LEAST_SEEN, MOST_SEEN = 20, 200
"""Calls of a kind before its quantile means anything, and as many as are remembered."""
COPIES_PER_CALL, MOST_SAVED = 0.1, 10.0


class CallDurations:
    """How long the latest calls of one kind took."""

    __slots__ = ("_latest", "_sorted")

    def __init__(self) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def __repr__(self) -> str:
        return f"<Durations of {len(self._latest)} calls, late after {self.late_s()} s>"

    def observe(self, duration_s: float) -> None:
        """A call took so long."""
        self._latest.append(duration_s)
        insort(self._sorted, duration_s)
        if len(self._latest) > MOST_SEEN:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]

    def late_s(self) -> float | None:
        """After how long a call is late; `None` while too little is known."""
        if len(self._sorted) < LEAST_SEEN:
            return None
        return self._sorted[int(QUANTILE * len(self._sorted))]


class Budget:
    """What may be spent on second copies."""

    __slots__ = ("_saved",)

    def __init__(self) -> None:
        self._saved = MOST_SAVED

    def earn(self) -> None:
        """A call began."""
        self._saved = min(MOST_SAVED, self._saved + COPIES_PER_CALL)

    def spend(self) -> bool:
        """May a second copy start? Then it is paid."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
