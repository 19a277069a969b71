"""What becomes of trajectories and groups."""

import pytest

from artangram.core.trajectory import Status
from artangram.core.verdict import Accepted, Dropped, DropReason, judge, judge_trajectory
from rollout_builders import a_group, a_trajectory


@pytest.mark.parametrize("status", [Status.OK, Status.TRUNCATED, Status.TASK_FAILED])
def test_what_the_attempt_did_trains(status: Status):
    verdict = judge_trajectory(a_trajectory(2, status=status), current=2, max_staleness=0)
    assert verdict == Accepted()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Status.INFRA_FAILED, DropReason.INFRA),
        (Status.STALE, DropReason.TOO_STALE),
        (Status.SURPLUS, DropReason.SURPLUS),
    ],
)
def test_what_the_house_did_never_trains(status: Status, reason: DropReason):
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
