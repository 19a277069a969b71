"""Waiting tickets: in order of a static key inside a job, by fair shares between jobs.

- The key, with what `precedence` makes of it, never changes while a ticket waits, so a plain heap
  serves. Cancelled tickets, which no longer name this queue's lane, leave when they surface, or
  together once they are most of it.
- Between jobs that wait at the same time, the one that was served least for its share goes first
  (start-time fair queueing), so that a job that floods the queue delays mostly itself.
"""

from heapq import heappop, heappush

from artangram.core.ids import JobId
from artangram.core.scheduling.policies.base import Lane, State, Ticket
from artangram.core.scheduling.policies.precedence import set_due_in_line

MOST_JOBS = 4096
"""So many jobs are told apart by what they got of a lane. A caller who makes up a job for every
action would else fill the memory."""


class FairUsage:
    """How much each job got of one lane, in units x seconds over its share.

    A job that is gone is not forgotten while it is ahead of others: coming back, it would be served
    before those who got less. When there are too many, those who got least are forgotten and all
    who are not known count as much as the most served of those: nobody's count ever falls.
    """

    __slots__ = ("_shares", "_unknown", "_virtual", "_work")

    def __init__(self, shares: dict[JobId, float]) -> None:
        self._shares = shares
        self._work: dict[JobId, float] = {}
        #: What a job got that is not in `_work`.
        self._unknown = 0.0
        self._virtual = 0.0

    def of(self, job: JobId) -> float:
        return self._work.get(job, self._unknown)

    def wait(self, job: JobId) -> None:
        """`job` begins to wait. It earned nothing while it did not."""
        if job not in self._work or self._work[job] < self._virtual:
            self._note(job, max(self.of(job), self._virtual))

    def charge(self, ticket: Ticket, area: float) -> None:
        """`ticket` starts and is expected to use `area`."""
        job = ticket.job
        work = self._work.get(job, self._unknown)
        if work > self._virtual:
            self._virtual = work
        self._note(job, work + area / self._shares.get(job, 1.0))

    def goes_first(self, one: Ticket, other: Ticket) -> bool:
        """Does `one` go before `other`?"""
        if one.job != other.job:
            mine, theirs = self.of(one.job), self.of(other.job)
            if mine != theirs:
                return mine < theirs
            return (one.key, one.seq) < (other.key, other.seq)
        return (one.due_at, one.seq) < (other.due_at, other.seq)

    def _note(self, job: JobId, work: float) -> None:
        self._work[job] = work
        if len(self._work) > MOST_JOBS:
            self._unknown = sorted(self._work.values())[len(self._work) // 2]
            self._work = {job: got for job, got in self._work.items() if got > self._unknown}


_Heap = list[tuple[float, int, Ticket]]

FEWEST = 64
"""Below this, looking for cancelled tickets is not worth it."""


class Queue:
    """Tickets of one lane: a heap for each job."""

    __slots__ = ("_heaps", "_lane", "_num_gone", "served", "size")

    def __init__(self, lane: Lane, served: FairUsage) -> None:
        self._lane = lane
        self._heaps: dict[JobId, _Heap] = {}
        #: How many wait.
        self.size = 0
        #: Cancelled tickets that are still in a heap.
        self._num_gone = 0
        self.served = served

    def __len__(self) -> int:
        return self.size

    def num_entries(self) -> int:
        """How many are remembered, cancelled ones among them."""
        return sum(len(heap) for heap in self._heaps.values())

    def push(self, ticket: Ticket) -> None:
        heap = self._heaps.setdefault(ticket.job, [])
        if not heap or self._first(heap) is None:
            self.served.wait(ticket.job)
        set_due_in_line(ticket)
        heappush(heap, (ticket.due_at, ticket.seq, ticket))
        self.size += 1

    def peek(self) -> Ticket | None:
        """The first ticket, still in the queue."""
        if self.size == 0:
            return None
        if len(self._heaps) == 1:
            (heap,) = self._heaps.values()
            return self._first(heap)
        return self._first_of_all()

    def pop(self, ticket: Ticket) -> None:
        """Take out `ticket`, which is the first of its job."""
        self.size -= 1
        heap = self._heaps[ticket.job]
        heappop(heap)
        if not heap:
            del self._heaps[ticket.job]

    def forget(self) -> None:
        """One ticket of this queue was withdrawn: its `lane` will no longer name ours."""
        self.size -= 1
        self._num_gone += 1
        if self._num_gone > FEWEST + self.size:
            self._tidy()

    def tickets(self) -> list[Ticket]:
        """All waiting tickets, in no particular order."""
        tickets = (ticket for heap in self._heaps.values() for _, _, ticket in heap)
        return list(dict.fromkeys(filter(self._is_waiting, tickets)))

    def _is_waiting(self, ticket: Ticket) -> bool:
        return ticket.lane is self._lane and ticket.state is State.WAITING

    def _tidy(self) -> None:
        for job, heap in list(self._heaps.items()):
            # Who was withdrawn and came back is there twice.
            heap[:] = sorted({entry for entry in heap if self._is_waiting(entry[2])})
            if not heap:
                del self._heaps[job]
        self._num_gone = 1  # Who leaves just now still names our lane.

    def _first(self, heap: _Heap) -> Ticket | None:
        while heap:
            ticket = heap[0][2]
            if ticket.lane is self._lane and ticket.state is State.WAITING:
                return ticket
            heappop(heap)
            self._num_gone -= 1
        return None

    def _first_of_all(self) -> Ticket | None:
        best: Ticket | None = None
        for job in list(self._heaps):
            ticket = self._first(self._heaps[job])
            if ticket is None:
                del self._heaps[job]
            elif best is None or self.served.goes_first(ticket, best):
                best = ticket
        return best
