"""What became of trajectories: how many, how long, and whether those cut off were longer.

Redundancy and staleness prefer what ends early. `bias` shows by how much: the mean length of what
was cancelled (so far as it had come) beside that of what was kept. Over 1 means that long
trajectories are lost more often.
"""

from msgspec import Struct

from artangram.core.rollout.trajectory import TRAINABLE, Trajectory, TrajectoryStatus

CANCELLED = frozenset({TrajectoryStatus.STALE, TrajectoryStatus.SURPLUS})


class Lengths(Struct):
    """Of trajectories that ended in one way."""

    count: int = 0
    tokens: int = 0
    turns: int = 0
    seconds: float = 0.0

    def add(self, trajectory: Trajectory, took_s: float) -> None:
        self.count += 1
        self.tokens += trajectory.num_sampled
        self.turns += trajectory.turns
        self.seconds += took_s


class Bias(Struct, frozen=True, kw_only=True):
    """Mean lengths of what was cancelled over those of what was kept; `None` without either."""

    kept: int
    cancelled: int
    tokens: float | None
    seconds: float | None


class RolloutTally:
    """Counts since the rollout began."""

    def __init__(self) -> None:
        self.started: dict[str, int] = {}
        self.ended: dict[str, dict[TrajectoryStatus, Lengths]] = {}
        self.hedged: dict[str, int] = {}
        self.reissued: dict[str, int] = {}
        self.evicted = 0
        """Finished trajectories that became stale while they waited for siblings."""
        self.last_failure = ""
        """Why infrastructure failed the last time; a defect of an environment shows here."""

    def on_start(self, task: str) -> None:
        self.started[task] = self.started.get(task, 0) + 1

    def on_hedge(self, task: str) -> None:
        self.hedged[task] = self.hedged.get(task, 0) + 1

    def on_reissue(self, task: str) -> None:
        self.reissued[task] = self.reissued.get(task, 0) + 1

    def on_end(self, trajectory: Trajectory, took_s: float) -> None:
        by_status = self.ended.setdefault(trajectory.task, {})
        by_status.setdefault(trajectory.status, Lengths()).add(trajectory, took_s)
        if trajectory.status is TrajectoryStatus.INFRA_FAILED:
            self.last_failure = trajectory.reason

    def count(self, status: TrajectoryStatus) -> int:
        """Of all tasks."""
        return sum(by[status].count for by in self.ended.values() if status in by)

    def biases(self) -> dict[str, Bias]:
        """Of every task that ended anything."""
        return {task: self.bias(task) for task in self.ended}

    def bias(self, task: str) -> Bias:
        by_status = self.ended.get(task, {})
        kept = _together(by_status, TRAINABLE)
        cancelled = _together(by_status, CANCELLED)
        return Bias(
            kept=kept.count,
            cancelled=cancelled.count,
            tokens=_ratio(cancelled.tokens, kept.tokens, cancelled.count, kept.count),
            seconds=_ratio(cancelled.seconds, kept.seconds, cancelled.count, kept.count),
        )


def _together(
    by_status: dict[TrajectoryStatus, Lengths], statuses: frozenset[TrajectoryStatus]
) -> Lengths:
    total = Lengths()
    for status in statuses & by_status.keys():
        found = by_status[status]
        total.count += found.count
        total.tokens += found.tokens
        total.turns += found.turns
        total.seconds += found.seconds
    return total


def _ratio(one: float, other: float, num_one: int, num_other: int) -> float | None:
    """Of the two means."""
    if not num_one or not num_other or not other:
        return None
    return (one / num_one) / (other / num_other)
