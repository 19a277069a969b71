"""The whole rollout on virtual time: batches come, ends are clean, nothing is lost."""

import asyncio
import logging
import random
from collections.abc import Iterator
from itertools import islice

import msgspec
import pytest
from rollout_world import FakeDoor, FakeTask, a_rollout, train

from artangram.core.errors import InfraFailed
from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.core.rollout.verdict import DropReason
from artangram.core.rollout.weights import Staleness
from artangram.envs.protocol import Problem
from artangram.rollout import Retries, RolloutState, Spares

pytestmark = pytest.mark.looptime


def is_clean(endpoint: FakeDoor, *tasks: FakeTask) -> bool:
    """Nothing of a trajectory is left anywhere."""
    idle = all(not task.open_envs and not task.scoring for task in tasks)
    return idle and not endpoint.open_sessions and not endpoint.generating


async def test_batches_of_whole_groups_come_out():
    endpoint, task = FakeDoor(), FakeTask()
    async with a_rollout(task, endpoint=endpoint) as rollout:
        batches = await train(rollout, endpoint, batches=3, num_groups=2)
    assert [len(batch.groups) for batch in batches] == [2, 2, 2]
    assert all(len(group.trajectories) == 4 for batch in batches for group in batch.groups)
    assert len({group.problem for batch in batches for group in batch.groups}) == 6
    assert is_clean(endpoint, task)


@pytest.mark.parametrize("alpha", [0, 1, 3])
async def test_nothing_older_than_the_bound_is_in_a_batch(alpha: int):
    endpoint = FakeDoor()
    task = FakeTask(turn_s=lambda name: 1.0 + hash_of(name) % 7)
    staleness = Staleness(max_staleness=alpha)
    async with a_rollout(task, endpoint=endpoint, staleness=staleness) as rollout:
        batches = await train(rollout, endpoint, batches=12, num_groups=2, step_s=0.7)
    worst = [max(group.staleness(batch.version) for group in batch.groups) for batch in batches]
    assert max(worst) <= alpha
    assert [batch.version for batch in batches] == list(range(12))


async def test_synchronous_training_is_on_policy():
    endpoint, task = FakeDoor(), FakeTask()
    staleness = Staleness(max_staleness=0)
    async with a_rollout(task, endpoint=endpoint, staleness=staleness, environments=8) as rollout:
        batches = await train(rollout, endpoint, batches=4, num_groups=2)
    for batch in batches:
        versions = {s.version for t in batch.trajectories for g in t.segments for s in g.spans}
        assert versions == {batch.version}


async def test_fast_environments_train_on_the_last_version_however_wide_the_bound():
    endpoint, task = FakeDoor(token_s=0.001), FakeTask(turn_s=lambda name: 0.01)
    staleness = Staleness(max_staleness=6)
    async with a_rollout(task, endpoint=endpoint, staleness=staleness) as rollout:
        batches = await train(rollout, endpoint, batches=12, num_groups=4, step_s=10.0)
    late = [max(group.staleness(batch.version) for group in batch.groups) for batch in batches[6:]]
    assert max(late) <= 1


async def test_overlap_hides_the_rollout_behind_training():
    async def took(alpha: int) -> float:
        endpoint, task = FakeDoor(), FakeTask(turn_s=lambda name: 4.7)
        staleness = Staleness(max_staleness=alpha)
        began_at = asyncio.get_running_loop().time()
        async with a_rollout(task, endpoint=endpoint, staleness=staleness) as rollout:
            await train(rollout, endpoint, batches=10, num_groups=4, step_s=10.0)
        return asyncio.get_running_loop().time() - began_at

    assert await took(0) / await took(1) > 1.8


async def test_the_mix_follows_the_shares_though_one_task_is_slow():
    endpoint = FakeDoor()
    fast = FakeTask(name="fast", turn_s=lambda name: 0.1)
    slow = FakeTask(name="slow", turn_s=lambda name: 5.0)
    shares = {"fast": 1, "slow": 3}
    async with a_rollout(fast, slow, endpoint=endpoint, shares=shares, environments=32) as rollout:
        batches = await train(rollout, endpoint, batches=5, num_groups=4)
    for batch in batches:
        assert sorted(g.task for g in batch.groups) == ["fast", "slow", "slow", "slow"]


