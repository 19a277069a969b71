"""A group under way: the members that run, those that have finished, and how many must start.

- Complete with `size` finished members that may train. What still runs then is surplus.
- A member that ended without a result is replaced while the group cannot be completed without,
  as often as `most_reissues` allows; then the group is lost.
"""

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import Group, Trajectory
from artangram.rollout.runner import Attempt
from artangram.rollout.source import Issue


class OpenGroup:
    """See the module."""

    def __init__(self, issue: Issue, *, job: JobId, size: int, launch: int, name: str) -> None:
        self.issue = issue
        self.id = name
        self.job = job
        self.size = size
        self.unstarted = launch
        self.running: dict[TrajectoryId, Attempt] = {}
        self.finished: list[Trajectory] = []
        self.started = 0
        self.reissues = 0
        self.hedges = 0
        self.is_open = True

    def __repr__(self) -> str:
        return f"<OpenGroup {self.id}: {len(self.finished)} of {self.size}, {self.running}>"

    @property
    def task(self) -> str:
        return self.issue.task

    @property
    def alive(self) -> int:
        """Members that may still be part of it, or are."""
        return self.unstarted + len(self.running) + len(self.finished)

    @property
    def is_complete(self) -> bool:
        return len(self.finished) >= self.size

    @property
    def lacks(self) -> int:
        """Members to be replaced before it can be completed."""
        return max(0, self.size - self.alive)

    def next_id(self) -> TrajectoryId:
        self.started += 1
        return TrajectoryId(f"{self.id}.{self.started}")

    def record(self) -> Group:
        assert self.is_complete
        return Group(
            id=self.id,
            job=self.job,
            task=self.task,
            problem=self.issue.problem.id,
            trajectories=tuple(self.finished[: self.size]),
        )
