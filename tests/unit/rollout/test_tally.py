"""Whether the trajectories that were cut off are the long ones."""

from rollout_builders import a_trajectory

from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.rollout.tally import RolloutTally


def test_bias_tells_whether_the_long_ones_are_lost():
    tally = RolloutTally()
    tally.on_end(a_trajectory(1, 1), 10.0)
    tally.on_end(a_trajectory(1, 1, status=TrajectoryStatus.TRUNCATED), 10.0)
    tally.on_end(a_trajectory(1, 1, 1, 1, 1, 1, status=TrajectoryStatus.SURPLUS), 20.0)
    tally.on_end(a_trajectory(status=TrajectoryStatus.INFRA_FAILED), 900.0)
    bias = tally.bias("math")
    assert (bias.kept, bias.cancelled) == (2, 1)
    assert (bias.tokens, bias.seconds) == (3.0, 2.0)
    assert tally.count(TrajectoryStatus.INFRA_FAILED) == 1


def test_without_both_kinds_there_is_no_bias():
    tally = RolloutTally()
    assert tally.bias("math").tokens is None
    tally.on_end(a_trajectory(1), 1.0)
    assert tally.bias("math").tokens is None
