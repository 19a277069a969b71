"""Trajectories and groups for tests of the rollout's decisions."""

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import (
    Group,
    Segment,
    Trajectory,
    TrajectoryStatus,
    VersionSpan,
)


def a_segment(*versions: int) -> Segment:
    """One sampled token of each version."""
    return Segment(
        token_ids=tuple(range(len(versions))),
        logprobs=(0.0,) * len(versions),
        spans=tuple(VersionSpan(v, i, i + 1) for i, v in enumerate(versions)),
    )


def a_trajectory(
    *versions: int,
    status: TrajectoryStatus = TrajectoryStatus.OK,
    reward: float | None = 1.0,
    task: str = "math",
    id: str = "t",
) -> Trajectory:
    given = Segment(token_ids=(7, 8))
    return Trajectory(
        id=TrajectoryId(id),
        job=JobId("job"),
        task=task,
        problem="p",
        group="g",
        segments=(given, a_segment(*versions)) if versions else (given,),
        status=status,
        reward=reward,
    )


def a_group(*trajectories: Trajectory, id: str = "g", task: str = "math") -> Group:
    return Group(id=id, job=JobId("job"), task=task, problem="p", trajectories=trajectories)
