"""Which share of each task's turns belongs on which class, and what a turn costs elsewhere.

- The plan is the division of all tasks between the classes with the shortest turns (`plans`), for
  as many turns as are in flight. It is made again as the mix shifts, and changes for a clear gain.
- A price is what all turns together lose by one more turn of a task on a class. It is zero while
  the class has no more of the task than the plan says, and keeps sessions from a class that others
  need more.
- Nothing is forced: a request goes where its cost of the moment is least, the prices of this turn
  and of its session's later turns included.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from artangram.core.rollout.costs import Candidate, Costs, FadingMean, RoutedRequest
from artangram.core.rollout.plans import Plan, Planner, Pool, TaskDemand

_FIRST_LOOKS = (16, 64, 256)
"""Requests after which the first plans are made: little is known then."""
_SLACK = 0.25
"""A class may have this much more of a task than its share before the whole price is asked."""
_MEMORY = 1 / 64
"""Weight of a task's latest turn in what each class has of it."""


class ClassShares:
    """See the module. No clock, no I/O."""

    def __init__(self, costs: Costs, *, margin: float, look_every: int) -> None:
        self._costs = costs
        self._margin = margin
        self._look_every = look_every
        self._turns = FadingMean()
        self._asked: dict[str, float] = {}
        self._plan: Plan = {}
        self._prices_s: dict[str, dict[str, float]] = {}
        self._placed: dict[str, dict[str, float]] = {}
        self.plans = 0
        """Times that the plan changed."""

    def saw(self, wanted: RoutedRequest, candidates: Sequence[Candidate]) -> None:
        """Take note of a request; now and then make the plan again."""
        self._turns.add(1.0 + sum(one.turns for one in candidates))
        self._asked[wanted.task] = self._asked.get(wanted.task, 0.0) + 1.0
        count = self._turns.count
        if count in _FIRST_LOOKS or count % self._look_every == 0:
            self._look(candidates)

    def of(self, task: str) -> dict[str, float]:
        """The share of the task that each class is to have; empty without a plan."""
        shares: dict[str, float] = {}
        for flow in self._plan.get(task, ()):
            shares[flow.writes] = shares.get(flow.writes, 0.0) + flow.part
        return shares

    def home(self, task: str) -> str | None:
        """The class with most of it."""
        shares = self.of(task)
        return max(shares, key=shares.__getitem__, default=None)

    def went(self, task: str, hardware: str) -> None:
        """A turn of the task was given to that class."""
        placed = self._placed.setdefault(task, {})
        for name in placed.keys() | {hardware}:
            before = placed.get(name, 0.0)
            placed[name] = before + _MEMORY * ((name == hardware) - before)

    def price_s(self, task: str, hardware: str) -> float:
        """Of one turn there: all of it on a class without a share, else as far as it has more."""
        price_s = self._prices_s.get(task, {}).get(hardware, 0.0)
        share = self.of(task).get(hardware, 0.0) if price_s else 0.0
        if not share:
            return price_s
        excess = self._placed.get(task, {}).get(hardware, 0.0) - share
        return price_s * min(1.0, max(0.0, excess / _SLACK))

    def _look(self, candidates: Sequence[Candidate]) -> None:
        counts = Counter(one.hardware for one in candidates)
        demands = self._demands()
        if len(counts) < 2 or not demands:
            self._plan, self._prices_s = {}, {}
            return
        speeds = self._costs.speeds
        pools = {name: Pool(replicas=n, rates=speeds.of(name)) for name, n in counts.items()}
        planner = Planner(pools, demands, turns=self._turns.value)
        kept = {task: placed for task, placed in self._plan.items() if task in demands}
        is_kept = kept.keys() == demands.keys() and all(
            flow.writes in pools for placed in kept.values() for flow in placed
        )
        best_s, plan = planner.best(splits=False, start=kept if is_kept else None)
        if not is_kept or best_s < planner.turn_s(kept) * (1.0 - self._margin):
            self._plan = plan
            self.plans += 1
        self._prices_s = planner.prices_s(self._plan)
        # What was asked long ago says little about the mix of now.
        self._asked = {task: 0.5 * count for task, count in self._asked.items()}

    def _demands(self) -> Mapping[str, TaskDemand]:
        """Of the tasks of which a turn has ended."""
        typical = {task: self._costs.habits.typical(task) for task in self._asked}
        known = {task: work for task, work in typical.items() if work is not None}
        total = sum(self._asked[task] for task in known)
        return {
            task: TaskDemand(
                share=self._asked[task] / total,
                prefill=work.prefill,
                decode=work.decode,
                context=self._costs.habits.prompt(task),
            )
            for task, work in known.items()
        }
