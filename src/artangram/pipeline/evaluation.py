"""How often the model succeeds at problems it never trained on, through the very same path."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import TRAINABLE, Trajectory, TrajectoryStatus
from artangram.core.rollout.weights import Staleness, Versions
from artangram.envs.protocol import Problem, Task
from artangram.gateway import Gateway
from artangram.models.config import context_of
from artangram.models.tokenizer import Tokenizer
from artangram.pipeline.enginepools import EnginesSpec
from artangram.pipeline.engines import slots_of
from artangram.pipeline.fleet import EngineFleet
from artangram.pipeline.settings import Exam
from artangram.rollout.agents import AgentGateway
from artangram.rollout.runner import Assignment, ModelClient, Runner
from artangram.rollout.updates import Updates

NEVER_STALE = Staleness(max_staleness=1 << 60)


class Evaluation(Struct, frozen=True, kw_only=True):
    """Mean reward over held-out problems."""

    success: float
    by_task: dict[str, float]
    errors: dict[str, float] = {}
    """The standard error of each task's mean, where there were several attempts."""
    problems: int
    failed: int
    """Attempts that infrastructure failed; they count for nothing."""


async def evaluate(
    tasks: Sequence[Task],
    endpoint: ModelClient,
    exam: Exam,
    *,
    name: str = "eval",
    tokenizer: Tokenizer,
    agents: AgentGateway | None = None,
    on_ended: Callable[[Trajectory], None] = lambda ended: None,
) -> Evaluation:
    """Let the model try the problems of the evaluation."""
    runner = Runner(
        endpoint,
        Updates(NEVER_STALE),
        tokenizer=tokenizer,
        temperature=exam.temperature,
        agents=agents,
        trains=False,
    )
    room = asyncio.Semaphore(exam.at_once)

    async def attempt(ticket: Assignment) -> Trajectory:
        async with room:
            life = runner.start(ticket, on_env_free=lambda: None)
            try:
                ended = await asyncio.shield(life.ended)
            finally:
                # Does nothing if it has ended; otherwise the caller gave the exam up.
                life.stop(TrajectoryStatus.SURPLUS, "its exam was given up")
        on_ended(ended)
        return ended

    tickets = [
        _ticket(task, problem, f"{name}-{task.name}-{number}")
        for task in tasks
        for number, problem in enumerate(islice(task.problems(exam.seed), exam.problems))
    ]
    return _summary(await asyncio.gather(*map(attempt, tickets)))


@asynccontextmanager
async def served(
    model: Path, engines: EnginesSpec, *, log: Path
) -> AsyncIterator[tuple[Gateway, "asyncio.Future[Any]"]]:
    """The model of a directory behind engines of a run, and what raises when they are gone."""
    gateway = Gateway(
        affinity=engines.routing, split=engines.splits, on_lost=lambda *lost: fleet.on_lost(*lost)
    )

    async def pull(replica: str, version: int) -> Path:
        return model  # A model of its user: no manifest says what it was.

    fleet = EngineFleet(versions=Versions(), pull=pull, gateway=gateway)
    try:
        await fleet.open(slots_of(engines, seed=0, max_context=context_of(model), log=log))
        yield gateway, fleet.failed
    finally:
        await gateway.aclose()
        await fleet.aclose()


def _ticket(task: Task, problem: Problem, name: str) -> Assignment:
    return Assignment(
        id=TrajectoryId(name), job=JobId("eval"), group=name, task=task, problem=problem
    )


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
        errors={t: stdev(found) / sqrt(len(found)) for t, found in rewards.items() if found[1:]},
        problems=len(ended),
        failed=len(ended) - counted,
    )
