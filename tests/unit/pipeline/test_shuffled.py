"""Dealing rewards out again changes who got them, and nothing else."""

from random import Random

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import Group, Trajectory, TrajectoryStatus
from artangram_bench.learn import dealt_out


def a_group(name, rewards):
    attempts = tuple(
        Trajectory(
            id=TrajectoryId(f"{name}-{i}"),
            job=JobId("j"),
            task="t",
            problem=name,
            group=name,
            segments=(),
            status=TrajectoryStatus.OK,
            reward=reward,
        )
        for i, reward in enumerate(rewards)
    )
    return Group(id=name, job=JobId("j"), task="t", problem=name, trajectories=attempts)


def test_rewards_cross_groups_and_none_is_lost():
    groups = [a_group("a", [1.0] * 8), a_group("b", [0.0] * 8)]
    dealt = dealt_out(groups, Random(0))
    rewards = [[t.reward for t in group.trajectories] for group in dealt]
    assert sorted(rewards[0] + rewards[1]) == [0.0] * 8 + [1.0] * 8
    assert 0.0 in rewards[0]
    assert [g.id for g in dealt] == ["a", "b"]