async def test_surplus_siblings_are_really_cancelled():
    endpoint = FakeDoor()
    task = FakeTask(turn_s=lambda name: 1.0 if int(name[-1]) <= 4 else 500.0)
    plan = {"extra_siblings": 2, "environments": 24}
    async with a_rollout(task, endpoint=endpoint, **plan) as rollout:
        batch = await rollout.sink.batch(2)
        await asyncio.sleep(0.01)
        ended = {life.ticket.group for life in rollout.dispatcher.attempts}
        assert not ended & {group.id for group in batch.groups}
        assert rollout.tally.count(TrajectoryStatus.SURPLUS) >= 4
        bias = rollout.tally.bias("math")
    assert bias.cancelled >= 4
    assert bias.seconds is not None
    assert is_clean(endpoint, task)


async def test_the_log_says_whether_the_long_ones_were_cut_off(caplog):
    task = FakeTask(turn_s=lambda name: 50.0 if name.endswith(".5") else 1.0)
    endpoint = FakeDoor()
    with caplog.at_level(logging.INFO, "artangram.rollout.rollout"):
        async with a_rollout(task, endpoint=endpoint, extra_siblings=1, environments=5) as rollout:
            await train(rollout, endpoint, batches=2, num_groups=1)
            bias = rollout.tally.biases()["math"]
            assert (bias.kept, bias.cancelled) == (8, 2)
    assert f"8 trajectories kept, 2 cancelled with {bias.tokens:.2f} times" in caplog.text


async def test_surplus_groups_go_back_to_the_source_when_training_is_synchronous():
    endpoint = FakeDoor()
    slow_once = {"math-0.1": 90.0, "math-0.2": 0.5}
    task = FakeTask(turn_s=lambda name: slow_once.get(name[:8], 1.0))
    plan = {"extra_groups": 1, "staleness": Staleness(max_staleness=0), "environments": 12}
    async with a_rollout(task, endpoint=endpoint, **plan) as rollout:
        first = await rollout.sink.batch(2)
        assert {group.problem for group in first.groups} == {"math-0-1", "math-0-2"}
        await asyncio.sleep(1.0)
        assert is_clean(endpoint, task)
        rollout.settle(first)
        rollout.announce(1)
        endpoint.version = 1
        rollout.go_live(1)
        second = await rollout.sink.batch(2)
    assert "math-0-0" in {group.problem for group in second.groups}


async def test_a_late_sibling_is_hedged_and_the_first_wins():
    endpoint = FakeDoor()
    late = "math-19.1.2"
    task = FakeTask(turn_s=lambda name: 1000.0 if name == late else 1.0)
    plan = {"spares": Spares(hedge_quantile=0.9), "staleness": Staleness(max_staleness=4)}
    async with a_rollout(task, endpoint=endpoint, **plan) as rollout:
        batches = await train(rollout, endpoint, batches=14, num_groups=2)
        took_s = asyncio.get_running_loop().time()
        assert rollout.tally.hedged == {"math": 1}
    assert "math-0-19" in {group.problem for batch in batches for group in batch.groups}
    assert took_s < 100.0


async def test_stale_work_is_aborted_when_a_version_is_announced():
    endpoint = FakeDoor()
    task = FakeTask(turn_s=lambda name: 10_000.0)
    async with a_rollout(task, endpoint=endpoint, staleness=Staleness(max_staleness=0)) as rollout:
        asked = asyncio.create_task(rollout.sink.batch(2))
        await asyncio.sleep(5.0)
        assert len(rollout.dispatcher.attempts) == 8
        rollout.announce(1)
        await asyncio.sleep(0.01)
        assert rollout.tally.count(TrajectoryStatus.STALE) == 8
        assert not task.open_envs
        asked.cancel()


async def test_areal_lets_stale_work_run_but_never_trains_on_it():
    endpoint = FakeDoor()
    task = FakeTask(turn_s=lambda name: 5.0)
    staleness = Staleness(max_staleness=0, sheds_early=False)
    async with a_rollout(task, endpoint=endpoint, staleness=staleness) as rollout:
        asked = asyncio.create_task(rollout.sink.batch(2))
        await asyncio.sleep(5.5)
        rollout.announce(1)
        endpoint.version = 1
        rollout.go_live(1)
        assert len(rollout.dispatcher.attempts) == 8
        batch = await asked
    assert {t.oldest_version for t in batch.trajectories} == {1}
    assert rollout.tally.count(TrajectoryStatus.STALE) == 0


async def test_no_turn_begins_with_weights_that_are_stale_at_once():
    endpoint, task = FakeDoor(), FakeTask()
    async with a_rollout(task, endpoint=endpoint, staleness=Staleness(max_staleness=0)) as rollout:
        rollout.announce(1)
        asked = asyncio.create_task(rollout.sink.batch(2))
        await asyncio.sleep(100.0)
        assert not rollout.dispatcher.attempts
        assert "engines have not loaded" in repr(rollout)
        endpoint.version = 1
        rollout.go_live(1)
        assert (await asked).version == 1


