"""ARL-Tangram's published algorithm for one elastic pool: a DP and greedy eviction.

1. Candidates: the longest first-come prefix of the queue whose least amounts fit the free units.
2. A DP divides the free units among the candidates so that the sum of their durations is least.
   Mended against the published listing: it takes the best reachable total instead of demanding
   that every unit is used.
3. `Eviction` says which of them start.

The paper can be read in two ways. `tangram` holds back any candidate, so the order is strictly
first come, first served. `tangram:elastic` holds back only elastic ones: rigid candidates start at
once, also on cores for which an elastic one ahead of them was held back. Units are fixed at start.
"""

from collections.abc import Iterable

from artangram.core.scheduling.baselines.eviction import Eviction
from artangram.core.scheduling.baselines.fcfs import FcfsLane
from artangram.core.scheduling.needs import Amounts
from artangram.core.scheduling.policies.base import LaneContext, Ticket
from artangram.core.scheduling.policies.width import fixed_widths
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.speedup import DEFAULT


class TangramLane(FcfsLane):
    """One line in front of a CPU node, divided by DP and greedy eviction."""

    def __init__(self, node: CpuNode, context: LaneContext, *, holds_rigid: bool = True) -> None:
        super().__init__(node, context)
        self._holds_rigid = holds_rigid
        #: Running tickets and when each is expected to end.
        self._ends: dict[Ticket, float] = {}

    def dispatch(self, now: float) -> None:
        while candidates := self._prefix():
            chosen = self._chosen(candidates, now)
            if all([self._begin(ticket, units, now) for ticket, units in chosen]):
                return
            # A ticket that lacks another resource leaves its cores to the next ones: divide again.

    def _begin(self, ticket: Ticket, units: int, now: float) -> bool:
        """Take `ticket` out of the line and start it, unless it lacks another resource."""
        del self._line[ticket]
        if not self._context.seize_secondary(ticket, now):
            return False
        self._ends[ticket] = now + ticket.prepare_s + _duration(ticket, units)
        self._start_on(ticket, units, now, workers=units)
        return True

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

    def _chosen(self, candidates: list[Ticket], now: float) -> list[tuple[Ticket, int]]:
        """The candidates to start, with their sizes."""
        free = self._node.free
        rigid = [(t, t.form.amounts[0]) for t in candidates if not t.form.is_elastic]
        if len(rigid) == len(candidates):
            return rigid
        line: Iterable[Ticket] = self._line
        if not self._holds_rigid:
            free -= sum(units for _, units in rigid)
            candidates = [ticket for ticket in candidates if ticket.form.is_elastic]
            line = [ticket for ticket in self._line if ticket.form.is_elastic]
        ends = [max(end - now, 0.0) for end in self._ends.values()]
        eviction = Eviction(line, ends, amounts=_amounts, seconds=_duration)
        sizes = eviction.chosen(len(candidates), UnitDivision(candidates, free))
        chosen = list(zip(candidates, sizes, strict=False))
        return chosen if self._holds_rigid else rigid + chosen

    def give_back(self, ticket: Ticket, now: float) -> None:
        super().give_back(ticket, now)
        del self._ends[ticket]


class UnitDivision:
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
        units = self._used(count)
        sizes = []
        for index in range(count - 1, -1, -1):
            least = self._candidates[index].form.amounts[0]
            amount = self._choice[index][units] if self._choice[index] else least
            units -= amount - least
            sizes.append(amount)
        return sizes[::-1]

    def idle(self, count: int) -> int:
        """How many units the first `count` candidates leave."""
        return self._extra[count] - self._used(count)

    def _used(self, count: int) -> int:
        """The units beyond least amounts that give the first `count` the least total."""
        totals = self._best[count]
        return min(range(self._extra[count] + 1), key=totals.__getitem__)


def _amounts(ticket: Ticket) -> Amounts:
    return ticket.form.amounts


def _duration(ticket: Ticket, units: int) -> float:
    if not ticket.form.is_elastic:
        return ticket.work_s
    return ticket.work_s * fixed_widths(ticket.form.amounts, ticket.curve or DEFAULT).times[units]
