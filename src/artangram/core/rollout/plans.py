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

PARTS = 8
"""Number of parts in which a task is divided between two classes."""
_ROUNDS = 20
"""Halvings of an interval: far finer than the means that go in."""
_SWEEPS = 2
"""Times that each task is given the best place beside the others."""
_TRIED = 1 / 4
"""Part of a task's turns that is moved to see what it costs."""
_SMALL = 1e-12


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
    move_s: float = 0.0
    """To bring what was read to another replica."""
    context: float | None = None
    """Mean tokens of its prompts; long ones slow down the answers beside them."""


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

    def best(self, *, splits: bool, start: Plan | None = None) -> tuple[float, Plan]:
        """The mean seconds of a turn and the plan that reaches them; with splits or without.

        With a plan to start from, each task is looked at once.
        """
        options = list(self._options(splits=splits))
        plan: dict[str, Placed] = dict.fromkeys(self._demands, options[0])
        plan |= {task: placed for task, placed in (start or {}).items() if task in plan}
        for task in [*self._demands] * (_SWEEPS if start is None else 1):
            tried = [plan[task], *options]
            plan = min((plan | {task: one} for one in tried), key=self.turn_s)
        return self.turn_s(plan), plan

    def turn_s(self, plan: Plan) -> float:
        """Find the rate at which `turns` are in flight, and from it what each turn takes."""
        loads, move_s = self._loads(plan)
        low = 0.0
        high = 1.0 / max(load.reading for load in loads)  # One class does nothing but read.
        high = min(high, self._turns / max(_SMALL, _mean_s(loads, move_s, per_s=0.0)))
        for _ in range(_ROUNDS):
            middle = 0.5 * (low + high)
            if middle * _mean_s(loads, move_s, per_s=middle) < self._turns:
                low = middle
            else:
                high = middle
        return self._turns / high

    def prices_s(self, plan: Plan) -> dict[str, dict[str, float]]:
        """By task and class: what all turns together lose by a turn there beyond the plan.

        The task's other places have as much less.
        """
        now_s = self.turn_s(plan)
        found = {}
        for task, placed in plan.items():
            scaled = tuple(Flow(one.reads, one.writes, one.part * (1.0 - _TRIED)) for one in placed)
            moved = _TRIED * self._demands[task].share
            found[task] = {
                name: max(0.0, self._with(plan, task, (*scaled, Flow(name, name, _TRIED))) - now_s)
                / moved
                for name in self._pools
            }
        return found

    def _with(self, plan: Plan, task: str, placed: Placed) -> float:
        return self.turn_s({**plan, task: placed})

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

    def _loads(self, plan: Plan) -> tuple[list["_Load"], float]:
        """What a turn adds to each class, and the seconds it moves."""
        loads = {name: _Load(pool) for name, pool in self._pools.items()}
        move_s = 0.0
        for task, placed in plan.items():
            demand = self._demands[task]
            for flow in placed:
                share = demand.share * flow.part
                loads[flow.reads].read_s += share * demand.prefill * loads[flow.reads].read_token_s
                loads[flow.writes].write(share * demand.decode, demand.context)
                if flow.is_split:
                    move_s += share * demand.move_s
        return list(loads.values()), move_s


class _Load:
    """Of one class, for one turn of the mix."""

    __slots__ = (
        "alone_s",
        "company_s",
        "context",
        "context_s",
        "crowd_s",
        "read_s",
        "read_token_s",
        "replicas",
        "tokens",
    )

    def __init__(self, pool: Pool) -> None:
        self.replicas = pool.replicas
        self.read_token_s = 1.0 / pool.rates.prefill_per_s
        self.alone_s = pool.rates.alone_token_s
        self.company_s = pool.rates.company_token_s
        self.context = pool.rates.context
        self.context_s = pool.rates.context_token_s
        self.read_s = 0.0
        self.tokens = 0.0
        self.crowd_s = 0.0
        """What its tokens add to those of others."""

    def write(self, tokens: float, context: float | None) -> None:
        longer = 0.0 if context is None else max(0.0, context - self.context)
        self.tokens += tokens
        self.crowd_s += tokens * (self.company_s + longer * self.context_s)

    @property
    def reading(self) -> float:
        """The share of its time for which it reads, at one turn a second."""
        return max(self.read_s / self.replicas, _SMALL)

    def seconds(self, per_s: float) -> float:
        """To read and to write its part of a turn."""
        busy = per_s * self.reading
        # Readers serve one after the other: the mean wait of a queue with equal jobs.
        read_s = self.read_s * (1.0 + 0.5 * busy / (1.0 - busy))
        # The more tokens a second, the more company an answer has; and no reader writes.
        crowd = per_s * self.crowd_s / self.replicas / (1.0 - busy)
        if crowd >= 1.0:
            return inf
        return read_s + self.tokens * self.alone_s / (1.0 - busy) / (1.0 - crowd)


def _mean_s(loads: list[_Load], move_s: float, *, per_s: float) -> float:
    return move_s + sum(load.seconds(per_s) for load in loads)
