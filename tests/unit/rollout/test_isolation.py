"""A slow, a hanging and a crashing environment leave the others' throughput as it was."""

import asyncio

import pytest
from rollout_world import FakeDoor, FakeEnv, FakeTask, a_rollout

from artangram.core.rollout.weights import Staleness
from artangram.envs.protocol import Observation, Problem
from artangram.rollout import PhaseLimits, Retries

pytestmark = pytest.mark.looptime

HEALTHY = 24


class FaultyEnv(FakeEnv):
    """As its kind says; healthy ones are counted when they end."""

    def __init__(self, task: "FaultyTask", name: str, kind: str) -> None:
        super().__init__(task, name)
        self._kind = kind

    async def respond(self, reply: str) -> Observation:
        if self._kind == "crash":
            raise RuntimeError("the environment crashed")
        await asyncio.sleep({"slow": 40.0, "hang": 1e9}.get(self._kind, 0.0))
        return await super().respond(reply)

    async def score(self) -> float:
        self._task.healthy += self._kind == "healthy"
        return await super().score()

    async def aclose(self) -> None:
        self._task.kinds.remove(self._kind)
        await super().aclose()


class FaultyTask(FakeTask):
    """At any time one environment of every fault is open, the others are healthy."""

    def __init__(self, *faults: str) -> None:
        super().__init__()
        self.faults = faults
        self.kinds: list[str] = []
        self.seen: set[str] = set()
        self.healthy = 0

    def env(self, problem: Problem, *, trajectory: str) -> FaultyEnv:
        kind = next((fault for fault in self.faults if fault not in self.kinds), "healthy")
        self.kinds.append(kind)
        self.seen.add(kind)
        return FaultyEnv(self, trajectory, kind)


async def healthy_per_s(*faults: str) -> float:
    """Of `HEALTHY` environments, with one more for each fault."""
    task, endpoint, seconds = FaultyTask(*faults), FakeDoor(), 150.0
    rollout = a_rollout(
        task,
        endpoint=endpoint,
        environments=HEALTHY + len(faults),
        group_size=1,
        staleness=Staleness(max_staleness=3),
        phases=PhaseLimits(turn_s=60.0),
        retries=Retries(attempts=2, backoff_s=1.0),
    )
    async with rollout:
        training = asyncio.create_task(take_all(rollout))
        await asyncio.sleep(seconds)
        training.cancel()
    assert task.seen == {"healthy", *faults}
    return task.healthy / seconds


async def take_all(rollout) -> None:
    """A trainer that always wants more than there is; versions do not matter here."""
    while True:
        rollout.settle(await rollout.sink.batch(16))


async def test_the_others_go_on_as_if_nothing_were_wrong():
    with_faults = await healthy_per_s("slow", "hang", "crash")
    assert with_faults / await healthy_per_s() == pytest.approx(1.0, abs=0.03)
