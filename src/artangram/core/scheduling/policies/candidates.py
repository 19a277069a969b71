"""Tickets that want cores of a node and have none: those that wait, and those that were preempted.

- Inside a job an overdue ticket goes first, by its virtual deadline; the others go by rank. Both
  stay as they are while a ticket stands here, unless what is believed of it changes. `precedence`
  has what priorities and deadlines change about that.
- Between jobs, `coreuse` says which goes first.
- Tickets that left, or that came back with another rank, leave the heaps when they surface, or all
  together once they are most of them.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from artangram.core.ids import JobId
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.coreuse import CoreUse
from artangram.core.scheduling.policies.precedence import (
    goes_before,
    is_due,
    leveled_rank,
    set_due,
)

FEWEST = 64
"""Below this, looking for entries of tickets that left is not worth it."""

_Entry = tuple[float, int, int, Ticket]


class _Job:
    """The tickets of one job, in both orders."""

    __slots__ = ("by_key", "by_rank", "size")

    def __init__(self) -> None:
        self.by_key: list[_Entry] = []
        self.by_rank: list[_Entry] = []
        self.size = 0


class Candidates:
    """Tickets of one lane, either rigid or elastic ones."""

    __slots__ = ("_jobs", "_num_pushed", "is_reranked", "size", "use")

    def __init__(self, use: CoreUse) -> None:
        self._jobs: dict[JobId, _Job] = {}
        self._num_pushed = 0
        self.size = 0
        self.use = use
        #: Did the rank of a ticket change since the lane looked?
        self.is_reranked = False

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Ticket]:
        for job in self._jobs.values():
            yield from (entry[3] for entry in job.by_key if self._is_current(entry))

    def num_entries(self) -> int:
        """How many are remembered, those of tickets that left among them."""
        return sum(max(len(job.by_key), len(job.by_rank)) for job in self._jobs.values())

    def push(self, ticket: Ticket) -> None:
        job = self._jobs.get(ticket.job)
        if job is None:
            job = self._jobs[ticket.job] = _Job()
        self._num_pushed += 1
        ticket.place, ticket.place_number = self, self._num_pushed
        set_due(ticket)
        heappush(job.by_rank, (leveled_rank(ticket), ticket.seq, self._num_pushed, ticket))
        heappush(job.by_key, (ticket.due_at, ticket.seq, self._num_pushed, ticket))
        job.size += 1
        self.size += 1

    def remove(self, ticket: Ticket) -> None:
        job = self._jobs[ticket.job]
        ticket.place = None
        job.size -= 1
        self.size -= 1
        if job.size == 0:
            del self._jobs[ticket.job]
        elif max(len(job.by_key), len(job.by_rank)) > FEWEST + 2 * job.size:
            self._tidy(job)

    def rerank(self, ticket: Ticket) -> None:
        rank = ticket.area * ticket.belief.rank_s(ticket.done_s)
        if rank != ticket.rank:
            self.remove(ticket)
            ticket.rank = rank
            self.push(ticket)
            self.is_reranked = True

    def first(self, now: float) -> Ticket | None:
        """Who goes first; it stays here."""
        if len(self._jobs) == 1:
            (job,) = self._jobs.values()
            return self._first_of(job, now)
        best: Ticket | None = None
        for job in self._jobs.values():
            ticket = self._first_of(job, now)
            if best is None or goes_first(self.use, ticket, best, now):
                best = ticket
        return best

    def overdue(self, now: float) -> Ticket | None:
        """Of those past their virtual deadline, the one with the earliest."""
        first: Ticket | None = None
        for job in self._jobs.values():
            ticket = self._head(job.by_key)
            if ticket.key <= now and (first is None or _by_key(ticket) < _by_key(first)):
                first = ticket
        return first

    def overdue_of(self, job_id: JobId, now: float) -> Ticket | None:
        """The same of one job."""
        job = self._jobs.get(job_id)
        first = None if job is None else self._head(job.by_key)
        return first if first is not None and first.key <= now else None

    def _first_of(self, job: _Job, now: float) -> Ticket:
        earliest = self._head(job.by_key)
        return earliest if is_due(earliest, now) else self._head(job.by_rank)

    def _head(self, heap: list[_Entry]) -> Ticket:
        while not self._is_current(heap[0]):
            heappop(heap)
        return heap[0][3]

    def _is_current(self, entry: _Entry) -> bool:
        ticket = entry[3]
        return ticket.place is self and ticket.place_number == entry[2]

    def _tidy(self, job: _Job) -> None:
        for heap in (job.by_key, job.by_rank):
            heap[:] = filter(self._is_current, heap)
            heapify(heap)


def goes_first(use: CoreUse, one: Ticket, other: Ticket, now: float) -> bool:
    """Does `one` get cores before `other`?"""
    if one.job != other.job:
        mine, theirs = use.standing(one.job, now), use.standing(other.job, now)
        if mine != theirs:
            return mine < theirs
        return _order(one, now) < _order(other, now)
    return goes_before(one, other, now)


def _order(ticket: Ticket, now: float) -> tuple[bool, float, int]:
    """Between jobs that were served alike."""
    is_overdue = ticket.key <= now
    return (not is_overdue, ticket.key if is_overdue else ticket.rank, ticket.seq)


def _by_key(ticket: Ticket) -> tuple[float, int]:
    return (ticket.key, ticket.seq)
