"""When lanes have something to do although nothing happens: for each, the earliest such time.

What was asked for and then replaced by something earlier leaves when it surfaces, and all together
whenever the heap has grown well beyond one entry for each lane, however far those times are.
"""

from heapq import heappop, heappush

from artangram.core.scheduling.policies.base import Lane

FEWEST = 64
"""Below this, looking for replaced times is not worth it."""


class Wakes:
    """Which lane to wake when."""

    __slots__ = ("_at", "_seq", "heap")

    def __init__(self) -> None:
        self._at: dict[Lane, float] = {}
        #: Empty where no lane asked, which saves every caller a look.
        self.heap: list[tuple[float, int, Lane]] = []
        self._seq = 0

    def ask(self, lane: Lane, at: float) -> None:
        """Wake `lane` at `at`, unless it is woken before that anyway."""
        known = self._at.get(lane)
        if known is not None and known <= at:
            return
        self._seq += 1
        self._at[lane] = at
        if len(self.heap) >= FEWEST + 2 * len(self._at):
            self._tidy()
        heappush(self.heap, (at, self._seq, lane))

    def forget(self, lane: Lane) -> None:
        """`lane` is gone."""
        self._at.pop(lane, None)

    def take_due(self, now: float) -> list[Lane]:
        """The lanes whose time has come, the earliest first."""
        due: list[Lane] = []
        while (at := self.next_at()) is not None and at <= now:
            _, _, lane = heappop(self.heap)
            del self._at[lane]
            due.append(lane)
        return due

    def next_at(self) -> float | None:
        """When the next lane is to be woken."""
        while self.heap and self._at.get(self.heap[0][2]) != self.heap[0][0]:
            heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def _tidy(self) -> None:
        """Keep one entry for each lane: the first that asked for its time."""
        kept: dict[Lane, tuple[float, int, Lane]] = {}
        for entry in sorted(self.heap):
            if self._at.get(entry[2]) == entry[0]:
                kept.setdefault(entry[2], entry)
        self.heap = list(kept.values())  # Still sorted, hence a heap.
