"""Units are chosen once, at start: ours, for nodes where squeezing a running action costs too much.

- Order as in `malleable`: rigid and elastic actions go by one virtual deadline.
- Size by price: the more wait or will come, the narrower an action starts.
- An elastic action does not start narrow on the few cores that happen to be free when waiting for
  running actions to end gets it done sooner; it then reserves its future cores.
"""

import math
from bisect import bisect_left, insort

from msgspec import Struct

from artangram.core.scheduling.policies.base import Hindrance, LaneContext, Ticket
from artangram.core.scheduling.policies.cpulane import RankedLane
from artangram.core.scheduling.policies.profile import Profile
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.width import Widths, fixed_widths
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.speedup import DEFAULT

ALPHA = 30.0
"""Seconds of slack per core-second of work."""

MOST_HELD = 4
"""Elastic actions that may be held back with a reservation. Held, not started, ones count:
to stop after so many starts would leave cores idle."""

HORIZON = 24
"""Expected ends that a plan looks at."""

LOAD_S = 30.0
"""Time constant of the averages of load and queue."""

LOAD_WEIGHT = 4.0
MOST_LOAD = 16.0
"""Price of work still to come: rho / (1 - rho) actions, weighted, at most so many. An idle cluster
must not pay for a crowd that is not there."""


class _Plan(Struct):
    """When and how wide an action had best start. `step` 0 is now; `units` 0 is not yet."""

    step: int
    units: int


