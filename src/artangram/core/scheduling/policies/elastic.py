"""Cores go to what is expected to end soonest, and are divided anew as others come and go.

- All actions, rigid and elastic, that run, wait or were preempted go by one rank: the core-seconds
  expected per chance to end, given what each has done (`ranking`).
- A running action gives its cores to one with a clearly smaller rank. It is preempted then: it has
  started, has no cores, and is a candidate like those that wait.
- Past its virtual deadline an action goes before everything with a later one: waiting is bounded.
- Running elastic actions give up cores down to their least amounts for whatever starts. How
  much each gets follows a price: the more actions are behind, the dearer a core, the narrower
  they run. Cores go where they add most speed among those whose ends are a guess.
"""

from artangram.core.ids import JobId
from artangram.core.scheduling.lease import Allocation, Cores
from artangram.core.scheduling.policies import ranking
from artangram.core.scheduling.policies.base import CpuLane, LaneContext, State, Ticket, WaitReason
from artangram.core.scheduling.policies.candidates import (
    Candidates,
    Crowd,
    Running,
    goes_first,
    is_guess,
    pressure_of,
    within_maximums,
)
from artangram.core.scheduling.policies.ranking import NodeUse
from artangram.core.scheduling.policies.shortcores import short_of_cores
from artangram.core.scheduling.policies.width import (
    TAIL,
    best_workers,
    divided,
    fixed_widths,
    malleable_widths,
)
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.speedup import DEFAULT

PASS_S = 0.25
"""Least time between two divisions when nothing elastic starts or ends, and between two looks at
how far running actions have come: a division costs much less without one."""

IDLE_S = 0.05
"""Least time between two divisions when cores came free that a running action might use: as long
as a short command on few cores, where every idle core counts."""

FREE_SQUEEZE = 0.01
"""Below this penalty an action starts with all the workers it can use, to grow as far as it may."""

MOST_PASSED = 4
"""The most candidates that narrower ones overtake because too few cores are free."""


