"""One trajectory: its phases, their limits, its failures and its one end."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec import structs
from rollout_world import FakeDoor, FakeEnv, FakeTask

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import Trajectory, TrajectoryStatus
from artangram.core.rollout.weights import Staleness
from artangram.envs.protocol import Observation, Problem, TurnRewards
from artangram.gateway.engines.protocol import FinishReason
from artangram.rollout.phases import PhaseLimits
from artangram.rollout.runner import Assignment, Attempt, Retries, Runner
from artangram.rollout.updates import Updates

pytestmark = pytest.mark.looptime

LIMITS = PhaseLimits(reset_s=5, turn_s=5, generate_s=5, reward_s=5, close_s=2)
NO_RETRIES = Retries(attempts=0, rewards=0)


class World:
    """A runner, and whether an environment's place was given back."""

    def __init__(
        self,
        endpoint: FakeDoor,
        *,
        retries: Retries = NO_RETRIES,
        staleness: Staleness | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.updates = Updates(staleness or Staleness())
        self.runner = Runner(endpoint, self.updates, phases=LIMITS, retries=retries)
        self.freed = 0

    def start(self, task: FakeTask) -> Attempt:
        ticket = Assignment(
            id=TrajectoryId("t"),
            job=JobId("job"),
            group="g",
            task=task,
            problem=Problem(id="p", task=task.name),
        )
        return self.runner.start(ticket, on_env_free=self._on_env_free)

    async def run(self, task: FakeTask) -> Trajectory:
        return await self.start(task).ended

    def _on_env_free(self) -> None:
        self.freed += 1


def after(calls: int) -> Callable[[str], bool]:
    """Fails for the first so many calls."""
    left = [calls]

    def fails(name: str) -> bool:
        left[0] -= 1
        return left[0] >= 0

    return fails


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_trajectory_keeps_its_tokens_its_reward_and_where_time_went():
    world, task = World(FakeDoor()), FakeTask(reward=lambda name: 0.5, reward_s=lambda name: 2.0)
    found = await world.run(task)
    assert (found.status, found.reward, found.turns) == (TrajectoryStatus.OK, 0.5, 2)
    assert found.num_sampled == 6
    assert found.info["turn_s"] == pytest.approx(2.0)
    assert found.info["generate_s"] == pytest.approx(0.6)
    assert found.info["reward_s"] == pytest.approx(2.0)
    assert world.freed == 1
    assert not task.open_envs
    assert not world.endpoint.open_sessions


async def test_turns_that_run_out_are_truncated_and_still_scored():
    found = await World(FakeDoor()).run(FakeTask(turns=9, max_turns=3, reward=lambda name: 0.25))
    assert (found.status, found.reward, found.turns) == (TrajectoryStatus.TRUNCATED, 0.25, 3)


async def test_an_attempt_that_went_wrong_is_the_models_doing():
    class Failing(FakeEnv):
        async def respond(self, reply: str) -> Observation:
            return Observation(text="", done=True, failed=True)

    task = FakeTask(reward=lambda name: -1.0)
    task.env = lambda problem, trajectory: Failing(task, trajectory)
    found = await World(FakeDoor()).run(task)
    assert (found.status, found.reward) == (TrajectoryStatus.TASK_FAILED, -1.0)


async def test_rewards_of_turns_are_kept_with_the_trajectory():
    class Judging(FakeEnv):
        async def respond(self, reply: str) -> Observation:
            seen = await super().respond(reply)
            return structs.replace(seen, reward=0.5 if seen.done else None)

    task = FakeTask(turns=2)
    task.env = lambda problem, trajectory: Judging(task, trajectory)
    assert (await World(FakeDoor()).run(task)).turn_rewards == (None, 0.5)
    assert (await World(FakeDoor()).run(FakeTask(turns=2))).turn_rewards == ()


async def test_a_score_may_say_the_rewards_of_turns():
    given = TurnRewards(reward=1.0, turns=(0.25, None))
    found = await World(FakeDoor()).run(FakeTask(reward=lambda name: given))
    assert (found.reward, found.turn_rewards) == (1.0, (0.25, None))
    nonsense = TurnRewards(reward=1.0, turns=(float("nan"),))
    found = await World(FakeDoor()).run(FakeTask(reward=lambda name: nonsense))
    assert found.status is TrajectoryStatus.INFRA_FAILED


async def test_a_full_context_truncates_and_is_still_scored():
    endpoint = FakeDoor()
    endpoint.full_after = 1
    found = await World(endpoint).run(FakeTask(turns=5, reward=lambda name: 0.75))
    assert (found.status, found.reward, found.turns) == (TrajectoryStatus.TRUNCATED, 0.75, 1)


async def test_a_turn_that_somebody_else_aborts_is_infrastructure():
    endpoint = FakeDoor()
    endpoint.finish = FinishReason.ABORT
    found = await World(endpoint).run(FakeTask())
    assert found.status is TrajectoryStatus.INFRA_FAILED
    assert "aborted in the engine" in found.reason


async def test_a_crash_is_infrastructure_and_never_a_reward():
    task = FakeTask(fails=lambda name: True)
    found = await World(FakeDoor()).run(task)
    assert (found.status, found.reward) == (TrajectoryStatus.INFRA_FAILED, None)
    assert "the environment crashed" in found.reason
    assert not task.open_envs


async def test_infrastructure_gets_another_chance_with_everything_fresh():
    task = FakeTask(fails=after(2))
    world = World(FakeDoor(), retries=Retries(attempts=2, backoff_s=4.0))
    found = await world.run(task)
    assert found.status is TrajectoryStatus.OK
    assert found.num_sampled == 6  # those of the attempt that succeeded, and no others
    assert now() == pytest.approx(1.3 + 4.0 + 1.3 + 8.0 + 2.6)
    assert world.freed == 1


async def test_an_engine_that_stumbles_is_infrastructure():
    endpoint = FakeDoor()
    endpoint.fails = after(1)
    assert (await World(endpoint).run(FakeTask())).status is TrajectoryStatus.INFRA_FAILED
    endpoint.fails = after(1)
    world = World(endpoint, retries=Retries(attempts=1))
    assert (await world.run(FakeTask())).status is TrajectoryStatus.OK


async def test_a_reward_is_asked_for_again_without_playing_again():
    task = FakeTask(score_fails=after(2), reward=lambda name: 1.0)
    world = World(FakeDoor(), retries=Retries(attempts=0, rewards=2))
    found = await world.run(task)
    assert (found.status, found.reward) == (TrajectoryStatus.OK, 1.0)
    assert now() == pytest.approx(2.6)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "0.5"])