async def test_a_partial_batch_leaves_when_waiting_costs_more():
    endpoint = FakeDoor()
    fast = FakeTask(name="fast")
    dead = FakeTask(name="dead", turn_s=lambda name: 1e6 if "-0." not in name else 1.0)
    async with a_rollout(fast, dead, endpoint=endpoint, environments=32) as rollout:
        (whole,) = await train(rollout, endpoint, batches=1, num_groups=2, step_s=60.0)
        began_at = asyncio.get_running_loop().time()
        batch = await rollout.sink.batch(2, min_groups=1)
        waited_s = asyncio.get_running_loop().time() - began_at
    assert len(whole.groups) == whole.asked
    assert [group.task for group in batch.groups] == ["fast"]
    assert len(batch.groups) < batch.asked
    assert waited_s == pytest.approx(30.0)


async def test_infrastructure_failures_do_not_touch_the_statistics_of_groups():
    chance = random.Random(3)
    task = FakeTask(reward=lambda name: 1.0, fails=lambda name: chance.random() < 0.2)
    endpoint = FakeDoor()
    endpoint.fails = lambda name: chance.random() < 0.2
    plan = {"retries": Retries(attempts=0)}
    async with a_rollout(task, endpoint=endpoint, **plan) as rollout:
        batches = await train(rollout, endpoint, batches=6, num_groups=2)
        assert rollout.tally.count(TrajectoryStatus.INFRA_FAILED) > 10
        assert sum(rollout.tally.reissued.values()) > 10
    for group in (group for batch in batches for group in batch.groups):
        assert [t.reward for t in group.trajectories] == [1.0] * 4


async def test_a_problem_that_breaks_every_environment_is_given_up_and_accounted_for():
    endpoint = FakeDoor()
    task = FakeTask(fails=lambda name: name.startswith("math-1."))
    plan = {"retries": Retries(attempts=0), "spares": Spares(most_reissues=2)}
    async with a_rollout(task, endpoint=endpoint, **plan) as rollout:
        batches = await train(rollout, endpoint, batches=8, num_groups=2)
        assert rollout.source.positions()["math"].dropped == {DropReason.INFRA: 1}
    problems = {group.problem for batch in batches for group in batch.groups}
    assert "math-0-1" not in problems
    assert len(problems) == 16


async def test_a_task_that_runs_out_of_problems_begins_again():
    class Short(FakeTask):
        def problems(self, seed: int) -> Iterator[Problem]:
            return islice(super().problems(seed), 3)

    endpoint = FakeDoor()
    async with a_rollout(Short(), endpoint=endpoint) as rollout:
        batches = await train(rollout, endpoint, batches=2, num_groups=3)
    assert {group.problem[:6] for batch in batches for group in batch.groups} == {
        "math-0",
        "math-1",
    }


async def test_the_trainer_hears_when_problems_cannot_be_drawn():
    class Broken(FakeTask):
        def problems(self, seed: int) -> Iterator[Problem]:
            yield from islice(super().problems(seed), 2)
            raise RuntimeError("the data set is gone")

    endpoint = FakeDoor()
    async with a_rollout(Broken(), endpoint=endpoint) as rollout:
        with pytest.raises(RuntimeError, match="data set is gone"):
            await train(rollout, endpoint, batches=9, num_groups=1)


async def test_the_trainer_hears_that_the_rollout_was_closed():
    async with a_rollout(FakeTask(turn_s=lambda _: 1e9), endpoint=FakeDoor()) as rollout:
        asked = asyncio.create_task(rollout.sink.batch(1))
        await asyncio.sleep(1)
    with pytest.raises(InfraFailed, match="closed"):
        await asked
    with pytest.raises(InfraFailed, match="closed"):
        await rollout.sink.batch(1)


