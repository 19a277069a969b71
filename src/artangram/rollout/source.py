"""Problems by task, each accounted for exactly once.

- A problem that was drawn is outstanding until it is trained on or dropped for a reason:
  `drawn == trained + dropped + outstanding`, always.
- One that comes back (too stale, surplus, infrastructure) goes out again before new ones, so that
  slow problems are not lost; after `most_issues` times it is dropped.
- The position can be saved and restored: what was outstanding goes out again.
- Shares may change with the version (a curriculum). Easy and hard problems of one domain are two
  tasks whose shares change.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.rollout.verdict import DropReason
from artangram.envs.protocol import Problem, Task


class Issue(Struct, frozen=True, kw_only=True):
    """A problem that was given out."""

    task: str
    index: int
    """Which of its task's problems it is, in the order they are drawn."""
    times: int
    """How often it has been given out, this time included."""
    problem: Problem

    @property
    def group_id(self) -> str:
        return f"{self.task}-{self.index}.{self.times}"


class Stage(Struct, frozen=True, kw_only=True):
    """From this version on, these are the shares."""

    from_version: int = 0
    shares: Mapping[str, int]


class TaskPosition(Struct, frozen=True, kw_only=True):
    """Of one task: how far it is, and what is on the way."""

    drawn: int = 0
    trained: int = 0
    dropped: dict[DropReason, int] = {}
    outstanding: dict[int, int] = {}
    """Index of each problem that is not done, and how often it went out."""

    @property
    def settled(self) -> int:
        """Problems that were part of a batch: trained on, or of a step that was skipped."""
        return self.trained + self.dropped.get(DropReason.SKIPPED, 0)


class SourceState(Struct, frozen=True, kw_only=True):
    seed: int
    tasks: dict[str, TaskPosition]


def endless(task: Task, seed: int) -> Iterator[Problem]:
    """The problems of a task; one that has an end begins again with the next seed."""
    for epoch in count():
        problems = task.problems(seed + epoch)
        first = next(problems, None)
        if first is None:
            raise BadInput("problems", f"{task.name} has no problems", "give the task at least one")
        yield first
        yield from problems


class _Stream:
    """The problems of one task."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task = task
        self._problems = endless(task, seed)
        self.drawn = 0
        self.trained = 0
        self.dropped: dict[DropReason, int] = {}
        self.outstanding: dict[int, Issue] = {}
        self.returned: deque[Issue] = deque()

    def next(self) -> Issue:
        if self.returned:
            back = self.returned.popleft()
            issue = self._issue(back.index, back.times + 1, back.problem)
        else:
            issue = self._issue(self.drawn, 1, next(self._problems))
            self.drawn += 1
        self.outstanding[issue.index] = issue
        return issue

    def position(self) -> TaskPosition:
        return TaskPosition(
            drawn=self.drawn,
            trained=self.trained,
            dropped=dict(self.dropped),
            outstanding={index: issue.times for index, issue in self.outstanding.items()},
        )

    def restore(self, position: TaskPosition) -> None:
        for index, problem in enumerate(islice(self._problems, position.drawn)):
            if index in position.outstanding:
                issue = self._issue(index, position.outstanding[index], problem)
                self.outstanding[index] = issue
                self.returned.append(issue)
        self.drawn, self.trained = position.drawn, position.trained
        self.dropped = dict(position.dropped)

    def _issue(self, index: int, times: int, problem: Problem) -> Issue:
        return Issue(task=self.task.name, index=index, times=times, problem=problem)


class Source:
    """See the module."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        stages: Sequence[Stage] = (),
        seed: int = 0,
        most_issues: int = 3,
    ) -> None:
        self.tasks: dict[str, Task] = {task.name: task for task in tasks}
        self._stages = sorted(
            stages or [Stage(shares=dict.fromkeys(self.tasks, 1))], key=lambda s: s.from_version
        )
        self._seed = seed
        self._most_issues = most_issues
        self._streams = {task.name: _Stream(task, seed) for task in tasks}
        self._check(len(tasks))

    def __repr__(self) -> str:
        return f"<Source of {', '.join(self.tasks)}: {self.num_outstanding} outstanding>"

    @property
    def num_outstanding(self) -> int:
        return sum(len(stream.outstanding) for stream in self._streams.values())

    def shares(self, version: int) -> Mapping[str, int]:
        """What each task gets at this version."""
        reached = [stage for stage in self._stages if stage.from_version <= version]
        return (reached or self._stages[:1])[-1].shares

    def next(self, task: str) -> Issue:
        return self._streams[task].next()

    def train(self, issue: Issue) -> None:
        """It was trained on."""
        self._end(issue)
        self._streams[issue.task].trained += 1

    def drop(self, issue: Issue, reason: DropReason) -> None:
        """It will not be trained on."""
        self._end(issue)
        dropped = self._streams[issue.task].dropped
        dropped[reason] = dropped.get(reason, 0) + 1

    def give_back(self, issue: Issue, reason: DropReason) -> None:
        """It was not trained on; it goes out again, at most `most_issues` times."""
        if issue.times >= self._most_issues:
            self.drop(issue, reason)
        else:
            self._streams[issue.task].returned.append(issue)

    def positions(self) -> dict[str, TaskPosition]:
        """The accounts of every task."""
        return {name: stream.position() for name, stream in self._streams.items()}

    def save(self) -> SourceState:
        return SourceState(seed=self._seed, tasks=self.positions())

    def restore(self, state: SourceState) -> None:
        """Continue where another source of the same tasks was. Before anything was drawn."""
        if state.seed != self._seed or set(state.tasks) != set(self._streams):
            raise BadInput(
                "source",
                f"saved with seed {state.seed} and tasks {sorted(state.tasks)}",
                f"resume with these, not {self._seed} and {sorted(self._streams)}",
            )
        for name, position in state.tasks.items():
            self._streams[name].restore(position)

    def reclaim(self, task: str, index: int) -> Issue:
        """For a restored buffer: what waits to go out again is in hand already."""
        stream = self._streams[task]
        issue = stream.outstanding[index]
        stream.returned.remove(issue)
        return issue

    def _end(self, issue: Issue) -> None:
        found = self._streams[issue.task].outstanding.pop(issue.index)
        assert found == issue, f"{issue.group_id} ended, but {found.group_id} is out"

    def _check(self, num_tasks: int) -> None:
        if not self.tasks or len(self.tasks) < num_tasks:
            raise BadInput(
                "tasks", "are missing, or two have the same name", "give each a name of its own"
            )
        for stage in self._stages:
            if unknown := set(stage.shares) - set(self.tasks):
                problem = f"{sorted(unknown)} are not tasks of this run"
                raise BadInput("shares", problem, f"say some of {sorted(self.tasks)}")
