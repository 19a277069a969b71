"""How others put the same verbs in order: batches with a barrier at their end.

A batch is launched whole and waited for whole, by the same runner that the rollout uses; nothing
of the next one starts before the last trajectory of this one has ended.
"""

import asyncio

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.trajectory import TRAINABLE, Trajectory
from artangram.envs.protocol import Task
from artangram.rollout.runner import Runner, Ticket


class Batches:
    """One barrier after the other."""

    def __init__(self, runner: Runner, tasks: list[Task], *, groups: int, group_size: int) -> None:
        self._runner = runner
        self._tasks = tasks
        self._problems = [task.problems(0) for task in tasks]
        self._groups = groups
        self._group_size = group_size
        self._made = 0

    async def next(self) -> list[Trajectory]:
        """All trajectories of a batch, when the last of them has ended."""
        lives = [self._runner.start(ticket, on_env_free=lambda: None) for ticket in self._tickets()]
        ended = await asyncio.gather(*(life.ended for life in lives))
        return [trajectory for trajectory in ended if trajectory.status in TRAINABLE]

    def _tickets(self) -> list[Ticket]:
        tickets = []
        for _ in range(self._groups):
            number, self._made = self._made, self._made + 1
            which = number % len(self._tasks)
            task, problem = self._tasks[which], next(self._problems[which])
            for member in range(1, self._group_size + 1):
                ticket = Ticket(
                    id=TrajectoryId(f"{problem.id}.{member}"),
                    job=JobId("default"),
                    group=problem.id,
                    task=task,
                    problem=problem,
                )
                tickets.append(ticket)
        return tickets
