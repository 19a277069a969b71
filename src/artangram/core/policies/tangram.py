"""ARL-Tangram's published algorithm for one elastic pool: greedy eviction, DP, heap estimate.

1. Candidates: the longest first-come prefix of the queue whose least amounts fit the free units.
2. A DP divides the free units among the candidates so that the sum of their durations is least.
3. The objective adds an estimate for those left in the queue: each starts when the earliest of the
   running and newly started ends. The first of them may try `DEPTH` of its sizes.
4. The youngest candidate is dropped as long as that lowers the objective.

Mended against the published listing: an empty rest costs nothing, at least one candidate stays,
the DP takes the best reachable total instead of demanding that every unit is used, and idle units
count as an end at once. Units are fixed at start; the order is strictly first come, first served.
"""

from heapq import heapify, heapreplace
from itertools import islice

from artangram.core.lease import Cores
from artangram.core.policies.base import Desk, Ticket
from artangram.core.policies.fcfs import FcfsLane
from artangram.core.policies.width import fixed_widths
from artangram.core.pools.cpu import CpuNode
from artangram.core.speedup import DEFAULT

DEPTH = 2
"""Sizes the first action left in the queue may try; the paper finds 2 or 3 enough."""

LOOKAHEAD = 1024
"""Actions left in the queue that the estimate looks at: bounds the cost of a decision."""


class TangramLane(FcfsLane):
    """One line in front of a CPU node, divided by DP and greedy eviction."""

    def __init__(self, node: CpuNode, desk: Desk) -> None:
        super().__init__(node, desk)
        #: Running tickets and when each is expected to end.
        self._ends: dict[Ticket, float] = {}

    def dispatch(self, now: float) -> None:
        # Whoever lacks another resource leaves cores for those behind: divide again.
        while (candidates := self._prefix()) and not self._start_some(candidates, now):
            pass

    def _start_some(self, candidates: list[Ticket], now: float) -> bool:
        """Start those whom the division chose. Did all of them start?"""
        have_all_started = True
        for ticket, units in zip(candidates, self._select(candidates, now), strict=False):
            self._line.popleft()
            if self._desk.seize_sides(ticket, now):
                self._ends[ticket] = now + ticket.prepare_s + _duration(ticket, units)
                cores = Cores(self._node.resource, self._node.id, self._node.take(units))
                prepare_s = ticket.prepare_s
                self._desk.start(ticket, cores, workers=units, prepare_s=prepare_s, now=now)
            else:
                have_all_started = False
        return have_all_started

    def _prefix(self) -> list[Ticket]:
        """The longest prefix of the line whose least amounts fit together."""
        free = self._node.free
        candidates = []
        for ticket in self._line:
            free -= ticket.form.amounts[0]
            if free < 0:
                break
            candidates.append(ticket)
        return candidates

    def _select(self, candidates: list[Ticket], now: float) -> list[int]:
        """Sizes of the candidates to start, a prefix of them."""
        if not any(ticket.form.is_elastic for ticket in candidates):
            return [ticket.form.amounts[0] for ticket in candidates]
        division = Division(candidates, self._node.free)
        sizes = division.sizes(len(candidates))
        best = self._objective(candidates, sizes, now)
        fewest = 0 if self._ends else 1
        for count in range(len(candidates) - 1, fewest - 1, -1):
            fewer = division.sizes(count)
            objective = self._objective(candidates[:count], fewer, now)
            if objective >= best:
                break
            best, sizes = objective, fewer
        return sizes

    def _objective(self, chosen: list[Ticket], sizes: list[int], now: float) -> float:
        durations = [_duration(t, units) for t, units in zip(chosen, sizes, strict=True)]
        ends = [max(end - now, 0.0) for end in self._ends.values()] + durations
        idle = self._node.free - sum(sizes)
        rest = list(islice(self._line, len(chosen), len(chosen) + LOOKAHEAD))
        return sum(durations) + _estimate(rest, ends + [0.0] * min(idle, len(rest)))

    def give_back(self, ticket: Ticket, now: float) -> None:
        super().give_back(ticket, now)
        del self._ends[ticket]


class Division:
    """The best division of units among every prefix of the candidates, in one DP.

    Dropping the youngest candidate only shortens the prefix, so one table serves all of them.
    """

    def __init__(self, candidates: list[Ticket], free: int) -> None:
        self._candidates = candidates
        #: Units beyond the least amounts that a prefix of each length may divide.
        self._extra = [free]
        for ticket in candidates:
            self._extra.append(self._extra[-1] - ticket.form.amounts[0])
        self._choice: list[list[int]] = []
        self._best: list[list[float]] = [[0.0] * (free + 1)]
        for ticket in candidates:
            self._add(ticket, free)

    def _add(self, ticket: Ticket, most: int) -> None:
        before = self._best[-1]
        if not ticket.form.is_elastic:
            work_s = ticket.work_s
            self._best.append([total + work_s for total in before])
            self._choice.append([])
            return
        least = ticket.form.amounts[0]
        best = [float("inf")] * (most + 1)
        choice = [0] * (most + 1)
        for amount in ticket.form.amounts:
            extra = amount - least
            duration = _duration(ticket, amount)
            for units in range(extra, most + 1):
                total = before[units - extra] + duration
                if total < best[units]:
                    best[units], choice[units] = total, amount
        self._best.append(best)
        self._choice.append(choice)

    def sizes(self, count: int) -> list[int]:
        """The sizes of the first `count` candidates."""
        totals = self._best[count]
        units = min(range(self._extra[count] + 1), key=totals.__getitem__)
        sizes = []
        for index in range(count - 1, -1, -1):
            least = self._candidates[index].form.amounts[0]
            amount = self._choice[index][units] if self._choice[index] else least
            units -= amount - least
            sizes.append(amount)
        return sizes[::-1]


def _estimate(rest: list[Ticket], ends: list[float]) -> float:
    """Sum of completion times of `rest`, each at its least amount on the next end."""
    if not rest:
        return 0.0
    heapify(ends)
    first, *others = rest
    durations = [_least_duration(ticket) for ticket in others]
    return min(
        _chain([_duration(first, amount), *durations], ends.copy())
        for amount in first.form.amounts[:DEPTH]
    )


def _chain(durations: list[float], ends: list[float]) -> float:
    total = 0.0
    for duration in durations:
        end = ends[0] + duration
        total += end
        heapreplace(ends, end)
    return total


def _least_duration(ticket: Ticket) -> float:
    return _duration(ticket, ticket.form.amounts[0])


def _duration(ticket: Ticket, units: int) -> float:
    if not ticket.form.is_elastic:
        return ticket.work_s
    return ticket.work_s * fixed_widths(ticket.form.amounts, ticket.curve or DEFAULT).times[units]
