"""What becomes of trajectories and groups."""

import pytest
from rollout_builders import a_group, a_trajectory

from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.core.rollout.verdict import Accepted, Dropped, DropReason, judge, judge_trajectory


@pytest.mark.parametrize(
    "status", [TrajectoryStatus.OK, TrajectoryStatus.TRUNCATED, TrajectoryStatus.TASK_FAILED]
)
def test_what_the_attempt_did_trains(status: TrajectoryStatus):
    verdict = judge_trajectory(a_trajectory(2, status=status), current=2, max_staleness=0)
    assert verdict == Accepted()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (TrajectoryStatus.INFRA_FAILED, DropReason.INFRA),
        (TrajectoryStatus.STALE, DropReason.TOO_STALE),
        (TrajectoryStatus.SURPLUS, DropReason.SURPLUS),
    ],
)
def test_what_the_cluster_did_never_trains(status: TrajectoryStatus, reason: DropReason):
    verdict = judge_trajectory(a_trajectory(2, status=status), current=2, max_staleness=9)
    assert verdict == Dropped(reason)


def test_a_missing_reward_is_not_zero():
    verdict = judge_trajectory(a_trajectory(2, reward=None), current=2, max_staleness=0)
    assert verdict == Dropped(DropReason.INFRA)


def test_one_stale_member_drops_the_group():
    group = a_group(a_trajectory(3, reward=0.0), a_trajectory(3, 1))
    assert judge(group, current=3, max_staleness=2) == Accepted()
    assert judge(group, current=3, max_staleness=1) == Dropped(DropReason.TOO_STALE)


def test_equal_rewards_teach_nothing_where_a_signal_is_needed():
    flat = a_group(a_trajectory(3), a_trajectory(3))
    assert judge(flat, current=3, max_staleness=0) == Accepted()
    verdict = judge(flat, current=3, max_staleness=0, needs_signal=True)
    assert verdict == Dropped(DropReason.NO_SIGNAL)
    mixed = a_group(a_trajectory(3), a_trajectory(3, reward=0.0))
    assert judge(mixed, current=3, max_staleness=0, needs_signal=True) == Accepted()