async def test_a_reward_that_is_no_number_never_trains(reward: object):
    found = await World(FakeDoor(), retries=NO_RETRIES).run(FakeTask(reward=lambda name: reward))
    assert (found.status, found.reward) == (TrajectoryStatus.INFRA_FAILED, None)


async def test_a_reward_that_never_comes_is_not_zero():
    task = FakeTask(score_fails=lambda name: True)
    world = World(FakeDoor(), retries=Retries(attempts=0, rewards=2))
    found = await world.run(task)
    assert (found.status, found.reward) == (TrajectoryStatus.INFRA_FAILED, None)


@pytest.mark.parametrize(
    ("phase", "task", "at"),
    [
        ("reset", FakeTask(reset_s=lambda name: 1e9), 5.0),
        ("turn", FakeTask(turn_s=lambda name: 1e9), 5.3),
        ("reward", FakeTask(reward_s=lambda name: 1e9), 7.6),
    ],
)
async def test_a_phase_that_hangs_is_ended_at_its_limit(phase: str, task: FakeTask, at: float):
    found = await World(FakeDoor()).run(task)
    assert found.status is TrajectoryStatus.INFRA_FAILED
    assert f"{phase} worked for its limit of 5 s" in found.reason
    assert now() == pytest.approx(at)
    assert not task.open_envs


async def test_an_engine_that_hangs_is_ended_at_its_limit():
    found = await World(FakeDoor(token_s=1e9)).run(FakeTask())
    assert "generate worked for its limit" in found.reason
    assert now() == pytest.approx(5.0)


async def test_phases_that_were_ended_at_their_limit_are_counted():
    world = World(FakeDoor(), retries=Retries(attempts=2, rewards=0))
    await world.run(FakeTask(turn_s=lambda name: 1e9 if name == "t" else 1.0))
    await world.run(FakeTask(reward_s=lambda name: 1e9))
    assert world.runner.late == {"turn": 1, "reward": 3}


async def test_waiting_in_line_counts_against_no_limit():
    found = await World(FakeDoor(queue_s=1000.0)).run(FakeTask())
    assert found.status is TrajectoryStatus.OK
    assert now() == pytest.approx(2002.6)