async def test_the_log_says_why_no_attempt_at_a_problem_succeeds(caplog):
    task = FakeTask(fails=lambda _: True)
    plan = {"retries": Retries(attempts=0), "spares": Spares(most_reissues=2)}
    async with a_rollout(task, endpoint=FakeDoor(), **plan) as rollout:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rollout.sink.batch(1), 60)
    (warned,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "is given up" in warned.getMessage()
    assert rollout.tally.last_failure in warned.getMessage()


async def test_equal_rewards_can_be_dropped():
    endpoint = FakeDoor()
    task = FakeTask(reward=lambda name: float("-0." in name and name.endswith("1")))
    async with a_rollout(task, endpoint=endpoint, needs_signal=True) as rollout:
        batch = await rollout.sink.batch(1)
    assert batch.groups[0].problem == "math-0-0"
    dropped = rollout.source.positions()["math"].dropped
    assert set(dropped) <= {DropReason.NO_SIGNAL}


async def test_a_restart_loses_no_problem_and_trains_none_twice():
    endpoint, task = FakeDoor(), FakeTask()
    async with a_rollout(task, endpoint=endpoint, environments=32) as rollout:
        trained = await train(rollout, endpoint, batches=2, num_groups=3)
        lost = await rollout.sink.batch(3)
        await asyncio.sleep(30.0)
        saved = msgspec.msgpack.encode(rollout.save())
    state = msgspec.msgpack.decode(saved, type=RolloutState)
    assert state.ready
    again = a_rollout(FakeTask(), endpoint=endpoint, environments=32)
    again.restore(state)
    async with again:
        endpoint.version = 0
        trained += await train(again, endpoint, batches=8, num_groups=3)
    problems = [group.problem for batch in trained for group in batch.groups]
    assert len(problems) == len(set(problems)) == 30
    assert {group.problem for group in lost.groups} <= set(problems)
    account = again.source.positions()["math"]
    assert account.trained == 30
    assert account.drawn == account.trained + len(account.outstanding)


async def test_what_is_under_way_at_the_end_stays_outstanding():
    endpoint = FakeDoor()
    plan = {"spares": Spares(most_reissues=0), "most_issues": 1}
    async with a_rollout(FakeTask(turn_s=lambda name: 100.0), endpoint=endpoint, **plan) as rollout:
        asked = asyncio.create_task(rollout.sink.batch(2))
        await asyncio.sleep(50.0)
        asked.cancel()
    account = rollout.source.positions()["math"]
    assert account.dropped == {}
    assert account.drawn == len(account.outstanding) >= 2


async def test_virtual_time_repeats_itself():
    async def once() -> list[tuple[str, float]]:
        endpoint, chance = FakeDoor(), random.Random(5)
        task = FakeTask(turn_s=lambda name: chance.expovariate(1.0))
        async with a_rollout(task, endpoint=endpoint, extra_siblings=1, environments=24) as rollout:
            batches = await train(rollout, endpoint, batches=4, num_groups=3)
        return [(t.id, t.info["turn_s"]) for batch in batches for t in batch.trajectories]

    first, second = await once(), await once()
    assert [name for name, _ in first] == [name for name, _ in second]
    assert [s for _, s in first] == pytest.approx([s for _, s in second])


@pytest.mark.parametrize("spare", ["extra_groups", "extra_siblings"])
async def test_redundancy_does_not_wait_for_the_slowest(spare: str):
    async def took_s(**plan: int) -> float:
        endpoint, chance = FakeDoor(), random.Random(5)
        task = FakeTask(turn_s=lambda name: 50.0 if chance.random() < 0.03 else 1.0)
        settings = {"staleness": Staleness(max_staleness=0), "environments": 64} | plan
        began_at = asyncio.get_running_loop().time()
        async with a_rollout(task, endpoint=endpoint, **settings) as rollout:
            await train(rollout, endpoint, batches=8, num_groups=4)
        return asyncio.get_running_loop().time() - began_at

    assert await took_s() / await took_s(**{spare: 2}) > 1.5


def hash_of(name: str) -> int:
    """The same in every process."""
    return sum(ord(letter) * (7 + place) for place, letter in enumerate(name))


async def test_nothing_more_is_opened_into_the_line_of_a_cluster():
    endpoint, task = FakeDoor(), FakeTask(turn_s=lambda name: 30.0)
    async with a_rollout(task, endpoint=endpoint, environments=32) as rollout:
        dispatcher = rollout.dispatcher
        dispatcher.on_line(0.0, 0)
        asked = asyncio.create_task(rollout.sink.batch(8))
        await asyncio.sleep(0.01)
        assert len(dispatcher.attempts) == 8
        assert dispatcher.waits is not None
        assert dispatcher.waits.why == "the cluster has a line for memory or cores"
        dispatcher.on_line(60.0, 4)
        assert len(dispatcher.attempts) == 8
        dispatcher.on_line(0.0, 0)
        assert len(dispatcher.attempts) == 16
        dispatcher.on_line(0.0, 0)
        assert len(dispatcher.attempts) == 32
        assert len((await asked).groups) == 8
