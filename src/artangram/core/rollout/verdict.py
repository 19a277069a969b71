"""Whether a trajectory or a group may train, or is dropped for a reason.

- Only `TRAINABLE` statuses with a reward are accepted, and nothing that is stale at `current`.
- A group is accepted only whole: every member passes.
- Infrastructure failure is a reason to drop and never a reward.
"""

from enum import StrEnum

from msgspec import Struct

from artangram.core.rollout.trajectory import TRAINABLE, Group, Trajectory, TrajectoryStatus
from artangram.core.rollout.weights import is_stale


class DropReason(StrEnum):
    TOO_STALE = "too_stale"
    NO_SIGNAL = "no_signal"
    """All rewards of the group are equal, those of turns too, so it teaches nothing."""
    INFRA = "infra"
    """Infrastructure failed, more often than was allowed."""
    SURPLUS = "surplus"
    """More was started than needed."""
    SKIPPED = "skipped"
    """Its step taught too little, or nothing that is a number."""


class Accepted(Struct, frozen=True):
    """It may train."""


class Dropped(Struct, frozen=True):
    reason: DropReason


Verdict = Accepted | Dropped

_REASONS = {
    TrajectoryStatus.INFRA_FAILED: DropReason.INFRA,
    TrajectoryStatus.STALE: DropReason.TOO_STALE,
    TrajectoryStatus.SURPLUS: DropReason.SURPLUS,
}


def judge_trajectory(trajectory: Trajectory, *, current: int, max_staleness: int) -> Verdict:
    if trajectory.status not in TRAINABLE:
        return Dropped(_REASONS[trajectory.status])
    if trajectory.reward is None:
        return Dropped(DropReason.INFRA)
    if is_stale(trajectory.oldest_version, current=current, max_staleness=max_staleness):
        return Dropped(DropReason.TOO_STALE)
    return Accepted()


def judge(group: Group, *, current: int, max_staleness: int, needs_signal: bool = False) -> Verdict:
    """The verdict on a complete group when `current` is the newest version."""
    for trajectory in group.trajectories:
        verdict = judge_trajectory(trajectory, current=current, max_staleness=max_staleness)
        if isinstance(verdict, Dropped):
            return verdict
    if needs_signal and not group.has_signal:
        return Dropped(DropReason.NO_SIGNAL)
    return Accepted()
