"""Cores of running actions are divided anew as others come and go: ours, for CPU nodes.

- Rigid and elastic actions go by one virtual deadline (`RankedLane`). Nobody passes an overdue
  action, so waiting is bounded.
- A running elastic action gives cores to others down to its least amount, and all of them to
  rigid work that is shorter and goes first: it stands aside then, without cores, until there is
  room for it again. Past its virtual deadline it does not, so that is bounded as waiting is.
- Who gets how much follows a price: the more actions are behind, the dearer a core, the narrower
  everybody runs. Left-over cores go to who is nearest to its end.
"""

from artangram.core.scheduling.estimates import residual_s
from artangram.core.scheduling.lease import Allocation, Cores
from artangram.core.scheduling.policies.base import Hindrance, LaneContext, State, Ticket
from artangram.core.scheduling.policies.cpulane import RankedLane
from artangram.core.scheduling.policies.preempted import Preempted, passes
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.running import Running
from artangram.core.scheduling.policies.width import fixed_widths, malleable_widths
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.speedup import DEFAULT

ALPHA = 10.0
"""Seconds of slack per core-second of elastic work. Any value from 5 up gives the same mean ACT,
but with more the longest of a step start later, and so the step ends later."""

RIGID_ALPHA = 30.0
"""The same for rigid work. Commands of milliseconds are soon overdue in a burst, and then it does
not matter any more how short they are."""

PRESSURE = 3.0
"""Weight of each action behind in the price: a poor size also delays those still to come."""

PASS_S = 0.25
"""Least time between two divisions when nothing elastic starts or ends, and between two looks at
how far the running have come: a division costs much less without one."""

IDLE_S = 0.05
"""Least time between two divisions when cores came free that somebody who runs might use: as long
as a short command on few cores, where every idle core counts."""

FREE_SQUEEZE = 0.01
"""Below this penalty an action starts with all the workers it can use, to grow as far as it may."""


