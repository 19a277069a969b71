"""May another group be opened, may another trajectory start, and if not, what does it wait for?

- Never more than `environments` trajectories hold an environment.
- Never more than (alpha + 1) x environments are held: running, scored, waiting for siblings, or
  in complete groups that no batch took yet. An opened group reserves room for all its siblings,
  so it can always be completed.
- Nothing starts that would be stale from its first token: the live weights must be within the
  bound.
- Demand-driven. Work started now serves the batch of this version while the trainer waits for
  it, else at the earliest the next one, and at the latest the one of `alpha` versions on: more
  than those batches need is never opened. Less is, when trajectories are short beside a step:
  then one batch ahead is enough, and data is fresh though the bound is wide.
- While new weights are on their way, what starts is that much older already and serves that many
  batches fewer; work for the last of them is opened when it can be sampled fresh enough.
- Each task is opened by its share of the batches ahead, so that fast tasks do not crowd out slow;
  and if others' groups fill the buffer all the same, one in the way is let go.
"""

from collections.abc import Mapping
from enum import StrEnum
from math import ceil

from msgspec import Struct

from artangram.core.errors import BadInput


class AdmissionLimits(Struct, frozen=True, kw_only=True):
    """How much may be in flight."""

    environments: int
    group_size: int
    max_staleness: int = 1
    extra_groups: int = 0
    """Opened beyond what batches need: the slowest are not waited for."""
    extra_siblings: int = 0
    """Started in each group beyond its size: the slowest are not waited for."""

    def __post_init__(self) -> None:
        for name in ("environments", "group_size"):
            if getattr(self, name) < 1:
                raise BadInput(name, f"{getattr(self, name)} is too few", "say 1 or more")
        for name in ("max_staleness", "extra_groups", "extra_siblings"):
            if getattr(self, name) < 0:
                raise BadInput(name, f"{getattr(self, name)} is negative", "say 0 or more")
        if self.most_held < self.launch_size:
            raise BadInput(
                "environments",
                f"{self.environments} never hold a group of {self.launch_size}",
                f"say {ceil(self.launch_size / (self.max_staleness + 1))} or more",
            )

    @property
    def launch_size(self) -> int:
        """Trajectories that are started for one group."""
        return self.group_size + self.extra_siblings

    @property
    def most_held(self) -> int:
        return (self.max_staleness + 1) * self.environments

    def check_batch(self, num_groups: int) -> None:
        """Raise `BadInput` if a batch of `num_groups` could never be complete."""
        needed = num_groups * self.launch_size
        if needed > self.most_held:
            raise BadInput(
                "num_groups",
                f"{num_groups} groups of {self.launch_size} are more than the {self.most_held} "
                f"trajectories that {self.environments} environments may hold",
                f"ask for fewer, or have {ceil(needed / (self.max_staleness + 1))} environments",
            )


class Mix:
    """Which task is next, by whole-number shares: counts never differ by a group from them.

    Each seat adds every task's share to its credit, goes to the highest and costs it the sum.
    """

    __slots__ = ("_credit", "_known", "_shares")

    def __init__(self, shares: Mapping[str, int]) -> None:
        self._credit: dict[str, int] = {}
        self._known: dict[int, Mapping[str, int]] = {}
        self.set_shares(shares)

    @property
    def shares(self) -> dict[str, int]:
        return dict(self._shares)

    @property
    def credit(self) -> dict[str, int]:
        """What a restart needs to continue the mix."""
        return dict(self._credit)

    def restore(self, credit: Mapping[str, int]) -> None:
        self._credit = {task: credit.get(task, 0) for task in self._credit}
        self._known.clear()

    def set_shares(self, shares: Mapping[str, int]) -> None:
        if not shares or any(share < 0 for share in shares.values()) or not any(shares.values()):
            problem = f"{dict(shares)} says of no task how often its turn comes"
            raise BadInput("shares", problem, "give each task a whole number, one of them above 0")
        self._shares = {task: share for task, share in shares.items() if share}
        self._credit = {task: self._credit.get(task, 0) for task in self._shares}
        self._known.clear()

    def seats(self, num_groups: int) -> Mapping[str, int]:
        """How many of the next `num_groups` each task gets. Changes nothing."""
        # Admission asks at every event; the answer changes with a batch.
        if num_groups not in self._known:
            self._known[num_groups] = _seats(dict(self._credit), self._shares, num_groups)
        return self._known[num_groups]

    def deliver(self, asked: int, given: Mapping[str, int]) -> None:
        """A batch was formed. What a task did not get of its seats is owed, one batch at most."""
        seats = _seats(self._credit, self._shares, asked)
        price = sum(self._shares.values())
        for task, share in self._shares.items():
            owed = (seats[task] - given.get(task, 0)) * price
            self._credit[task] = min(self._credit[task] + owed, asked * share)
        self._known.clear()


