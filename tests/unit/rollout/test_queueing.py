"""Waiting for a core counts against no limit: virtual time, a real orchestrator."""

import asyncio

import pytest
from rollout_world import FakeDoor, FakeTask

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import Trajectory, TrajectoryStatus
from artangram.core.rollout.weights import Staleness
from artangram.envs.protocol import Observation, Problem
from artangram.orchestrator.client import Client
from artangram.rollout.phases import PhaseLimits
from artangram.rollout.runner import Assignment, Retries, Runner
from artangram.rollout.updates import Updates
from artangram.testing.fakes import a_setup, fake_cluster

pytestmark = pytest.mark.looptime

LIMIT_S = 5.0
LIMITS = PhaseLimits(reset_s=LIMIT_S, turn_s=LIMIT_S, reward_s=LIMIT_S)
CROWD = 12


class BusyEnv:
    """Needs the only core of the cluster for `work_s` in every phase."""

    def __init__(self, client: Client, name: str, *, work_s: float) -> None:
        self._place = client.trajectory(id=name)
        self._work_s = work_s

    @property
    def queued_s(self) -> float:
        return self._place.queued_s

    async def reset(self) -> Observation:
        await self._place.__aenter__()
        return await self._worked()

    async def respond(self, reply: str) -> Observation:
        return await self._worked(done=True)

    async def score(self) -> float:
        await self._worked()
        return 1.0

    async def aclose(self) -> None:
        await self._place.close()

    async def _worked(self, *, done: bool = False) -> Observation:
        await self._place.run(["sleep", str(self._work_s)])
        return Observation(text="go on", done=done)


async def played(client: Client, *, work_s: float) -> list[Trajectory]:
    """A crowd of trajectories at once, each tried once."""
    task = FakeTask()
    task.env = lambda problem, trajectory: BusyEnv(client, trajectory, work_s=work_s)
    retries = Retries(attempts=0, rewards=0)
    runner = Runner(FakeDoor(), Updates(Staleness()), phases=LIMITS, retries=retries)
    tickets = [
        Assignment(
            id=TrajectoryId(f"t{number}"),
            job=JobId("job"),
            group="g",
            task=task,
            problem=Problem(id="p", task=task.name),
        )
        for number in range(CROWD)
    ]
    lives = [runner.start(ticket, on_env_free=lambda: None) for ticket in tickets]
    return await asyncio.gather(*(life.ended for life in lives))


async def test_nobody_is_late_for_having_waited_for_a_core():
    async with fake_cluster(a_setup(cores=1)) as client:
        ended = await played(client, work_s=0.8 * LIMIT_S)
    assert {trajectory.status for trajectory in ended} == {TrajectoryStatus.OK}
    for phase in ("reset_s", "turn_s", "reward_s"):  # Much longer than the limit, by queueing.
        assert max(trajectory.info[phase] for trajectory in ended) > 2 * LIMIT_S


async def test_who_works_for_too_long_is_late_however_long_the_queue():
    async with fake_cluster(a_setup(cores=1)) as client:
        ended = await played(client, work_s=1.2 * LIMIT_S)
    assert {trajectory.status for trajectory in ended} == {TrajectoryStatus.INFRA_FAILED}
    assert all("reset worked for its limit" in trajectory.reason for trajectory in ended)
