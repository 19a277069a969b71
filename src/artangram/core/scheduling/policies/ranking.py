"""The order of actions on cores: rank, virtual deadline, and when running work gives way.

- The rank of an action is the core-seconds expected per chance to end, given what it has done.
- Its virtual deadline is when it will have gone without cores for as long as its slack. Slack grows
  with the work that is expected of it or that it has done, up to `SLACK_CAP_S`, and is never less
  than the time for which it had cores. Past it an action is overdue: no later work goes before it.
- Running work gives way to work whose rank is clearly smaller, and to overdue work, unless it is
  overdue itself.

Between jobs the core-seconds decide that they used of the pool, over their shares (`CoreUse`):

- A job is charged for the cores it holds, as it holds them, on all nodes together. What callers or
  beliefs say about durations counts for nothing.
- A job that begins to want cores starts level with the one that was served least of those that want
  some: it neither saves up credit nor pays for the past.
- The least charged goes first, with what it holds now counted one second ahead. A job that is
  clearly behind takes cores that others run on; one that is clearly ahead takes none.
- Before all that, a job that holds less than its minimum takes cores of those that hold more than
  theirs, and no job takes more than its maximum (`jobunits`).
"""

from collections.abc import Mapping

from artangram.core.ids import JobId
from artangram.core.scheduling.cluster import JobLimits
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.jobunits import NO_LIMITS, JobBounds
from artangram.core.scheduling.policies.queue import may_preempt
from artangram.core.scheduling.policies.width import fixed_widths
from artangram.core.scheduling.speedup import DEFAULT

ALPHA = 10.0
"""Seconds of slack per core-second of elastic work. Any value from 5 up gives the same mean ACT,
but with more the longest of a step start later, and so the step ends later."""

RIGID_ALPHA = 30.0
"""The same for rigid work. Commands of milliseconds are soon overdue in a burst, and then it does
not matter any more how short they are."""

SLACK_CAP_S = 3600.0
"""An action that has not run yet goes without cores no longer than this because of work that came
later. Ten minutes would already cost 3 % of mean ACT."""

CLEARLY = 0.9
"""Work gives way to what has less than this share of its rank: ranks are guesses, and work that
gives way too easily is never done."""

SWITCH_S = 0.02
"""What a switch costs both actions: cores are moved, caches are cold."""

LOOK_S = 1.0
"""How far ahead the cores that a job holds are counted: those that start at one instant would else
all be of one job."""

GAP_S = 1.0
"""A job is clearly behind, or ahead, from this many seconds of its part of the pool on. Over a
minute that keeps equal jobs within 10 % of each other."""

LEAST_GAP = 1.0
"""The same in core-seconds, where many jobs share few cores: switching more often costs more."""

MOST_JOBS = 4096
"""The most jobs told apart. Callers who make up a job for every action would else fill the
memory."""


class _JobUse:
    """What one job has of a pool."""

    __slots__ = ("held", "level", "share", "since", "wanting")

    def __init__(self, level: float, share: float, now: float) -> None:
        #: Core-seconds over its share, up to `since`.
        self.level = level
        self.share = share
        self.since = now
        self.held = 0
        #: Tickets that want cores and have none.
        self.wanting = 0

    def settled(self, now: float) -> float:
        """Its level now."""
        if now > self.since:
            self.level += self.held * (now - self.since) / self.share
            self.since = now
        return self.level


