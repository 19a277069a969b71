"""Plans for pools of replicas: which class reads and which one writes the turns of each task.

Whatever a replica reads stops all that it writes. A request by itself gains little by a second
replica; the gain is that prompts no longer hold up answers, and only if all requests of a task
do the same. So plans are compared, by the mean seconds of a turn in a closed
system: as many turns are in flight as now, and each class writes when it does not read.
Without a split a task may be divided between classes; a split must beat the best of those.
"""

from collections.abc import Iterator, Mapping
from itertools import permutations
from math import inf

from msgspec import Struct

from artangram.core.rollout.costs import Rates

PARTS = 4
"""Number of parts in which a task is divided between two classes."""
_ROUNDS = 20
"""Halvings of an interval: far finer than the means that go in."""
_SWEEPS = 2
"""Times that each task is given the best place beside the others."""


class Pool(Struct, frozen=True, kw_only=True, gc=False):
    """The replicas of one class."""

    replicas: int
    rates: Rates


class TaskDemand(Struct, frozen=True, kw_only=True, gc=False):
    """The turns of one task."""

    share: float
    """Of all turns."""
    prefill: float
    """Tokens that are read in one, what was forgotten included."""
    decode: float
    move_s: float
    """To bring what was read to another replica."""


class Flow(Struct, frozen=True, gc=False):
    """A part of a task's turns: the class that reads them, and the one that writes."""

    reads: str
    writes: str
    part: float = 1.0

    @property
    def is_split(self) -> bool:
        return self.reads != self.writes


Placed = tuple[Flow, ...]
"""Where one task's turns go."""
Plan = Mapping[str, Placed]


class Planner:
    """Looks for the plan with the shortest turns: see the module."""

    def __init__(
        self, pools: Mapping[str, Pool], demands: Mapping[str, TaskDemand], *, turns: float
    ) -> None:
        """`turns` are in flight at a time."""
        self._pools = pools
        self._demands = demands
        self._turns = turns

    def best(self, *, splits: bool) -> tuple[float, Plan]:
        """The mean seconds of a turn and the plan that reaches them; with splits or without."""
        options = list(self._options(splits=splits))
        plan: dict[str, Placed] = dict.fromkeys(self._demands, options[0])
        for task in [*self._demands] * _SWEEPS:
            plan = min((plan | {task: one} for one in options), key=self.turn_s)
        return self.turn_s(plan), plan

    def turn_s(self, plan: Plan) -> float:
        """Find the rate at which `turns` are in flight, and from it what each turn takes."""
        low, high = 0.0, min(self._most_per_s(plan), self._turns / self._mean_s(plan, per_s=0.0))
        for _ in range(_ROUNDS):
            middle = 0.5 * (low + high)
            if middle * self._mean_s(plan, per_s=middle) < self._turns:
                low = middle
            else:
                high = middle
        return self._turns / high

    def _options(self, *, splits: bool) -> Iterator[Placed]:
        for name in self._pools:
            yield (Flow(name, name),)
        for first, second in permutations(self._pools, 2):
            if splits:
                yield (Flow(first, second),)
            if first < second:
                for part in range(1, PARTS):
                    there = part / PARTS
                    yield (Flow(first, first, 1.0 - there), Flow(second, second, there))

    def _most_per_s(self, plan: Plan) -> float:
        """Turns a second of which one class could do nothing but read."""
        return 1.0 / max(self._reading(plan, per_s=1.0).values())

    def _reading(self, plan: Plan, *, per_s: float) -> dict[str, float]:
        """The share of its time for which each class reads."""
        shares = dict.fromkeys(self._pools, 0.0)
        for demand, flow in self._flows(plan):
            pool = self._pools[flow.reads]
            read_s = demand.prefill / pool.rates.prefill_per_s
            shares[flow.reads] += per_s * demand.share * flow.part * read_s / pool.replicas
        return shares

    def _mean_s(self, plan: Plan, *, per_s: float) -> float:
        reading = self._reading(plan, per_s=per_s)
        token_s = self._token_s(plan, reading, per_s=per_s)
        total_s = 0.0
        for demand, flow in self._flows(plan):
            busy = reading[flow.reads]
            read_s = demand.prefill / self._pools[flow.reads].rates.prefill_per_s
            # Readers serve one after the other: the mean wait of a queue with equal jobs.
            read_s *= 1.0 + 0.5 * busy / (1.0 - busy)
            move_s = demand.move_s if flow.is_split else 0.0
            write_s = demand.decode * token_s[flow.writes]
            total_s += demand.share * flow.part * (read_s + move_s + write_s)
        return total_s

    def _token_s(
        self, plan: Plan, reading: Mapping[str, float], *, per_s: float
    ) -> dict[str, float]:
        """Of one answer on each class: the more tokens a second, the more company it has."""
        tokens_per_s = dict.fromkeys(self._pools, 0.0)
        for demand, flow in self._flows(plan):
            tokens_per_s[flow.writes] += per_s * demand.share * flow.part * demand.decode
        found = {}
        for name, pool in self._pools.items():
            writes = 1.0 - reading[name]
            crowd = tokens_per_s[name] / pool.replicas * pool.rates.company_token_s / writes
            found[name] = pool.rates.alone_token_s / writes / (1.0 - crowd) if crowd < 1.0 else inf
        return found

    def _flows(self, plan: Plan) -> Iterator[tuple[TaskDemand, Flow]]:
        for task, placed in plan.items():
            for flow in placed:
                yield self._demands[task], flow