class ElasticLane(CpuLane):
    """The queue of one CPU node whose actions are preempted and resized while they run."""

    def __init__(
        self, node: CpuNode, context: LaneContext, use: NodeUse, *, tail: float = TAIL
    ) -> None:
        super().__init__(node, context)
        self._tail = tail
        self._use = use
        self._rigid = Candidates(use.pool)
        self._elastic = Candidates(use.pool)
        self._running = Running(node.cores)
        #: Elastic tickets among the running that have no cores yet: `_divide` starts them.
        self._fresh: list[Ticket] = []
        self._num_lent = 0
        self._num_waiting = 0
        self._next_pass = 0.0
        self._last_pass = 0.0
        self._num_unused = 0  # Cores that no running action could use at the last division.
        #: Before that time, ranks are what they were when the lane last looked.
        self._next_look = 0.0
        #: Is it worth asking again whether the first elastic candidate may start?
        self._ask_elastic = True
        self._refused_rank = 0.0
        self._crowd = Crowd()
        #: Resumed in this dispatch. They are not preempted in it: by rank and by share, three jobs
        #: can preempt each other in a circle.
        self._resumed: set[Ticket] = set()

    def push(self, ticket: Ticket, now: float) -> None:
        ranking.enter(ticket)
        self._crowd.enter(ticket, len(self._node.trajectories))
        self._num_waiting += 1
        self._use.want(ticket.job, now)
        self._candidates_like(ticket).push(ticket)
        if ticket.form.is_elastic and ticket.rank < self._refused_rank:
            self._ask_elastic = True
        if not self.allows(ticket.job, ticket.form.amounts[0]):
            self._next_pass = now  # Others of its job become narrower for it.

    def withdraw(self, ticket: Ticket) -> None:
        self._num_waiting -= 1
        self._use.unwant(ticket.job)
        self._candidates_like(ticket).remove(ticket)
        self._crowd.leave(ticket)
        self._ask_elastic = True

    def num_waiting(self) -> int:
        return self._num_waiting

    def overdue(self, now: float) -> Ticket | None:
        both = (self._rigid.overdue(now), self._elastic.overdue(now))
        late = [ticket for ticket in both if ticket is not None]
        return min(late, key=lambda ticket: (ticket.key, ticket.seq), default=None)

    def give_back(self, ticket: Ticket, now: float) -> None:
        super().give_back(ticket, now)
        self._use.hold(ticket.job, -ticket.units, now)
        self._crowd.leave(ticket)
        if ticket.place is not None:
            self._use.unwant(ticket.job)
            self._candidates_like(ticket).remove(ticket)
            return
        self._running.remove(ticket)
        if ticket.form.is_elastic:
            self._next_pass = now
        if ticket.form.is_elastic or not self._running.elastic:
            self._ask_elastic = True  # Without a running elastic one, no division will ask again.

    def allows(self, job: JobId, units: int) -> bool:
        return self._use.pool.is_within(job, units)

    def bound_of(self, job: JobId) -> tuple[int | None, str]:
        return self._use.pool.bounds.of(job)

    def lends(self, units: int, now: float) -> bool:
        return units <= self._room()

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        self._squeeze(units, now)
        self._num_lent += units
        self._use.hold(ticket.job, units, now)
        return super().lend(ticket, units, now)

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        super().take_back(ticket, allocation, now)
        self._num_lent -= allocation.units
        self._use.hold(ticket.job, -allocation.units, now)
        self._ask_elastic = True

    def dispatch(self, now: float) -> None:
        self._resumed.clear()
        if self._elastic.is_reranked:
            self._elastic.is_reranked, self._ask_elastic = False, True
        if now >= self._next_look and (self._rigid.size or self._elastic.size):
            self._look(now)
        self._admit(now)
        if self._running.elastic and (self._fresh or now >= self._pass_at()):
            self._divide(now)
            if self._node.free and (self._elastic.size or self._use.pool.bounds.most):
                # No running action can use these cores: those that were refused may have them.
                self._admit(now)
                if self._fresh:
                    self._divide(now)
            self._last_pass, self._next_pass = now, now + PASS_S
            self._num_unused = self._node.free
        self.wake_at = self._next_wake(now)

    def _next_wake(self, now: float) -> float | None:
        at = self._pass_at() if self._running.elastic else None
        if (at is not None or self._running.rigid) and (self._rigid.size or self._elastic.size):
            at = self._next_look if at is None else min(at, self._next_look)
        return at if at is None or at > now else now

    def _pass_at(self) -> float:
        """When cores are to be divided anew if nothing elastic starts or ends."""
        if self._node.free > self._num_unused:
            return min(self._last_pass + IDLE_S, self._next_pass)
        return self._next_pass

    def _candidates_like(self, ticket: Ticket) -> Candidates:
        return self._elastic if ticket.form.is_elastic else self._rigid

    def _room(self) -> int:
        """Cores that could be had by squeezing every elastic action to its least amount."""
        running = self._running
        return self._node.cores - self._num_lent - running.rigid_units - running.least_units

    def _admit(self, now: float) -> None:
        """Let in what may have cores; elastic ones that start get theirs from `_divide`."""
        passed: list[Ticket] = []
        while (ticket := self._turn(now)) is not None and len(passed) <= MOST_PASSED:
            if self._is_refused(ticket, now):
                self._ask_elastic, self._refused_rank = False, ticket.rank
            elif (giving := self._giving_way(ticket, now)) is not None:
                self._let_in(ticket, giving, now)
            elif ticket.key <= now or ticket.form.amounts[0] == 1:
                break  # Nothing may pass an overdue one: the node drains. Nothing is narrower.
            else:
                self._candidates_like(ticket).remove(ticket)
                passed.append(ticket)
        for ticket in passed:
            self._candidates_like(ticket).push(ticket)

    def _turn(self, now: float) -> Ticket | None:
        """Whose turn it is; an elastic ticket that was refused is left out until it is overdue."""
        rigid = self._rigid.first(now) if self._rigid.size else None
        elastic = self._elastic.first(now) if self._elastic.size else None
        if elastic is not None and not self._ask_elastic and now < elastic.key:
            # Those of other jobs are left out with it, but for what is overdue in the rigid's own.
            elastic = None if rigid is None else self._elastic.overdue_of(rigid.job, now)
        if rigid is None or elastic is None:
            return rigid or elastic
        return rigid if goes_first(self._use.pool, rigid, elastic, now) else elastic

    def _is_refused(self, ticket: Ticket, now: float) -> bool:
        """Would elastic work with a smaller rank be worth more of the cores than leaves room?"""
        if not ticket.form.is_elastic or ticket.key <= now or is_guess(ticket):
            return False
        if self._is_behind(ticket, now):
            return False
        cores = self._node.cores - self._num_lent - self._running.rigid_units
        behind = len(self._running.elastic) + self._elastic.size - 2
        firm = ranking.firm_rank(ticket)
        return not self._running.has_room_for(ticket, cores, behind=behind, firm=firm)

    def _giving_way(self, ticket: Ticket, now: float) -> list[Ticket] | None:
        """Running tickets to preempt so that `ticket` fits; `None` if all would not be enough."""
        lacking = ticket.form.amounts[0] - self._room()
        giving: list[Ticket] = []
        if lacking <= 0:
            return giving
        firm = ranking.firm_rank(ticket)
        is_behind = self._is_behind(ticket, now)
        if now < ticket.key and self._running.largest_rank() <= firm and not is_behind:
            return None
        for other in self._running.last_first():
            if other.rank <= firm and now < ticket.key and not is_behind:
                return None  # Nor do those with smaller ranks give way.
            if other in self._resumed:
                continue
            if ranking.gives_way(other, ticket, self._use.pool, firm=firm, now=now):
                giving.append(other)
                lacking -= other.form.amounts[0]
                if lacking <= 0:
                    return giving
        return None

    def _is_behind(self, ticket: Ticket, now: float) -> bool:
        """Have other jobs so much more than its own that they owe it cores?"""
        return self._use.pool.is_behind(ticket.job, ticket.form.amounts[0], now)

    def _preempt(self, ticket: Ticket, now: float) -> None:
        self._running.remove(ticket)
        self._resize(ticket, 0, now)
        self._use.want(ticket.job, now)
        ranking.refresh(ticket, now)
        self._candidates_like(ticket).push(ticket)
        self._ask_elastic = True

    def _let_in(self, ticket: Ticket, giving: list[Ticket], now: float) -> None:
        """Give `ticket` its least amount, or a place in `_fresh`; preempt those `giving` way."""
        self._candidates_like(ticket).remove(ticket)
        self._use.unwant(ticket.job)
        is_new = ticket.state is State.WAITING
        self._num_waiting -= is_new
        if is_new and not self._context.seize_secondary(ticket, now):
            self._crowd.leave(ticket)
            return
        for other in giving:
            self._preempt(other, now)
        if is_new:
            self._start(ticket, now)
        else:
            self._squeeze(ticket.form.amounts[0], now)
            self._running.add(ticket)
            self._resumed.add(ticket)
            self._resize(ticket, ticket.form.amounts[0], now)

    def _start(self, ticket: Ticket, now: float) -> None:
        least = ticket.form.amounts[0]
        self._use.hold(ticket.job, least, now)
        ticket.updated_at = now + ticket.prepare_s
        if ticket.form.is_elastic:
            amounts, curve = ticket.form.amounts, ticket.curve or DEFAULT
            ticket.workers = self._workers(ticket)
            penalty = self._node.squeeze_penalty
            ticket.widths = malleable_widths(amounts, curve, ticket.workers, penalty)
            self._running.add(ticket)
            self._fresh.append(ticket)
        else:
            self._squeeze(least, now)
            self._running.add(ticket)
            self._start_on(ticket, least, now, workers=least)

    def _workers(self, ticket: Ticket) -> int:
        """The degree `ticket` starts with: no more than make it faster.

        With cores for all of them free at this moment, nothing is about to be squeezed. Else one
        whose caller says how long it takes gets its size at today's price; any other one gets
        workers for the crowd and for the time after it.
        """
        node, running = self._node, self._running
        widths = fixed_widths(ticket.form.amounts, ticket.curve or DEFAULT)
        fastest = widths.best(0.0)
        if node.squeeze_penalty < FREE_SQUEEZE or node.free >= fastest:
            return fastest
        behind = running.num_longer(ticket.rank) + self._num_waiting
        if ticket.action.work_s is not None and not is_guess(ticket):
            return widths.best(pressure_of(ticket) * behind / node.cores)
        num_here = len(running) + self._rigid.size + self._elastic.size
        num_thinking = max(0, len(node.trajectories) - num_here)
        return best_workers(
            widths,
            ticket.belief,
            share=widths.largest_within(max(widths.least, node.cores // max(1, num_here))),
            lasts_s=self._crowd.lasts_s(node.cores, num_thinking),
            penalty=node.squeeze_penalty,
            price=behind / node.cores,
            tail=self._tail,
        )

    def _squeeze(self, units: int, now: float) -> None:
        """Free `units` cores by narrowing elastic actions with the largest ranks."""
        node = self._node
        for ticket in reversed(self._running.elastic):
            if node.free >= units:
                return
            surplus = ticket.units - ticket.form.amounts[0]
            if surplus > 0:
                self._resize(ticket, ticket.units - min(surplus, units - node.free), now)

    def _divide(self, now: float) -> None:
        """Give every running elastic action the cores it is worth now."""
        self._fresh = []
        self._ask_elastic = True
        if now >= self._next_look:
            self._look(now)
        sizes = within_maximums(self._use.pool, self._running.elastic, self._sizes())
        pairs = zip(self._running.elastic, sizes, strict=True)
        changes = [(ticket, size) for ticket, size in pairs if size != ticket.units]
        for ticket, size in changes:
            if size < ticket.units:
                self._resize(ticket, size, now)
        for ticket, size in changes:
            if ticket.state is State.WAITING:
                self._use.hold(ticket.job, size - ticket.form.amounts[0], now)
                self._start_on(ticket, size, now, workers=ticket.workers)
            elif size > ticket.units:
                self._resize(ticket, size, now)

    def _look(self, now: float) -> None:
        """How far have running actions come?"""
        self._next_look = now + PASS_S
        for ticket in (*self._running.elastic, *self._running.rigid):
            ranking.refresh(ticket, now)
        self._running.sort()

    def _sizes(self) -> list[int]:
        """What each running elastic action is worth, in their order, and what is left over."""
        running = self._running.elastic
        free = self._room()
        behind = len(running) + self._rigid.size + self._elastic.size
        cores = self._node.cores
        sizes = [ticket.form.amounts[0] for ticket in running]
        guesses: list[int] = []
        for index, ticket in enumerate(running):
            if free == 0:
                return sizes
            behind -= 1
            if is_guess(ticket):
                guesses.append(index)
                continue
            assert ticket.widths is not None
            least = sizes[index]
            price = behind * pressure_of(ticket) / cores
            sizes[index] = ticket.widths.best_within(price, least + free)
            free -= sizes[index] - least
        widths = [each for at in guesses if (each := running[at].widths) is not None]
        for index, size in zip(guesses, divided(widths, free), strict=True):
            free -= size - sizes[index]
            sizes[index] = size
        for index, ticket in enumerate(running):
            extra = min(free, ticket.workers - sizes[index])
            sizes[index] += extra
            free -= extra
        return sizes

    def _resize(self, ticket: Ticket, size: int, now: float) -> None:
        ticket.count_work(now)
        assert isinstance(ticket.allocation, Cores)
        cores = ticket.allocation.cores
        if size < ticket.units:
            # The last cores were taken when the first domain had no more: they go first.
            self._node.give_back(cores[size:])
            cores = cores[:size]
        else:
            near = cores[0] if cores else None
            cores += self._node.take(size - ticket.units, near=near)
        self._use.hold(ticket.job, size - ticket.units, now)
        ticket.units = size
        self._context.resize(ticket, Cores(self._node.resource, self._node.id, cores), now)

    def hindrance(self, ticket: Ticket, now: float) -> WaitReason:
        others = (other for queue in (self._rigid, self._elastic) for other in queue)
        ahead = sum(goes_first(self._use.pool, other, ticket, now) for other in others)
        pool, room = self._use.pool, self._room()
        return short_of_cores(ticket, self._node, pool, room=room, ahead=ahead, now=now)