async def test_an_environment_in_line_for_cores_is_not_late():
    class Queueing(FakeEnv):
        queued_s = 0.0

        async def respond(self, reply: str) -> Observation:
            for _ in range(50):
                await asyncio.sleep(1.0)
                self.queued_s += 1.0
            return await super().respond(reply)

    task = FakeTask()
    task.env = lambda problem, trajectory: Queueing(task, trajectory)
    assert (await World(FakeDoor()).run(task)).status is TrajectoryStatus.OK


async def test_an_environment_that_cannot_be_cancelled_holds_up_nobody():
    class Stubborn(FakeEnv):
        async def respond(self, reply: str) -> Observation:
            while True:
                try:
                    await asyncio.sleep(100.0)
                    return Observation(text="", done=True)
                except asyncio.CancelledError:
                    continue

    task = FakeTask()
    task.env = lambda problem, trajectory: Stubborn(task, trajectory)
    world = World(FakeDoor())
    found = await world.run(task)
    assert found.status is TrajectoryStatus.INFRA_FAILED
    assert now() == pytest.approx(0.3 + 5.0 + 2.0)
    assert (len(world.runner.strays), world.runner.strays.count) == (1, 1)
    await asyncio.sleep(200.0)
    assert len(world.runner.strays) == 0


async def test_an_environment_that_does_not_close_changes_nothing():
    class Closing(FakeEnv):
        async def aclose(self) -> None:
            await asyncio.sleep(1e9)

    task = FakeTask(reward=lambda name: 1.0)
    task.env = lambda problem, trajectory: Closing(task, trajectory)
    world = World(FakeDoor())
    assert (await world.run(task)).reward == 1.0
    assert world.freed == 1


async def test_a_detached_reward_does_not_hold_the_environment():
    task = FakeTask(detaches=True, reward_s=lambda name: 4.0, reward=lambda name: 1.0)
    world = World(FakeDoor())
    life = world.start(task)
    await asyncio.sleep(3.0)
    assert (life.phase, world.freed, task.open_envs) == ("reward", 1, set())
    assert (await life.ended).reward == 1.0
    assert world.freed == 1


async def test_who_gave_his_place_away_does_not_play_again():
    task = FakeTask(detaches=True, score_fails=lambda name: True)
    found = await World(FakeDoor(), retries=Retries(attempts=5, rewards=0)).run(task)
    assert found.status is TrajectoryStatus.INFRA_FAILED
    assert task.most_open == 1
    assert now() == pytest.approx(2.6)


@pytest.mark.parametrize("at", [0.0, 0.1, 0.7, 2.7])
async def test_stopping_ends_engine_environment_and_reward(at: float):
    task = FakeTask(reward_s=lambda name: 4.0)
    world = World(FakeDoor())
    life = world.start(task)
    if at:
        await asyncio.sleep(at)
    life.stop(TrajectoryStatus.SURPLUS, "enough")
    life.stop(TrajectoryStatus.STALE, "too late to say")
    found = await life.ended
    assert (found.status, found.reason, found.reward) == (TrajectoryStatus.SURPLUS, "enough", None)
    assert now() == pytest.approx(at)
    assert (world.freed, task.open_envs, task.scoring) == (1, set(), 0)
    assert (world.endpoint.open_sessions, world.endpoint.generating) == (set(), 0)


async def test_stopping_what_has_ended_changes_nothing():
    life = World(FakeDoor()).start(FakeTask())
    found = await life.ended
    life.stop(TrajectoryStatus.SURPLUS, "too late")
    assert life.ended.result() is found
    assert "ended, 2 turns" in repr(life)


async def test_a_trajectory_ends_at_the_turn_at_which_it_is_stale():
    world = World(FakeDoor())
    life = world.start(FakeTask(turns=8))
    await asyncio.sleep(1.5)
    world.updates.announce(2)
    world.updates.go_live(2)
    found = await life.ended
    assert found.status is TrajectoryStatus.STALE
    assert now() == pytest.approx(1.6)  # the turn under way then, and not one more


async def test_one_that_is_not_shed_early_plays_to_its_end():
    world = World(FakeDoor(), staleness=Staleness(max_staleness=0, sheds_early=False))
    life = world.start(FakeTask())
    await asyncio.sleep(1.5)
    world.updates.announce(2)
    world.updates.go_live(2)
    assert (await life.ended).status is TrajectoryStatus.OK


async def test_a_turn_waits_for_weights_that_are_not_stale_at_once():
    world = World(FakeDoor())
    world.updates.announce(5)
    life = world.start(FakeTask())
    await asyncio.sleep(50.0)
    assert (life.phase, world.endpoint.generating) == ("weights", 0)
    world.endpoint.version = 5
    world.updates.go_live(5)
    assert (await life.ended).oldest_version == 5
