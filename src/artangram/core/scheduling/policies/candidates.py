"""The tickets of one node: those that want cores and have none, and those that have some.

`Candidates` wait or were preempted:

- Inside a job an overdue ticket goes first, by its virtual deadline; the others go by rank. Both
  stay as they are while a ticket stands here, unless what is believed of it changes. `queue` has
  what priorities and deadlines change about that.
- Between jobs, `ranking` says which goes first.
- Tickets that left, or that came back with another rank, leave the heaps when they surface, or all
  together once they are most of them.
- The first ticket of each job is remembered until another one goes before it, it leaves, or one of
  them is due: most events change nothing about it.

`Running` ones stand in order of their ranks. How much an elastic one is worth follows from how many
are behind it, so what the first few leave of the cores depends on these few alone. It is remembered
until one comes or goes before them: a burst asks about many tickets in order of their ranks.

A `Crowd` lasts for what is expected of all that wait or run here, and of what trajectories that
think now will still ask for: half of what one asked for so far.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter

from artangram.core.ids import JobId
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.queue import set_due
from artangram.core.scheduling.policies.ranking import CoreUse
from artangram.core.scheduling.speedup import MOST_UNITS

FEWEST = 64
"""Below this, looking for entries of tickets that left is not worth it."""

PRESSURE = 3.0
"""Weight of each action behind in the price: a poor size also delays those still to come."""

UNCERTAIN_PRESSURE = 2.0
"""How much more it weighs for each unit of the spread of a belief. The order in which uncertain
actions end is a guess, so what a wide one wastes is less often made up by its early end."""

STILL_TO_COME = 0.5
"""Share of its work that a trajectory still has before it, on average."""

GUESS = 0.5
"""From this spread of its belief on, an action has its least amount and a part of what is left over
by gain, and none waits for it to end: a factor of 1.6 either way."""

_rank = attrgetter("rank")
_Entry = tuple[float, int, int, Ticket]


class _Job:
    """The tickets of one job, in both orders."""

    __slots__ = ("by_key", "by_rank", "due_from", "first", "size")

    def __init__(self) -> None:
        self.by_key: list[_Entry] = []
        self.by_rank: list[_Entry] = []
        self.size = 0
        #: The ticket that goes first until `due_from`, if it is known.
        self.first: Ticket | None = None
        self.due_from = 0.0


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
        number = self._num_pushed = self._num_pushed + 1
        ticket.place, ticket.place_number = self, number
        action = ticket.action
        if action.priority == 0 and action.deadline_at is None:
            ticket.due_at = ticket.due_from = ticket.key
            ticket.leveled_rank = ticket.rank
        else:
            set_due(ticket)
        heappush(job.by_rank, (ticket.leveled_rank, ticket.seq, number, ticket))
        heappush(job.by_key, (ticket.due_at, ticket.seq, number, ticket))
        first = job.first
        if first is not None and (
            ticket.leveled_rank <= first.leveled_rank or ticket.due_from < job.due_from
        ):
            job.first = None
        job.size += 1
        self.size += 1

    def remove(self, ticket: Ticket) -> None:
        job = self._jobs[ticket.job]
        ticket.place = None
        if job.first is ticket:
            job.first = None
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
        """The ticket that goes first; it stays here. Jobs that have their maximum are left out."""
        if len(self._jobs) == 1 and not self.use.bounds.most:
            (job,) = self._jobs.values()
            return self._first_of(job, now)
        best: Ticket | None = None
        for job in self._jobs.values():
            ticket = self._first_of(job, now)
            if self._is_within(ticket) and (
                best is None or goes_first(self.use, ticket, best, now)
            ):
                best = ticket
        return best

    def overdue(self, now: float) -> Ticket | None:
        """Of those past their virtual deadline, the one with the earliest."""
        first: Ticket | None = None
        for job in self._jobs.values():
            ticket = self._head(job.by_key)
            if ticket.key <= now and (first is None or _by_key(ticket) < _by_key(first)):
                first = ticket if self._is_within(ticket) else first
        return first

    def overdue_of(self, job_id: JobId, now: float) -> Ticket | None:
        """The same of one job."""
        job = self._jobs.get(job_id)
        first = None if job is None else self._head(job.by_key)
        is_overdue = first is not None and first.key <= now and self._is_within(first)
        return first if is_overdue else None

    def _is_within(self, ticket: Ticket) -> bool:
        """Does the maximum of its job leave it the cores that it needs?"""
        use = self.use
        return not use.bounds.most or use.is_within(ticket.job, ticket.form.amounts[0])

    def _first_of(self, job: _Job, now: float) -> Ticket:
        if job.first is not None and now < job.due_from:
            return job.first
        earliest = self._head(job.by_key)
        if earliest.due_from <= now:
            job.first = None
            return earliest
        job.first, job.due_from = self._head(job.by_rank), earliest.due_from
        return job.first

    def _head(self, heap: list[_Entry]) -> Ticket:
        while True:
            _, _, number, ticket = heap[0]
            if ticket.place is self and ticket.place_number == number:
                return ticket
            heappop(heap)

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
        if use.bounds.least:
            is_entitled = use.is_entitled(one.job)
            if is_entitled != use.is_entitled(other.job):
                return is_entitled
        mine, theirs = use.standing(one.job, now), use.standing(other.job, now)
        if mine != theirs:
            return mine < theirs
        return _order(one, now) < _order(other, now)
    # Inside a job: what is due, then by rank; `queue` says when it is due.
    first = one if (one.due_at, one.seq) < (other.due_at, other.seq) else other
    if first.due_from <= now:
        return first is one
    return (one.leveled_rank, one.seq) < (other.leveled_rank, other.seq)


def _order(ticket: Ticket, now: float) -> tuple[bool, float, int]:
    """Between jobs that were served alike."""
    is_overdue = ticket.key <= now
    return (not is_overdue, ticket.key if is_overdue else ticket.rank, ticket.seq)


def _by_key(ticket: Ticket) -> tuple[float, int]:
    return (ticket.key, ticket.seq)


class Crowd:
    """What is expected of the actions and trajectories of one node, in core-seconds."""

    __slots__ = ("_asked_s", "_backlog_s", "_num_seen", "_num_there")

    def __init__(self) -> None:
        self._backlog_s = 0.0
        #: All that was ever asked for, by how many trajectories; and how many of them live here.
        self._asked_s = 0.0
        self._num_seen = 0
        self._num_there = 0

    def enter(self, ticket: Ticket, num_trajectories: int) -> None:
        """`ticket` wants cores from now on; `num_trajectories` live here."""
        ticket.load_s = ticket.belief.mean_s * ticket.area
        self._backlog_s += ticket.load_s
        self._asked_s += ticket.load_s
        self._num_seen += max(0, num_trajectories - self._num_there)
        self._num_there = num_trajectories

    def leave(self, ticket: Ticket) -> None:
        """`ticket` wants no cores any more."""
        self._backlog_s -= ticket.load_s

    def lasts_s(self, cores: int, num_thinking: int) -> float:
        """For how long all cores will be wanted."""
        each_s = STILL_TO_COME * self._asked_s / max(1, self._num_seen)
        return (self._backlog_s + num_thinking * each_s) / cores


def is_guess(ticket: Ticket) -> bool:
    """Is so little known of when `ticket` ends that no other one should wait for it?"""
    return ticket.belief.spread >= GUESS


def pressure_of(ticket: Ticket) -> float:
    """Weight of each action behind `ticket` in the price of a core."""
    return PRESSURE * (1.0 + UNCERTAIN_PRESSURE * ticket.belief.spread)


def within_maximums(use: CoreUse, running: list[Ticket], sizes: list[int]) -> list[int]:
    """`sizes` of elastic tickets, in their order, within what their jobs may hold.

    A job that wants cores for others of its tickets has them before these get more than their least
    amounts. What it leaves goes to jobs without a maximum.
    """
    most = use.bounds.most
    left = 0
    for job in {ticket.job: None for ticket in running if ticket.job in most}:
        mine = [at for at, ticket in enumerate(running) if ticket.job == job]
        if use.wants(job):
            surplus = MOST_UNITS
        else:
            counted = sum(running[at].units or running[at].form.amounts[0] for at in mine)
            surplus = use.held(job) - counted + sum(sizes[at] for at in mine) - most[job]
        for at in reversed(mine):
            cut = max(0, min(surplus, sizes[at] - running[at].form.amounts[0]))
            sizes[at] -= cut
            surplus -= cut
            left += cut
    for at, ticket in enumerate(running if left else ()):
        if ticket.job not in most:
            more = min(left, ticket.workers - sizes[at])
            sizes[at] += more
            left -= more
    return sizes


class Running:
    """Tickets with cores, elastic and rigid ones, each in order of their ranks."""

    __slots__ = ("_asked", "_cores", "_left", "elastic", "least_units", "rigid", "rigid_units")

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self.elastic: list[Ticket] = []
        self.rigid: list[Ticket] = []
        #: The sum of the least amounts of elastic ones, and what rigid ones have.
        self.least_units = 0
        self.rigid_units = 0
        #: The cores, and how many are behind the first, that `_left` is for.
        self._asked = (0, 0)
        #: After each number of elastic tickets: the cores they leave.
        self._left: list[int] = []

    def __len__(self) -> int:
        return len(self.elastic) + len(self.rigid)

    def add(self, ticket: Ticket) -> None:
        if ticket.form.is_elastic:
            position = bisect_right(self.elastic, ticket.rank, key=_rank)
            self.elastic.insert(position, ticket)
            self.least_units += ticket.form.amounts[0]
            del self._left[position + 1 :]
        else:
            insort(self.rigid, ticket, key=_rank)
            self.rigid_units += ticket.form.amounts[0]

    def remove(self, ticket: Ticket) -> None:
        if ticket.form.is_elastic:
            self.elastic.remove(ticket)
            self.least_units -= ticket.form.amounts[0]
            self._left = []
        else:
            self.rigid.remove(ticket)
            self.rigid_units -= ticket.form.amounts[0]

    def sort(self) -> None:
        """Some ranks have changed."""
        self.elastic.sort(key=_rank)
        self.rigid.sort(key=_rank)
        self._left = []

    def last_first(self) -> Iterator[Ticket]:
        """All of them, largest rank first."""
        elastic, rigid = list(self.elastic), list(self.rigid)
        while elastic and rigid:
            yield elastic.pop() if elastic[-1].rank >= rigid[-1].rank else rigid.pop()
        yield from reversed(elastic or rigid)

    def largest_rank(self) -> float:
        """The largest rank of all; zero where nothing runs."""
        elastic = self.elastic[-1].rank if self.elastic else 0.0
        rigid = self.rigid[-1].rank if self.rigid else 0.0
        return elastic if elastic > rigid else rigid

    def num_longer(self, rank: float) -> int:
        """How many elastic ones have a larger rank."""
        return len(self.elastic) - bisect_right(self.elastic, rank, key=_rank)

    def has_room_for(self, ticket: Ticket, cores: int, *, behind: int, firm: float) -> bool:
        """Would `ticket` get its least amount if all before it had what they are worth?

        `cores` are to be divided, and `behind` tickets stand or run behind the first. Those with a
        rank above `firm` give up their cores for `ticket`.
        """
        if self._asked != (cores, behind) or not self._left:
            self._asked, self._left = (cores, behind), [cores]
        before = bisect_right(self.elastic, ticket.rank, key=_rank)
        if len(self._left) <= before:
            self._serve(before, behind)
        free = self._left[before]
        after = bisect_left(self.elastic, firm, key=_rank)
        kept = sum(other.form.amounts[0] for other in self.elastic[before:after])
        giving = bisect_right(self.rigid, firm, key=_rank)
        given = sum(other.form.amounts[0] for other in self.rigid[giving:])
        return free - kept + given >= ticket.form.amounts[0]

    def _serve(self, before: int, behind: int) -> None:
        """Note what is left after each of the first `before` elastic tickets."""
        begin, left = len(self._left) - 1, self._left
        free = left[begin]
        for index, ticket in enumerate(self.elastic[begin:before], begin):
            widths, spread = ticket.widths, ticket.belief.spread
            assert widths is not None
            size = widths.least
            if spread < GUESS:
                pressure = PRESSURE * (1.0 + UNCERTAIN_PRESSURE * spread)
                price = max(0, behind - index) * pressure / self._cores
                if price <= widths.dear:
                    size = widths.best_within(price, free) or size
            free -= size
            left.append(free)
