"""When actions have to end: the earliest deadline first, whatever became of the others.

Ended tickets leave when they surface, and all together whenever the heap has doubled, so that it
never holds much more than twice the tickets that lived then, however far their deadlines are.
"""

from heapq import heapify, heappop, heappush

from artangram.core.policies.base import State, Ticket

FEWEST = 64
"""Below this, looking for ended tickets is not worth it."""


class Deadlines:
    """The deadlines of waiting and running tickets."""

    __slots__ = ("_heap", "_most")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticket]] = []
        self._most = FEWEST

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at: float, ticket: Ticket) -> None:
        if len(self._heap) >= self._most:
            self._heap = [entry for entry in self._heap if entry[2].state is not State.ENDED]
            heapify(self._heap)
            self._most = max(FEWEST, 2 * len(self._heap))
        heappush(self._heap, (at, ticket.seq, ticket))

    def next_at(self) -> float | None:
        """The earliest deadline of a ticket that has not ended."""
        while self._heap and self._heap[0][2].state is State.ENDED:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[Ticket]:
        """The tickets whose deadline has come, each once."""
        if not self._heap:
            return []
        due: dict[Ticket, None] = {}  # One that was queued again may have several.
        while (at := self.next_at()) is not None and at <= now:
            due[heappop(self._heap)[2]] = None
        return list(due)