def _seats(credit: dict[str, int], shares: Mapping[str, int], num_groups: int) -> dict[str, int]:
    """Hand out seats; `credit` is spent."""
    price = sum(shares.values())
    seats = dict.fromkeys(shares, 0)
    for _ in range(num_groups):
        for task, share in shares.items():
            credit[task] += share
        # The first of those with most credit: dicts keep the order of the shares.
        winner = max(credit, key=lambda task: credit[task])
        credit[winner] -= price
        seats[winner] += 1
    return seats


class Pace:
    """How long trajectories take beside how long the trainer is busy; learned as they end."""

    __slots__ = ("_busy_s", "_spread_s", "_trajectory_s")

    WEIGHT = 0.2
    """Of the latest sample: some ten samples are remembered."""

    def __init__(self) -> None:
        self._busy_s: float | None = None
        self._trajectory_s: dict[str, float] = {}
        self._spread_s: dict[str, float] = {}

    @property
    def busy_s(self) -> float | None:
        """Of one step; `None` before the first."""
        return self._busy_s

    def long_s(self, task: str) -> float | None:
        """That most of its trajectories do not exceed: their mean and twice their spread."""
        if task not in self._trajectory_s:
            return None
        return self._trajectory_s[task] + 2.0 * self._spread_s[task]

    def on_trajectory(self, task: str, took_s: float) -> None:
        mean_s = self._trajectory_s.get(task, took_s)
        spread_s = self._spread_s.get(task, 0.0)
        self._spread_s[task] = self._mixed(spread_s, abs(took_s - mean_s))
        self._trajectory_s[task] = self._mixed(mean_s, took_s)

    def on_step(self, busy_s: float) -> None:
        """How long the trainer was busy between two batches, without its wait for them."""
        self._busy_s = busy_s if self._busy_s is None else self._mixed(self._busy_s, busy_s)

    def batches_ahead(self, task: str) -> float:
        """How many batches must be in flight so that the trainer need not wait.

        What starts when a batch is taken is complete when the next is asked for if it takes no
        longer than a step; what takes k steps must be k batches ahead.
        """
        long_s = self.long_s(task)
        if long_s is None or self._busy_s is None:
            return 2.0  # One to train on and one being sampled, until more is known.
        return max(1.0, long_s / self._busy_s) if self._busy_s > 0 else float("inf")

    def _mixed(self, old: float, new: float) -> float:
        return old + self.WEIGHT * (new - old)


class Held(Struct, frozen=True, kw_only=True):
    """What is in flight."""

    in_envs: int
    """Trajectories that hold an environment."""
    reserved: int
    """Trajectories held or still to be started for groups that are open."""
    groups: Mapping[str, int]
    """Of each task, open or complete, that no batch took yet."""
    most_in_envs: int | None = None
    """How many may hold an environment now, by the line of the cluster; see `line`."""


class TrainerState(Struct, frozen=True, kw_only=True):
    """What the trainer does."""

    batch_groups: int
    is_busy: bool
    """It has taken the batch of the current version, and not yet made the next one."""