class MalleableLane(RankedLane):
    """The queue of one CPU node whose elastic actions resize while they run."""

    def __init__(self, node: CpuNode, context: LaneContext, served: FairUsage) -> None:
        super().__init__(node, context, served)
        #: Elastic tickets, nearest to its end first as of the last division.
        self._running = Running(PRESSURE / node.cores)
        #: Those of them that have no cores yet: `_divide` starts them.
        self._fresh: list[Ticket] = []
        self._preempted = Preempted()
        self._rigid_units = 0
        #: The price from which on every elastic action seen here is worth its least amount.
        self._dear = 0.0
        self._next_pass = 0.0
        self._last_pass = 0.0
        #: Cores that nobody could use at the last division.
        self._num_unused = 0
        #: Before that time, work left is what it was when somebody last looked.
        self._next_look = 0.0
        #: Is it worth asking again whether the first elastic ticket may start?
        self._ask_elastic = True
        self._refused_work_s = 0.0

    def push(self, ticket: Ticket, now: float) -> None:
        form = ticket.form
        if not form.is_elastic:
            self._enqueue(ticket, area=ticket.work_s * form.amounts[0], alpha=RIGID_ALPHA)
            return
        area = fixed_widths(form.amounts, ticket.curve or DEFAULT).area
        self._enqueue(ticket, area=ticket.work_s * area, alpha=ALPHA)
        if ticket.work_s < self._refused_work_s:
            self._ask_elastic = True

    def withdraw(self, ticket: Ticket) -> None:
        super().withdraw(ticket)
        self._ask_elastic = True

    def give_back(self, ticket: Ticket, now: float) -> None:
        super().give_back(ticket, now)
        if ticket in self._preempted.tickets:
            self._preempted.tickets.remove(ticket)
        elif ticket.form.is_elastic:
            self._running.remove(ticket)
            self._ask_elastic = True
            self._next_pass = now
        else:
            self._give_back_rigid(ticket.units)

    def _give_back_rigid(self, units: int) -> None:
        self._rigid_units -= units
        if not self._running.tickets:
            self._ask_elastic = True  # No division will come to ask again.

    def lends(self, units: int, now: float) -> bool:
        first = self._preempted.first
        return units <= self._room() - (0 if first is None else first.form.amounts[0])

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        self._squeeze(units, now)
        self._rigid_units += units
        return super().lend(ticket, units, now)

    def take_back(self, allocation: Allocation, now: float) -> None:
        super().take_back(allocation, now)
        self._give_back_rigid(allocation.units)

    def dispatch(self, now: float) -> None:
        self._start_waiting(now)
        if self._running.tickets and (self._fresh or now >= self._pass_at()):
            self._divide(now)
            if self._node.free and len(self._elastic):
                # Nobody who runs can use these cores: those who were refused may have them.
                self._start_waiting(now)
                if self._fresh:
                    self._divide(now)
            self._last_pass, self._next_pass = now, now + PASS_S
            self._num_unused = self._node.free
            self.wake_at = None
        else:
            self.wake_at = self._pass_at() if self._running.tickets else None
        if self._elastic.size:
            self._wake_for_overdue(now)

    def _pass_at(self) -> float:
        """When cores are to be divided anew if nothing elastic starts or ends."""
        if self._node.free > self._num_unused:
            return min(self._last_pass + IDLE_S, self._next_pass)
        return self._next_pass

    def _wake_for_overdue(self, now: float) -> None:
        """An elastic ticket that is held back starts at its key, whatever the price."""
        first = self._elastic.peek()
        if first is not None and now < first.key:
            self.wake_at = first.key if self.wake_at is None else min(self.wake_at, first.key)

    def _room(self) -> int:
        """Cores that could be had by squeezing every elastic action to its least amount."""
        return self._node.cores - self._rigid_units - self._running.least_units

    def _start_waiting(self, now: float) -> None:
        """Start what may start; elastic tickets only join `_running`: `_divide` gives cores."""
        rigid, elastic, preempted = self._rigid, self._elastic, self._preempted.tickets
        while rigid.size or elastic.size or preempted:
            room = self._room()
            if room <= 0 and not self._running.tickets:
                return  # No core is free, and nobody could give one up.
            ticket = self._first(room, now)
            if ticket is None or not self._let_in(ticket, room, now):
                break

    def _first(self, room: int, now: float) -> Ticket | None:
        """Who gets cores next: one that waits, or one that stands aside and is not passed."""
        if room > 0:
            ticket = self._turn(now)
            preempted = self._preempted.to_resume(room, now) if self._preempted.tickets else None
            return ticket if preempted is None or passes(ticket, preempted) else preempted
        rigid = self._rigid.peek()
        if rigid is None or self._elastic.overdue_before(rigid, now) is not None:
            return None
        return rigid

    def _let_in(self, ticket: Ticket, room: int, now: float) -> bool:
        """Give `ticket` its turn. `False` if it has to wait, with everybody behind it."""
        least = ticket.form.amounts[0]
        if ticket.state is State.RUNNING:
            return self._resume(ticket, now)
        if ticket.form.is_elastic:
            return self._let_elastic_in(ticket, room, now)
        if least > room and least > room + self._running.units_for(ticket, least - room):
            # It can have the cores of who stands aside as soon as it fits: till then they are used.
            preempted = self._preempted.to_resume(room, now)
            return preempted is not None and now < ticket.key and self._resume(preempted, now)
        self._rigid.pop(ticket)
        self._start_rigid(ticket, now)
        return True

    def _let_elastic_in(self, ticket: Ticket, room: int, now: float) -> bool:
        is_overdue = now >= ticket.key
        if ticket.form.amounts[0] <= room and (is_overdue or self._may_start(ticket)):
            self._elastic.pop(ticket)
            self._join(ticket, now)
            return True
        if not is_overdue:
            self._ask_elastic = False
            self._refused_work_s = ticket.work_s
        return not is_overdue  # Nothing may pass an overdue one: let the node drain.

    def _preempt_for(self, ticket: Ticket, now: float) -> None:
        """Make room for `ticket` at the cost of longer ones that it passes."""
        for other in reversed(list(self._running.tickets)):
            if self._room() >= ticket.form.amounts[0]:
                return
            if other.units and passes(ticket, other):
                self._resize(other, 0, now)
                self._running.remove(other)
                self._preempted.add(other)

    def _resume(self, ticket: Ticket, now: float) -> bool:
        """Let one that stands aside run on with its least amount, if there is room."""
        least = ticket.form.amounts[0]
        if least > self._room():
            return False
        self._preempted.tickets.remove(ticket)
        self._squeeze(least, now)
        ticket.updated_at = max(ticket.updated_at, now)
        self._running.add(ticket)
        self._resize(ticket, least, now)
        return True

    def _turn(self, now: float) -> Ticket | None:
        """Whose turn it is; an elastic ticket that was refused is left out until it is overdue."""
        rigid = self._rigid.peek()
        if not self._elastic.size:
            return rigid
        elastic = self._elastic.peek()
        if elastic is not None and not self._ask_elastic and now < elastic.key:
            elastic = None
        if rigid is not None and (elastic is None or self._served.goes_first(rigid, elastic)):
            return self._elastic.overdue_before(rigid, now) or rigid
        if elastic is not None:
            return self._rigid.overdue_before(elastic, now) or elastic
        return None

    def _start_rigid(self, ticket: Ticket, now: float) -> None:
        if not self._context.seize_secondary(ticket, now):
            return
        units = ticket.form.amounts[0]
        self._served.charge(ticket, ticket.work_s * units)
        if self._running.tickets:
            self._preempt_for(ticket, now)
            self._squeeze(units, now)
        self._rigid_units += units
        self._start_on(ticket, units, now, workers=units)

    def _join(self, ticket: Ticket, now: float) -> None:
        if not self._context.seize_secondary(ticket, now):
            return
        amounts, curve = ticket.form.amounts, ticket.curve or DEFAULT
        least_area = amounts[0] * fixed_widths(amounts, curve).times[amounts[0]]
        self._served.charge(ticket, ticket.work_s * least_area)
        ticket.workers = self._workers(ticket)
        ticket.widths = malleable_widths(amounts, curve, ticket.workers, self._node.squeeze_penalty)
        ticket.done_s = 0.0
        ticket.work_left_s = residual_s(ticket.work_s, ticket.spread, 0.0)
        ticket.updated_at = now + ticket.prepare_s
        ticket.units = 0
        self._dear = max(self._dear, ticket.widths.dear)
        self._running.add(ticket)
        self._fresh.append(ticket)

    def _workers(self, ticket: Ticket) -> int:
        """The degree `ticket` starts with: no more than make it faster, and its size at today's
        price when squeezing costs speed.

        More workers could use cores that come free later, but until then they are squeezed. With
        cores for all of them free at this moment, nobody is about to be squeezed.
        """
        widths = fixed_widths(ticket.form.amounts, ticket.curve or DEFAULT)
        fastest = widths.best(0.0)
        if self._node.squeeze_penalty < FREE_SQUEEZE or self._node.free >= fastest:
            return fastest
        longer = len(self._running) - self._running.num_shorter(ticket.work_s)
        return widths.best(PRESSURE * (longer + self.num_waiting()) / self._node.cores)

    def _may_start(self, ticket: Ticket) -> bool:
        """Would there be cores for `ticket` if all with less work left got what they are worth?"""
        others = len(self._elastic) - 1
        if others * PRESSURE / self._node.cores >= self._dear:
            return True  # Nobody is worth more than its least amount, and that leaves room.
        cores = self._node.cores - self._rigid_units
        behind = len(self._running) + others - 1
        return self._running.has_room_for(ticket, cores, behind=behind)

    def _squeeze(self, units: int, now: float) -> None:
        """Free `units` cores by narrowing who has the most work left."""
        node = self._node
        for ticket in reversed(self._running.tickets):
            if node.free >= units:
                return
            surplus = ticket.units - ticket.form.amounts[0]
            if surplus > 0:
                self._resize(ticket, ticket.units - min(surplus, units - node.free), now)

    def _divide(self, now: float) -> None:
        """Give every running elastic action the cores it is worth now."""
        running, fresh = self._running, self._fresh
        self._fresh = []
        self._ask_elastic = True
        if self._room() == 0 and self._node.free == sum(t.form.amounts[0] for t in fresh):
            # Everybody has the least amount and there is nothing to divide.
            for ticket in fresh:
                self._start_on(ticket, ticket.form.amounts[0], now, workers=ticket.workers)
            return
        if now >= self._next_look:
            self._look(now)
        else:
            running.sort()
        sizes = self._sizes()
        pairs = zip(running.tickets, sizes, strict=True)
        changes = [(ticket, size) for ticket, size in pairs if size != ticket.units]
        for ticket, size in changes:
            if size < ticket.units:
                self._resize(ticket, size, now)
        for ticket, size in changes:
            if ticket.units == 0:
                self._start_on(ticket, size, now, workers=ticket.workers)
            elif size > ticket.units:
                self._resize(ticket, size, now)

    def _look(self, now: float) -> None:
        """See how far everybody has come, and put who is nearest to its end first."""
        for ticket in self._running.tickets:
            self._advance(ticket, now)
        self._running.sort()
        self._next_look = now + PASS_S

    def _sizes(self) -> list[int]:
        """What each of the running is worth, in their order, and who gets what is left over."""
        running = self._running.tickets
        free = self._room()
        behind = len(running) + len(self._preempted.tickets) + self.num_waiting()
        pressure = PRESSURE / self._node.cores
        sizes = [ticket.form.amounts[0] for ticket in running]
        for index, ticket in enumerate(running):
            if free == 0:
                return sizes
            behind -= 1
            assert ticket.widths is not None
            least = sizes[index]
            sizes[index] = ticket.widths.best_within(behind * pressure, least + free)
            free -= sizes[index] - least
        for index, ticket in enumerate(running):
            extra = min(free, ticket.workers - sizes[index])
            sizes[index] += extra
            free -= extra
        return sizes

    def _resize(self, ticket: Ticket, size: int, now: float) -> None:
        self._advance(ticket, now)
        assert isinstance(ticket.allocation, Cores)
        cores = ticket.allocation.cores
        if size < ticket.units:
            # The last cores were taken when the first domain had no more: they go first.
            self._node.give_back(cores[size:])
            cores = cores[:size]
        else:
            near = cores[0] if cores else None
            cores += self._node.take(size - ticket.units, near=near)
        ticket.units = size
        self._context.resize(ticket, Cores(self._node.resource, self._node.id, cores), now)

    def _advance(self, ticket: Ticket, now: float) -> None:
        """Subtract the work done since the last look from what is believed to be left."""
        elapsed = now - ticket.updated_at
        if elapsed <= 0.0 or ticket.units == 0:
            return
        assert ticket.widths is not None
        ticket.done_s += elapsed * ticket.widths.speed[ticket.units]
        ticket.work_left_s = residual_s(ticket.work_s, ticket.spread, ticket.done_s)
        ticket.updated_at = now

    def hindrance(self, ticket: Ticket, now: float) -> Hindrance:
        ahead = self._ahead(ticket) + len(self._preempted.tickets)
        room, needed = self._room(), ticket.form.amounts[0]
        return Hindrance(
            resource=self._node.resource,
            needed=needed,
            free=self._node.free,
            ahead=ahead,
            because=self._because(ticket, room, ahead, now),
            starts_when=self._starts_when(ticket, room, ahead, now),
        )

    def _starts_when(self, ticket: Ticket, room: int, ahead: int, now: float) -> str:
        if ticket.key <= now:
            return "its cores are free: it is overdue, and only what is so for longer goes before"
        needed, soonest = ticket.form.amounts[0], []
        if needed > room:
            soonest.append(f"{needed - room} more of the cores of {self._node.id} come back")
        if ahead:
            soonest.append(f"those ahead of it ({ahead}) have started")
        first = " and ".join(soonest) or "others end"
        return f"{first}; overdue in {ticket.key - now:.1f} s: nobody of its job passes it then"

    def _because(self, ticket: Ticket, room: int, ahead: int, now: float) -> str:
        needed = ticket.form.amounts[0]
        if needed > room:
            return f"needs {needed} of the cores of {self._node.id}, squeezing others frees {room}"
        if ahead:
            return f"actions with an earlier virtual deadline ({ahead}) go first on {self._node.id}"
        return "running actions nearer to their end are worth the cores more"