class MoldableLane(RankedLane):
    """The queue of one CPU node whose actions keep the cores they start with."""

    def __init__(self, node: CpuNode, context: LaneContext, served: FairUsage) -> None:
        super().__init__(node, context, served)
        #: Expected ends of running actions, ascending.
        self._releases: list[tuple[float, int, int]] = []
        self._release_of: dict[Ticket, tuple[float, int, int]] = {}
        self._work = 0.0
        self._work_at = 0.0
        self._mean_waiting = 0.0
        self._mean_at = 0.0
        #: Nothing elastic can start before one of these holds: so many cores, that time, that key.
        self._held_units = 0
        self._held_until = 0.0
        self._held_key = math.inf

    def push(self, ticket: Ticket, now: float) -> None:
        least = _widths(ticket).area if ticket.form.is_elastic else ticket.form.amounts[0]
        area = ticket.work_s * least
        self._enqueue(ticket, area=area, alpha=ALPHA)
        self._work = self._work * math.exp((self._work_at - now) / LOAD_S) + area
        self._work_at = now

    def give_back(self, ticket: Ticket, now: float) -> None:
        super().give_back(ticket, now)
        release = self._release_of.pop(ticket)
        del self._releases[bisect_left(self._releases, release)]

    def dispatch(self, now: float) -> None:
        self._average(now)
        may_plan, was_cut = True, False
        while self._node.free > 0:
            rigid = self._rigid.peek()
            elastic = self._elastic.peek() if may_plan else None
            if rigid is not None and (elastic is None or self._served.goes_first(rigid, elastic)):
                units = rigid.form.amounts[0]
                if units > self._node.free or self._elastic.overdue_before(rigid, now):
                    break
                self._rigid.pop(rigid)
                self._start(rigid, units, now)
                may_plan, was_cut = may_plan or was_cut, False
                continue
            if elastic is None:
                break
            if not self._is_held(elastic, now):
                was_cut = not self._plan(now)
                first = self._elastic.peek()
                if first is not None and now >= first.key and not was_cut:
                    break  # Overdue and still without cores: nothing may pass it.
            may_plan = False
        self._set_wake(now)

    def _is_held(self, first: Ticket, now: float) -> bool:
        """Would planning again come to the same end as last time?"""
        return (
            self._node.free < self._held_units
            and now < self._held_until
            and first.key >= self._held_key
            and now < first.key
        )

    def _set_wake(self, now: float) -> None:
        first = self._elastic.peek()
        if first is None or self._node.free == 0 or first.key <= now:
            self.wake_at = None  # Once overdue it takes what is free: only cores that come help.
        else:
            times = (at for at in (self._held_until, first.key) if now < at < math.inf)
            self.wake_at = min(times, default=None)

    def _average(self, now: float) -> None:
        if now > self._mean_at:
            keep = math.exp((self._mean_at - now) / LOAD_S)
            self._mean_waiting = keep * self._mean_waiting + (1 - keep) * self.num_waiting()
            self._mean_at = now

    def _crowd(self, now: float) -> float:
        """Actions expected to come while one runs, beside those that wait."""
        load = self._work * math.exp((self._work_at - now) / LOAD_S) / (LOAD_S * self._node.cores)
        coming = min(MOST_LOAD, LOAD_WEIGHT * load / (1 - load)) if load < 0.95 else MOST_LOAD
        return coming + self._mean_waiting

    def _plan(self, now: float) -> bool:
        """Start elastic tickets that had best start now; hold the others with a reservation.

        `False` if an overdue rigid ticket comes before the rest of them.
        """
        was_cut = False
        profile = Profile(now, self._node.free, self._releases[:HORIZON])
        crowd = self._crowd(now)
        held: list[Ticket] = []
        self._held_units, self._held_until = 1 << 30, math.inf
        while profile.free[0] > 0 and len(held) < MOST_HELD:
            ticket = self._elastic.peek()
            if ticket is None:
                break
            if self._rigid.overdue_before(ticket, now):
                was_cut = True
                break
            self._elastic.pop(ticket)
            price = (len(self._elastic) + len(held) + crowd) / self._node.cores
            plan = _best_plan(ticket, price, profile, now)
            if plan.units and plan.step == 0:
                if self._start(ticket, plan.units, now):
                    profile.subtract(plan.units, 0, now + _time(ticket, plan.units))
            else:
                held.append(ticket)
                self._hold(ticket, plan, profile)
                if now >= ticket.key:
                    break  # Overdue and still without cores: nothing may pass it.
        for ticket in held:
            self._elastic.push(ticket)
        self._held_key = min((ticket.key for ticket in held), default=math.inf)
        if not held:
            self._held_units = 0
        elif self._held_until == math.inf:
            self._held_until = now + 1.0
        return not was_cut

    def _hold(self, ticket: Ticket, plan: _Plan, profile: Profile) -> None:
        if plan.units == 0:
            self._held_units = min(self._held_units, ticket.form.amounts[0])
            return
        start = profile.times[plan.step]
        self._held_units = min(self._held_units, plan.units)
        self._held_until = min(self._held_until, start)
        profile.subtract(plan.units, plan.step, start + _time(ticket, plan.units))

    def _start(self, ticket: Ticket, units: int, now: float) -> bool:
        if not self._context.seize_secondary(ticket, now):
            return False
        seconds = _time(ticket, units)
        self._served.charge(ticket, seconds * units)
        release = (now + ticket.prepare_s + seconds, ticket.seq, units)
        insort(self._releases, release)
        self._release_of[ticket] = release
        self._start_on(ticket, units, now, workers=units)
        return True

    def hindrance(self, ticket: Ticket, now: float) -> Hindrance:
        ahead = self._ahead(ticket)
        free, least = self._node.free, ticket.form.amounts[0]
        return Hindrance(
            resource=self._node.resource,
            needed=least,
            free=free,
            ahead=ahead,
            because=f"{free} cores of {self._node.id} are free and {ahead} actions go first"
            if least > free or ahead
            else "it ends sooner by waiting for more cores than by starting narrow",
            starts_when=f"enough cores are given back, or in {max(0.0, ticket.key - now):.1f} s",
        )


def _best_plan(ticket: Ticket, price: float, profile: Profile, now: float) -> _Plan:
    """The start and size with the least time to the end, paying for the cores used."""
    widths = _widths(ticket)
    wanted = widths.best(price)
    units = min(wanted, widths.largest_within(profile.free[0]))
    best = _Plan(step=0, units=units)
    if units == wanted or (units and now >= ticket.key):
        return best
    best_cost = _cost(ticket, units, price) if units else math.inf
    seen = profile.free[0]
    for step in range(1, len(profile.times)):
        wait = profile.times[step] - now
        if wait >= best_cost:
            break
        if profile.free[step] <= seen:
            continue
        seen = profile.free[step]
        units = min(wanted, widths.largest_within(seen))
        if units and wait + _cost(ticket, units, price) < best_cost:
            best, best_cost = _Plan(step=step, units=units), wait + _cost(ticket, units, price)
        if units == wanted:
            break
    return best


def _widths(ticket: Ticket) -> Widths:
    return fixed_widths(ticket.form.amounts, ticket.curve or DEFAULT)


def _time(ticket: Ticket, units: int) -> float:
    return ticket.work_s * _widths(ticket).times[units] if ticket.form.is_elastic else ticket.work_s


def _cost(ticket: Ticket, units: int, price: float) -> float:
    return _time(ticket, units) * (1 + units * price)