class CoreUse:
    """The account of one pool."""

    def __init__(
        self, shares: dict[JobId, float], limits: Mapping[JobId, JobLimits] = NO_LIMITS
    ) -> None:
        self._shares = shares
        self.bounds = JobBounds(limits, "cores")
        #: Jobs with a maximum that gave cores back and want some.
        self.eased: dict[JobId, None] = {}
        self._jobs: dict[JobId, _JobUse] = {}
        #: Those that hold or want cores.
        self.active: dict[JobId, _JobUse] = {}
        self.cores = 0
        #: The highest level of all jobs, and of those that were forgotten.
        self._highest = 0.0
        self._floor = 0.0
        self._looked_at = -1.0
        self._virtual = 0.0
        #: The shares of those that are active, together.
        self._shares_active = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    def want(self, job: JobId, now: float) -> None:
        """One more ticket of `job` wants cores and has none."""
        use = self._jobs.get(job) or self._opened(job, now)
        if not use.wanting:
            use.level = max(use.settled(now), self._level_to_start_from(now))
            if job not in self.active:
                self._activate(job, use)
        use.wanting += 1

    def unwant(self, job: JobId) -> None:
        """One ticket fewer does."""
        use = self._jobs[job]
        use.wanting -= 1
        if not (use.wanting or use.held):
            self._rest(job, use)

    def hold(self, job: JobId, units: int, now: float) -> None:
        """`job` has `units` cores more from now on, or fewer."""
        use = self._jobs.get(job) or self._opened(job, now)
        level = use.settled(now)
        if level > self._highest:
            self._highest = level
        use.held += units
        if units < 0 and use.wanting and job in self.bounds.most:
            self.eased[job] = None
        if job not in self.active:
            self._activate(job, use)
        if not (use.wanting or use.held):
            self._rest(job, use)

    def standing(self, job: JobId, now: float) -> float:
        """Between jobs, the one with the smallest goes first."""
        use = self._jobs[job]
        return use.settled(now) + LOOK_S * use.held / use.share

    def held(self, job: JobId) -> int:
        """How many cores it has."""
        use = self._jobs.get(job)
        return 0 if use is None else use.held

    def is_within(self, job: JobId, units: int) -> bool:
        """May `job` have `units` more, as far as its maximum is concerned?"""
        most, held = self.bounds.most.get(job), self.held(job)
        return most is None or not held or held + units <= most

    def is_entitled(self, job: JobId) -> bool:
        """Has it less than its minimum?"""
        return self.held(job) < self.bounds.least.get(job, 0)

    def is_kept(self, job: JobId, units: int) -> bool:
        """Would it have less than its minimum without `units` of its cores?"""
        return self.held(job) - units < self.bounds.least.get(job, 0)

    def wants(self, job: JobId) -> bool:
        """Has it tickets that want cores and have none?"""
        return self._jobs[job].wanting > 0

    def part_of(self, job: JobId) -> float:
        """The cores that are its own while all active jobs want some, one at least."""
        share = self._shares.get(job, 1.0)
        shares = self._shares_active if job in self.active else self._shares_active + share
        return max(1.0, min(self.cores * share / shares, self.bounds.most.get(job, self.cores)))

    def gap(self, job: JobId, now: float) -> float:
        """From what on `job` is clearly behind or ahead of another one."""
        return max(GAP_S * self.cores / self._shares_active, LEAST_GAP / self._jobs[job].share)

    def lead(self, job: JobId, other: JobId, now: float, *, taken: int, given: int) -> float:
        """How far `job` is ahead of `other` when it has taken cores that the other has given."""
        mine, theirs = self._jobs[job], self._jobs[other]
        moved = LOOK_S * (taken / mine.share + given / theirs.share)
        return self.standing(job, now) - self.standing(other, now) + moved

    def is_behind(self, job: JobId, units: int, now: float) -> bool:
        """Is it clearly behind any job that has cores, even with `units` more?"""
        if len(self.active) == 1:
            return False
        if self.bounds.least and self.is_entitled(job):
            return True
        below = -self.gap(job, now)
        return any(
            use.held and other != job and self.lead(job, other, now, taken=units, given=0) < below
            for other, use in self.active.items()
        )

    def is_ahead(self, job: JobId, now: float) -> bool:
        """Does another job that wants cores go before it?"""
        mine = self.standing(job, now)
        return any(
            use.wanting and other != job and self.standing(other, now) < mine
            for other, use in self.active.items()
        )

    def reconfigure(self, now: float) -> None:
        """Shares and limits have changed: they count from now on."""
        self.bounds.reconfigure()
        for job, use in self._jobs.items():
            use.settled(now)
            use.share = self._shares.get(job, 1.0)
        self._shares_active = sum(use.share for use in self.active.values())

    def _level_to_start_from(self, now: float) -> float:
        """Looked up once for every instant."""
        if now != self._looked_at:
            self._looked_at = now
            levels = [(use.settled(now), use.wanting) for use in self.active.values()]
            self._highest = max([self._highest, *(level for level, _ in levels)])
            # While no job is short of cores, none is owed any.
            wanting = (level for level, is_short in levels if is_short)
            self._virtual = min(wanting, default=self._highest)
        return self._virtual

    def _activate(self, job: JobId, use: _JobUse) -> None:
        self.active[job] = use
        self._shares_active += use.share

    def _rest(self, job: JobId, use: _JobUse) -> None:
        del self.active[job]
        self._shares_active = self._shares_active - use.share if self.active else 0.0

    def _opened(self, job: JobId, now: float) -> _JobUse:
        """The account of a job that has none."""
        use = _JobUse(self._floor, self._shares.get(job, 1.0), now)
        if len(self._jobs) >= MOST_JOBS:
            self._forget()
        self._jobs[job] = use
        return use

    def _forget(self) -> None:
        """Those that got least of the ones that are gone: they would begin higher, not lower."""
        gone = [(use.level, job) for job, use in self._jobs.items() if job not in self.active]
        for level, job in sorted(gone)[: (len(gone) + 1) // 2]:
            self._floor = max(self._floor, level)
            del self._jobs[job]


class NodeUse:
    """The part of an account that belongs to one node, which may be lost."""

    __slots__ = ("_cores", "_held", "_wanting", "pool")

    def __init__(self, pool: CoreUse, cores: int) -> None:
        self.pool = pool
        self._cores = cores
        pool.cores += cores
        self._held: dict[JobId, int] = {}
        self._wanting: dict[JobId, int] = {}

    def want(self, job: JobId, now: float) -> None:
        """See `CoreUse`."""
        _add(self._wanting, job, 1)
        self.pool.want(job, now)

    def unwant(self, job: JobId) -> None:
        """See `CoreUse`."""
        _add(self._wanting, job, -1)
        self.pool.unwant(job)

    def hold(self, job: JobId, units: int, now: float) -> None:
        """See `CoreUse`."""
        if units:
            _add(self._held, job, units)
            self.pool.hold(job, units, now)

    def wants(self, job: JobId) -> bool:
        """Has `job` tickets here that want cores and have none?"""
        return job in self._wanting

    def lose(self, now: float) -> None:
        """The node is gone, and nothing is held or wanted there."""
        self.pool.cores -= self._cores
        for job, units in self._held.items():
            self.pool.hold(job, -units, now)
        for job, count in self._wanting.items():
            for _ in range(count):
                self.pool.unwant(job)


def _add(counts: dict[JobId, int], job: JobId, units: int) -> None:
    """To one of some counts; those that are zero leave."""
    total = counts.get(job, 0) + units
    if total:
        counts[job] = total
    else:
        del counts[job]


def enter(ticket: Ticket) -> None:
    """`ticket` begins to want cores; it has done nothing yet."""
    amounts, curve = ticket.form.amounts, ticket.curve or DEFAULT
    if ticket.form.is_elastic:
        ticket.area = fixed_widths(amounts, curve).area
    else:
        is_curved = ticket.action.needs.elastic is not None
        ticket.pace = curve.speed(amounts[0]) if is_curved else 1.0
        ticket.area = amounts[0] / ticket.pace
    ticket.widths = None
    ticket.held = {}
    ticket.done_s = 0.0
    ticket.units = 0
    ticket.rank = ticket.area * ticket.belief.rank_s(0.0)
    ticket.slack_s = _slack_s(ticket, ticket.belief.mean_s)
    ticket.key = ticket.submitted_at + ticket.slack_s


def refresh(ticket: Ticket, now: float) -> None:
    """Rank and virtual deadline of `ticket`, which has started, after what it has done."""
    ticket.count_work(now)
    cell = ticket.cell
    if cell is not None and ticket.action.work_s is None:
        if ticket.action.problem and ticket.done_s > ticket.belief.median_s:
            cell.reach(ticket.action.id, ticket.done_s)
        ticket.belief = cell.belief()
    ticket.rank = ticket.area * ticket.belief.rank_s(ticket.done_s)
    had_s = ticket.had_s(now)
    ticket.slack_s = max(ticket.slack_s, _slack_s(ticket, ticket.done_s), had_s)
    ticket.key = ticket.submitted_at + had_s + ticket.slack_s


def _slack_s(ticket: Ticket, work_s: float) -> float:
    alpha = ALPHA if ticket.form.is_elastic else RIGID_ALPHA
    return min(alpha * ticket.area * work_s, SLACK_CAP_S)


def firm_rank(ticket: Ticket) -> float:
    """Running work with at most this rank does not give way to `ticket`."""
    return (ticket.rank + SWITCH_S * ticket.form.amounts[0]) / CLEARLY


def gives_way(other: Ticket, ticket: Ticket, use: CoreUse, *, firm: float, now: float) -> bool:
    """Does `other`, which has cores, give them up for `ticket`, whose `firm_rank` is `firm`?"""
    if other.stopping is not None or not other.units:
        return False
    if other.job != ticket.job:
        if use.bounds.least:
            is_entitled, is_kept = use.is_entitled(ticket.job), use.is_kept(other.job, other.units)
            if is_entitled != is_kept:
                return is_entitled
        taken, given = ticket.form.amounts[0], other.units
        lead = use.lead(ticket.job, other.job, now, taken=taken, given=given)
        gap = use.gap(ticket.job, now)
        if lead < -gap:
            return True  # It would be clearly behind even then.
        if lead > gap:
            return False
    return (
        now < other.key and (ticket.key <= now or other.rank > firm) and may_preempt(ticket, other)
    )
