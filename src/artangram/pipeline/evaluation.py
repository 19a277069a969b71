"""How often the model succeeds at problems it never trained on, through the very same path."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from statistics import fmean

from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.core.ids import JobId, TrajectoryId
from artangram.core.trajectory import TRAINABLE, Trajectory
from artangram.core.weights import Staleness
from artangram.envs.protocol import Problem, Task
from artangram.models.tokenizer import Tokenizer
from artangram.rollout.runner import Runner, Ticket
from artangram.rollout.session import Door
from artangram.rollout.updates import Updates

NEVER_STALE = Staleness(max_staleness=1 << 60)


class Evaluation(Struct, frozen=True, kw_only=True):
    """Mean reward over held-out problems."""

    success: float
    by_task: dict[str, float]
    problems: int
    failed: int
    """Attempts that infrastructure failed; they count for nothing."""


async def evaluate(
    tasks: Sequence[Task],
    door: Door,
    *,
    tokenizer: Tokenizer,
    problems: int = 40,
    seed: int = 0,
    at_once: int = 64,
    temperature: float = 1.0,
    name: str = "eval",
) -> Evaluation:
    """One attempt at each of so many problems of every task."""
    runner = Runner(door, Updates(NEVER_STALE), tokenizer=tokenizer, temperature=temperature)
    room = asyncio.Semaphore(at_once)

    async def attempt(ticket: Ticket) -> Trajectory:
        async with room:
            return await runner.start(ticket, on_env_free=lambda: None).ended

    tickets = [
        _ticket(task, problem, f"{name}-{task.name}-{number}")
        for task in tasks
        for number, problem in enumerate(islice(task.problems(seed), problems))
    ]
    return _summary(await asyncio.gather(*map(attempt, tickets)))


def _ticket(task: Task, problem: Problem, name: str) -> Ticket:
    return Ticket(id=TrajectoryId(name), job=JobId("eval"), group=name, task=task, problem=problem)


def _summary(ended: Sequence[Trajectory]) -> Evaluation:
    rewards: dict[str, list[float]] = {}
    for trajectory in ended:
        if trajectory.status in TRAINABLE and trajectory.reward is not None:
            rewards.setdefault(trajectory.task, []).append(trajectory.reward)
    counted = sum(map(len, rewards.values()))
    if not counted:
        raise InfraFailed(f"no attempt could be scored: {ended[0].reason if ended else 'none'}")
    return Evaluation(
        success=fmean(reward for found in rewards.values() for reward in found),
        by_task={task: fmean(found) for task, found in rewards.items()},
        problems=len(ended),
        failed=len(ended) - counted,
    )
