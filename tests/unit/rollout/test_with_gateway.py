"""Rollout, the real gateway and rolling weights together, on virtual time with scripted engines."""

import asyncio
from pathlib import Path

import pytest
from rollout_world import FakeTask

from artangram.core.rollout.trajectory import Batch, TrajectoryStatus
from artangram.core.rollout.weights import Staleness, Update
from artangram.gateway import Gateway
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.models.vocabulary import Vocabulary
from artangram.rollout import PhaseLimits, Plan, Rollout, Source
from artangram.weights import roll

pytestmark = pytest.mark.looptime

HERE = Path(__file__).parent
WORDS = Vocabulary.of(["begin go on word"])


def engines_of(gateway: Gateway, count: int) -> list[ScriptedEngine]:
    answer = (*WORDS.encode("word"), WORDS.eos_id)
    pace = ScriptedPace(token_s=0.5, load_s=1.0)
    engines = [ScriptedEngine(lambda r: answer, name=f"e{n}", pace=pace) for n in range(count)]
    for engine in engines:
        gateway.add(engine)
    return engines


async def pull(replica: str, version: int) -> Path:
    await asyncio.sleep(2.0)
    return HERE


def a_rollout(gateway: Gateway, staleness: Staleness, task: FakeTask) -> Rollout:
    plan = Plan(
        environments=16, group_size=4, staleness=staleness, phases=PhaseLimits(generate_s=30.0)
    )
    return Rollout(Source([task]), gateway, plan=plan, tokenizer=WORDS)


async def trained(rollout: Rollout, gateway: Gateway, steps: int) -> list[Batch]:
    """A version rolls through the engines while the next batch comes together."""
    batches = []
    for version in range(1, steps + 1):
        batches.append(await rollout.sink.batch(2))
        await asyncio.sleep(3.0)
        rollout.settle(batches[-1])
        rollout.announce(version)
        await roll(
            gateway,
            version,
            pull=pull,
            versions=rollout.updates.versions,
            mode=rollout.updates.staleness.update,
        )
        rollout.go_live(version)
    return batches


@pytest.mark.parametrize("mode", list(Update))
@pytest.mark.parametrize("alpha", [0, 1])
async def test_batches_keep_the_bound_while_weights_roll(alpha: int, mode: Update):
    gateway = Gateway()
    engines = engines_of(gateway, 2)
    staleness = Staleness(max_staleness=alpha, update=mode)
    task = FakeTask(turns=3)
    async with a_rollout(gateway, staleness, task) as rollout:
        batches = await trained(rollout, gateway, steps=5)
    for batch in batches:
        assert max(group.staleness(batch.version) for group in batch.groups) <= alpha
        for trajectory in batch.trajectories:
            assert trajectory.num_sampled == 6
            assert all(len(s.logprobs) == len(s.token_ids) for s in trajectory.segments if s.spans)
    assert [engine.stats().version for engine in engines] == [5, 5]
    assert not gateway.sessions
    assert not task.open_envs


async def test_waiting_for_a_replica_counts_against_no_limit():
    gateway = Gateway()
    async with a_rollout(gateway, Staleness(), FakeTask()) as rollout:
        asked = asyncio.create_task(rollout.sink.batch(2))
        await asyncio.sleep(500.0)  # much longer than a turn may take
        assert rollout.tally.count(TrajectoryStatus.INFRA_FAILED) == 0
        engines_of(gateway, 1)
        assert len((await asked).groups) == 2
    assert rollout.tally.count(TrajectoryStatus.INFRA_FAILED) == 0


async def test_turns_on_an_engine_that_hangs_are_given_up_and_played_again():
    gateway = Gateway()
    bad, _ = engines_of(gateway, 2)
    async with a_rollout(gateway, Staleness(), FakeTask()) as rollout:
        asked = asyncio.create_task(rollout.sink.batch(2))
        await asyncio.sleep(0.1)
        bad.hang()
        async with asyncio.timeout(1000.0):
            assert len((await asked).groups) == 2


async def test_a_dead_engine_loses_no_trajectory():
    gateway = Gateway()
    engines = engines_of(gateway, 2)
    async with a_rollout(gateway, Staleness(), FakeTask(turns=3)) as rollout:
        asked = asyncio.create_task(rollout.sink.batch(2))
        await asyncio.sleep(0.7)
        engines[0].crash()
        batch = await asked
        assert len(batch.trajectories) == 8
        assert rollout.tally.count(TrajectoryStatus.INFRA_FAILED) == 0
    assert gateway.counters.lost == 1
    assert gateway.counters.moves > 0


async def test_stopped_trajectories_leave_nothing_in_the_engines():
    gateway = Gateway()
    (engine,) = engines_of(gateway, 1)
    async with a_rollout(gateway, Staleness(max_staleness=0), FakeTask()) as rollout:
        asked = asyncio.create_task(rollout.sink.batch(2))
        await asyncio.sleep(0.7)
        assert engine.stats().running == 8
        rollout.announce(1)
        await asyncio.sleep(0.01)
        assert engine.stats().running == 0
        assert rollout.tally.count(TrajectoryStatus.STALE) == 8
        asked.cancel()
    assert not gateway.sessions
