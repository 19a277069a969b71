"""When actions have to end: the earliest deadline first, whatever became of the others.

Ended tickets leave when they surface, and all together whenever the heap has doubled, so that it
never holds much more than twice the tickets that lived then, however far their deadlines are.
"""

from heapq import heapify, heappop, heappush

from artangram.core.scheduling.policies.base import State, Ticket

FEWEST = 64
"""Below this, looking for ended tickets is not worth it."""


class Deadlines:
    """The deadlines of waiting and running tickets."""

    __slots__ = ("_most", "heap")

    def __init__(self) -> None:
        #: Empty where no action has one, which saves every caller a look.
        self.heap: list[tuple[float, int, Ticket]] = []
        self._most = FEWEST

    def add(self, at: float, ticket: Ticket) -> None:
        if len(self.heap) >= self._most:
            self.heap = [entry for entry in self.heap if entry[2].state is not State.ENDED]
            heapify(self.heap)
            self._most = max(FEWEST, 2 * len(self.heap))
        heappush(self.heap, (at, ticket.seq, ticket))

    def next_at(self) -> float | None:
        """The earliest deadline of a ticket that has not ended."""
        while self.heap and self.heap[0][2].state is State.ENDED:
            heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def take_due(self, now: float) -> list[Ticket]:
        """The tickets whose deadline has come, each once."""
        due: dict[Ticket, None] = {}  # One that was queued again may have several.
        while (at := self.next_at()) is not None and at <= now:
            due[heappop(self.heap)[2]] = None
        return list(due)
