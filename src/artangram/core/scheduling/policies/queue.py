"""Waiting tickets: in order of a static key inside a job, by fair shares between jobs.

- The key, with what priority and deadline make of it, never changes while a ticket waits, so a
  plain heap serves. Cancelled tickets, which no longer name this queue's lane, leave when they
  surface, or together once they are most of it.
- Between jobs that wait at the same time, the one that was served least for its share goes first
  (start-time fair queueing), so that a job that floods the queue delays mostly itself.

Inside a job, callers order their own actions:

- An action with a higher `priority` goes before those of its job with a lower one. A level is worth
  an hour of waiting: an action that wants to start an hour earlier goes first although its priority
  is one lower, so nothing starves.
- An action with a deadline wants to start while it is still expected to end in time. In a plain
  line, where no order is better for the mean, the earliest deadline goes first; an action without
  one counts as if it had an hour.
- Between jobs neither counts: shares decide there, and no job gains by calling its work urgent.

A lane calls `set_due` or `set_due_in_line` when it has set the key of a ticket, and what these note
then stays as it is while the ticket stands there. Without priority and deadline it is the key.
"""

from collections.abc import Mapping
from heapq import heappop, heappush
from math import ldexp

from artangram.core.ids import JobId
from artangram.core.scheduling.cluster import JobLimits
from artangram.core.scheduling.policies.base import Lane, State, Ticket
from artangram.core.scheduling.policies.jobunits import NO_LIMITS, JobUnits
from artangram.core.scheduling.pools.slots import Slots

MOST_JOBS = 4096
"""How many jobs a lane tells apart by what they got. Without a bound, a caller that makes up a job
for every action would fill the memory."""

LEVEL_S = 3600.0
"""What one level of priority is worth in seconds of waiting: as much as the longest slack of an
action, so that a higher level goes first unless it has come much later."""

LEVEL_BITS = 60
LEAST_RANK = 1e-6
"""Ranks are core-seconds, from microseconds on; no two differ by a factor of 2 ** 60."""


class FairUsage:
    """How much each job got of one lane, in units x seconds over its share; and what it holds.

    A job that is gone is not forgotten while it is ahead of others: coming back, it would be served
    before those that got less. When there are too many, those that got least are forgotten, and a
    job that is not known counts as much as the most served of those: no count ever falls.
    """

    __slots__ = ("_shares", "_unknown", "_virtual", "_work", "units")

    def __init__(
        self, shares: dict[JobId, float], limits: Mapping[JobId, JobLimits] = NO_LIMITS
    ) -> None:
        self._shares = shares
        self.units = JobUnits(limits)
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
            if self.units.bounds.least:
                is_entitled = self.units.is_entitled(one.job)
                if is_entitled != self.units.is_entitled(other.job):
                    return is_entitled
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

    def peek(self, slots: Slots | None = None) -> Ticket | None:
        """The first ticket, still in the queue, of those that the limits of their jobs let start.

        `slots` are those of all jobs together, if there is a number of them.
        """
        if self.size == 0:
            return None
        if len(self._heaps) == 1 and not self.served.units.bounds:
            (heap,) = self._heaps.values()
            return self._first(heap)
        return self._first_of_all(slots)

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
            # A ticket that was withdrawn and came back is there twice.
            heap[:] = sorted({entry for entry in heap if self._is_waiting(entry[2])})
            if not heap:
                del self._heaps[job]
        self._num_gone = 1  # The ticket that leaves just now still names our lane.

    def _first(self, heap: _Heap) -> Ticket | None:
        while heap:
            ticket = heap[0][2]
            if ticket.lane is self._lane and ticket.state is State.WAITING:
                return ticket
            heappop(heap)
            self._num_gone -= 1
        return None

    def _first_of_all(self, slots: Slots | None) -> Ticket | None:
        best: Ticket | None = None
        for job in list(self._heaps):
            ticket = self._first(self._heaps[job])
            if ticket is None:
                del self._heaps[job]
            elif not self.served.units.allows(job, ticket.form.amounts[0], slots):
                continue
            elif best is None or self.served.goes_first(ticket, best):
                best = ticket
        return best


def set_due(ticket: Ticket) -> None:
    """Note where `ticket`, which has its key, stands among those of its job."""
    level_s = LEVEL_S * ticket.action.priority
    ticket.due_at = _wanted_at(ticket) - level_s
    ticket.due_from = ticket.due_at + level_s
    ticket.leveled_rank = _leveled_rank(ticket)


def set_due_in_line(ticket: Ticket) -> None:
    """The same in a lane that is first come, first served."""
    action = ticket.action
    ticket.due_at = ticket.key - LEVEL_S * action.priority
    if action.deadline_at is not None:
        ticket.due_at = min(ticket.key, action.deadline_at - LEVEL_S) - LEVEL_S * action.priority


def _leveled_rank(ticket: Ticket) -> float:
    """The order of those of a job that are not due: by priority, then by rank.

    One number, because a heap compares nothing faster; a power of two keeps every rank exact.
    """
    priority = ticket.action.priority
    return ldexp(max(ticket.rank, LEAST_RANK), -LEVEL_BITS * priority) if priority else ticket.rank


def may_preempt(ticket: Ticket, other: Ticket) -> bool:
    """May `ticket` take the cores of `other`, which runs, as far as its caller is concerned?"""
    return other.job != ticket.job or other.action.priority <= ticket.action.priority


def _wanted_at(ticket: Ticket) -> float:
    """When it should start, its priority aside."""
    deadline = ticket.action.deadline_at
    if deadline is None:
        return ticket.key
    takes_s = ticket.prepare_s + ticket.belief.mean_s / ticket.pace
    return min(ticket.key, max(ticket.submitted_at, deadline - takes_s))