class WaitCause(StrEnum):
    """Nothing can be opened or started because..."""

    NO_ENVIRONMENT = "every environment is in use"
    LINE = "the cluster has a line for memory or cores"
    BUFFER_FULL = "as many trajectories are held as the staleness bound allows"
    NO_DEMAND = "the batches ahead are covered"
    WEIGHTS_LATE = "engines have not loaded weights that are fresh enough"


class Open(Struct, frozen=True):
    """Open a group of this task."""

    task: str


class Wait(Struct, frozen=True):
    why: WaitCause


def may_start(limits: AdmissionLimits, held: Held, *, current: int, live: int) -> Wait | None:
    """What a trajectory of an open group waits for; `None` if it may start."""
    if live < current - limits.max_staleness:
        return Wait(WaitCause.WEIGHTS_LATE)
    if held.in_envs >= limits.environments:
        return Wait(WaitCause.NO_ENVIRONMENT)
    if held.most_in_envs is not None and held.in_envs >= held.most_in_envs:
        return Wait(WaitCause.LINE)
    return None


def may_add(limits: AdmissionLimits, held: Held) -> bool:
    """May an open group have one more trajectory than it needs, once there is an environment?"""
    return held.reserved < limits.most_held


class GroupDemand(Struct, frozen=True, kw_only=True):
    """How many groups of each task should be open or complete."""

    next_batch: Mapping[str, int]
    """For the batch that is asked for, or will be next."""
    ahead: Mapping[str, int]
    """For the batches after it, too, and to spare."""


def demand(
    limits: AdmissionLimits, trainer: TrainerState, mix: Mix, pace: Pace, *, lag: int = 0
) -> GroupDemand:
    """`lag` is how many versions the live weights are behind."""
    most = limits.max_staleness - lag + (0 if trainer.is_busy else 1)
    if most <= 0:  # What started now would be stale when the next batch is asked for.
        return GroupDemand(next_batch={}, ahead={})
    ahead = {}
    for task in mix.shares:
        groups = ceil(trainer.batch_groups * min(most, pace.batches_ahead(task)))
        ahead[task] = mix.seats(groups + limits.extra_groups)[task]
    return GroupDemand(next_batch=mix.seats(trainer.batch_groups), ahead=ahead)


def next_group(
    limits: AdmissionLimits, held: Held, wanted: GroupDemand, *, current: int, live: int
) -> Open | Wait:
    """The task that lacks most groups, or what opening waits for.

    The next batch comes first: spare groups never take its room.
    """
    waits = may_start(limits, held, current=current, live=live)
    if waits is not None:
        return waits
    task = _lacks_most(held, wanted.next_batch) or _lacks_most(held, wanted.ahead)
    if task is None:
        return Wait(WaitCause.NO_DEMAND)
    if held.reserved + limits.launch_size > limits.most_held:
        return Wait(WaitCause.BUFFER_FULL)
    return Open(task)


def in_the_way(held: Held, ready: Mapping[str, int], next_batch: Mapping[str, int]) -> str | None:
    """When the buffer is full: a task whose complete groups keep the next batch's from starting."""
    over = {task: count - next_batch.get(task, 0) for task, count in ready.items()}
    task = max(over, key=lambda name: over[name], default=None)
    if task is None or over[task] <= 0 or _lacks_most(held, next_batch) is None:
        return None
    return task


def _lacks_most(held: Held, wanted: Mapping[str, int]) -> str | None:
    lacks = {
        task: (count - held.groups.get(task, 0)) / count
        for task, count in wanted.items()
        if held.groups.get(task, 0) < count
    }
    return max(lacks, key=lambda task: lacks[task], default=None)


def patience_s(missing: int, *, asked: int, busy_s: float | None) -> float:
    """How long the trainer should wait for the last `missing` of `asked` groups.

    A short batch wastes that share of a step; waiting wastes the wait. How long it would last is
    unknown, so wait until it has cost as much as leaving would: at most twice the best. Before the
    first step its cost is unknown, too: then wait without limit.
    """
    return float("inf") if busy_s is None else busy_s * missing / asked
