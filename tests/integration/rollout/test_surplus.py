"""Surplus is really cancelled: real cluster and engine, a sibling caught in every phase."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the engine needs torch")

import artangram
from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.core.rollout.weights import Staleness
from artangram.envs.protocol import Observation, Problem
from artangram.gateway import Gateway
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.models.config import ModelConfig
from artangram.models.directory import save_model
from artangram.models.llama import Llama
from artangram.models.vocabulary import Vocabulary
from artangram.orchestrator.client import Client
from artangram.rollout import Plan, Rollout, Source

WORDS = Vocabulary.of(["begin go on"])
ROLES = ("in its sandbox", "in its reward", "in the engine", "in its environment", "first")
FOR_EVER = "98765.4321"
"""Seconds that a command sleeps; nobody else's does."""


class RolesTask:
    """Each sibling goes as far as its role says; the last ends when it may."""

    name = "roles"
    max_turns = 2
    max_tokens = 4

    def __init__(self, client: Client, engine: TorchEngineProcess) -> None:
        self.client = client
        self.engine = engine
        self.open_envs: list[str] = []
        self.may_end = asyncio.Event()
        self.is_waiting_in_env = False
        self.replied: set[str] = set()

    def problems(self, seed: int) -> Iterator[Problem]:
        yield Problem(id="p", task=self.name)

    def env(self, problem: Problem, *, trajectory: str) -> "RoleEnv":
        return RoleEnv(self, ROLES[int(trajectory.rpartition(".")[2]) - 1], trajectory)


class RoleEnv:
    def __init__(self, task: RolesTask, role: str, name: str) -> None:
        self._task = task
        self._role = role
        self._place = task.client.trajectory(id=name, memory_mb=64)
        task.open_envs.append(role)

    async def reset(self) -> Observation:
        await self._place.__aenter__()
        if self._role == "in the engine":
            await looked(lambda: len(self._task.replied) == len(ROLES) - 1)
            await self._task.engine.pause()  # So that its request lasts.
        return Observation(text="begin")

    async def respond(self, reply: str) -> Observation:
        self._task.replied.add(self._role)
        if self._role == "in its sandbox":
            await self._sleep()
        if self._role == "in its environment":
            self._task.is_waiting_in_env = True
            await asyncio.Event().wait()
        if self._role == "first":
            await self._task.may_end.wait()
        return Observation(text="", done=True)

    async def score(self) -> float:
        if self._role == "in its reward":
            await self._sleep()
        return 1.0

    async def aclose(self) -> None:
        await self._place.close()
        self._task.open_envs.remove(self._role)

    async def _sleep(self) -> None:
        await self._place.run(["/bin/sleep", FOR_EVER])


async def looked(is_so) -> None:
    """Return when it is so; processes tell nobody."""
    async with asyncio.timeout(60.0):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def requests(engine: TorchEngineProcess) -> int:
    return engine.stats().running + engine.stats().waiting


def are_there(rollout: Rollout, task: RolesTask) -> bool:
    """Whether every sibling is where its role wants it."""
    phases = sorted(life.phase for life in rollout.dispatcher.attempts)
    is_there = (requests(task.engine), task.is_waiting_in_env, sleeping()) == (1, True, 1)
    return is_there and phases == ["generate", "reward", "turn", "turn", "turn"]


def sleeping() -> int:
    """Processes of ours that sleep, in whatever sandbox."""
    commands = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(process.read_bytes())
        except OSError:
            continue  # It has just ended.
    return sum(FOR_EVER.encode() in command for command in commands)


async def test_engine_request_environment_sandbox_and_pending_reward_end_with_the_group(tmp_path):
    save_model(Llama(ModelConfig(vocab_size=WORDS.vocab_size, eos_id=WORDS.eos_id)), tmp_path)
    engine = await TorchEngineProcess.start(TorchEngineSettings(directory=str(tmp_path)))
    gateway = Gateway()
    gateway.add(engine)
    plan = Plan(
        environments=len(ROLES),
        group_size=1,
        extra_siblings=len(ROLES) - 1,
        staleness=Staleness(max_staleness=0),
    )
    async with artangram.local(cores=1, policy="fcfs") as client:  # One waits: none is preempted.
        task = RolesTask(client, engine)
        async with Rollout(Source([task]), gateway, plan=plan, tokenizer=WORDS) as rollout:
            asked = asyncio.create_task(rollout.sink.batch(1))
            await looked(lambda: are_there(rollout, task))
            status = await client.status()
            assert (status.running, status.queued, status.trajectories) == (1, 1, len(ROLES))
            task.may_end.set()
            (winner,) = (await asked).trajectories
            assert winner.id.endswith(f".{ROLES.index('first') + 1}")
            await looked(lambda: rollout.tally.count(TrajectoryStatus.SURPLUS) == len(ROLES) - 1)
            assert not task.open_envs
            assert not gateway.sessions
            status = await client.status()
            assert (status.running, status.queued, status.trajectories) == (0, 0, 0)
            await looked(lambda: not sleeping())
            await looked(lambda: not requests(engine))
            bias = rollout.tally.bias(task.name)
            assert (bias.kept, bias.cancelled) == (1, len(ROLES) - 1)
            assert bias.seconds is not None
            assert bias.tokens is not None
    await engine.aclose()
