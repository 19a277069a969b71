"""The rollout's promises under random worlds with faults, on virtual time.

In every interleaving: nothing too stale is in a batch; every trajectory that started ended once;
no more is held than the bound allows; the mix follows the shares; nothing is left behind.
"""

import asyncio
import random
from collections import Counter

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_world import FakeDoor, FakeTask

from artangram.core.rollout.admission import Mix
from artangram.core.rollout.trajectory import TRAINABLE, Batch, TrajectoryStatus
from artangram.core.rollout.weights import Order, Staleness
from artangram.rollout import PhaseLimits, Plan, Retries, Rollout, Source, Spares, Stage
from artangram.rollout.members import OpenGroup
from artangram.rollout.runner import Attempt
from artangram.rollout.sink import Sink

PHASES = PhaseLimits(reset_s=20, turn_s=20, generate_s=20, reward_s=20, close_s=1)

worlds = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "alpha": st.integers(0, 3),
        "order": st.sampled_from(Order),
        "sheds_early": st.booleans(),
        "group_size": st.integers(1, 4),
        "num_groups": st.integers(1, 4),
        "spare_envs": st.integers(0, 6),
        "extra_groups": st.integers(0, 2),
        "extra_siblings": st.integers(0, 2),
        "hedges": st.booleans(),
        "fault_rate": st.sampled_from([0.0, 0.1, 0.4]),
        "hang_rate": st.sampled_from([0.0, 0.05]),
        "step_s": st.sampled_from([0.0, 0.5, 3.0, 20.0]),
        "load_s": st.sampled_from([0.0, 0.4, 5.0]),
        "shares": st.sampled_from([{"a": 1}, {"a": 1, "b": 1}, {"a": 3, "b": 1}]),
        "detaches": st.booleans(),
    }
)


class World:
    """A rollout with faults, and what was seen of it."""

    def __init__(self, drawn: dict) -> None:
        self.drawn = drawn
        self.chance = random.Random(drawn["seed"])
        self.endpoint = FakeDoor(token_s=0.2)
        self.endpoint.fails = lambda name: self.happens(drawn["fault_rate"] / 4)
        self.tasks = [self._task(name) for name in drawn["shares"]]
        launch = drawn["group_size"] + drawn["extra_siblings"]
        needed = -(-drawn["num_groups"] * launch // (drawn["alpha"] + 1))
        self.plan = Plan(
            environments=max(needed, launch) + drawn["spare_envs"],
            group_size=drawn["group_size"],
            staleness=Staleness(
                max_staleness=drawn["alpha"],
                order=drawn["order"],
                sheds_early=drawn["sheds_early"],
            ),
            extra_groups=drawn["extra_groups"],
            extra_siblings=drawn["extra_siblings"],
            spares=Spares(hedge_quantile=0.8 if drawn["hedges"] else None, most_reissues=4),
            phases=PHASES,
            retries=Retries(attempts=1, backoff_s=0.1, rewards=1),
        )
        source = Source(self.tasks, stages=[Stage(shares=drawn["shares"])], most_issues=4)
        self.rollout = Rollout(source, self.endpoint, plan=self.plan)
        self.batches: list[Batch] = []
        self.ended: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._listen()

    def happens(self, share: float) -> bool:
        return self.chance.random() < share

    def took_s(self, name: str) -> float:
        return 1e9 if self.happens(self.drawn["hang_rate"]) else self.chance.expovariate(1.0)

    def _task(self, name: str) -> FakeTask:
        return FakeTask(
            name=name,
            turns=2,
            turn_s=self.took_s,
            reward_s=self.took_s,
            reset_s=self.took_s,
            fails=lambda _: self.happens(self.drawn["fault_rate"] / 4),
            score_fails=lambda _: self.happens(self.drawn["fault_rate"]),
            detaches=self.drawn["detaches"],
        )

    def _listen(self) -> None:
        tally = self.rollout.tally
        told = tally.on_end

        def on_end(trajectory, took_s):
            self.ended[trajectory.id] += 1
            if (trajectory.reward is not None) != (trajectory.status in TRAINABLE):
                self.wrong.append(f"{trajectory.status} with reward {trajectory.reward}")
            told(trajectory, took_s)

        tally.on_end = on_end
        pump = self.rollout.dispatcher.pump

        def watched() -> None:
            pump()
            self.watch_books()

        self.rollout.dispatcher.pump = watched

    def watch_books(self) -> None:
        """After all that can have changed them."""
        held = self.rollout.dispatcher.held()
        if not 0 <= held.in_envs <= self.plan.environments:
            self.wrong.append(f"{held.in_envs} in environments")
        ready = len(self.rollout.sink.ready) * self.drawn["group_size"]
        groups = self.rollout.dispatcher.groups
        count = ready + sum(len(group.running) + len(group.finished) for group in groups)
        if count > (self.drawn["alpha"] + 1) * self.plan.environments:
            self.wrong.append(f"{count} held")
        if sum(len(task.open_envs) for task in self.tasks) > self.plan.environments:
            self.wrong.append("more environments are open than there are")

    async def train(self, steps: int) -> None:
        """Batches are trained on while engines load, as in the real pipeline."""
        for version in range(1, steps + 1):
            batch = await self.rollout.sink.batch(self.drawn["num_groups"])
            self.batches.append(batch)
            self._check(batch)
            await asyncio.sleep(self.drawn["step_s"])
            await asyncio.sleep(0.001)
            self._check_surplus(batch)
            self.rollout.settle(batch)
            self.rollout.announce(version)
            await asyncio.sleep(self.drawn["load_s"])
            self.endpoint.version = version
            self.rollout.go_live(version)

    def _check(self, batch: Batch) -> None:
        assert batch.version == self.rollout.updates.current
        assert len(batch.groups) == self.drawn["num_groups"]
        for group in batch.groups:
            assert len(group.trajectories) == self.drawn["group_size"]
            assert {t.group for t in group.trajectories} == {group.id}
        for trajectory in batch.trajectories:
            spans = [span for segment in trajectory.segments for span in segment.spans]
            oldest = min(span.version for span in spans)
            assert oldest >= batch.version - self.drawn["alpha"]
            assert trajectory.status in TRAINABLE

    def _check_surplus(self, batch: Batch) -> None:
        delivered = {group.id for group in batch.groups}
        left = [life for life in self.rollout.dispatcher.attempts if life.ticket.group in delivered]
        assert not left

    async def run(self, steps: int = 5) -> None:
        async with self.rollout:
            async with asyncio.timeout(100_000):
                await self.train(steps)

    def check_end(self) -> None:
        assert not self.wrong
        started = sum(self.rollout.tally.started.values())
        assert len(self.ended) == started
        assert set(self.ended.values()) <= {1}
        assert not self.endpoint.open_sessions
        assert not any(task.open_envs or task.scoring for task in self.tasks)
        self._check_mix()
        for account in self.rollout.source.positions().values():
            dropped = sum(account.dropped.values())
            assert account.drawn == account.trained + dropped + len(account.outstanding)

    def _check_mix(self) -> None:
        given_to = Counter(group.task for batch in self.batches for group in batch.groups)
        shares = self.drawn["shares"]
        for task, share in shares.items():
            due = sum(given_to.values()) * share / sum(shares.values())
            assert abs(given_to[task] - due) < len(shares)


def played(drawn: dict) -> None:
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(_whole(drawn))
    finally:
        loop.close()


async def _whole(drawn: dict) -> None:
    world = World(drawn)
    await world.run()
    world.check_end()


@given(worlds)
@settings(max_examples=25, deadline=None)
def test_the_promises_hold_in_random_worlds_with_faults(drawn: dict):
    played(drawn)


A_HARD_WORLD = {
    "seed": 7,
    "alpha": 1,
    "order": Order.OLDEST,
    "sheds_early": True,
    "group_size": 4,
    "num_groups": 3,
    "spare_envs": 6,
    "extra_groups": 2,
    "extra_siblings": 1,
    "hedges": True,
    "fault_rate": 0.4,
    "hang_rate": 0.05,
    "step_s": 0.5,
    "load_s": 0.4,
    "shares": {"a": 1, "b": 1},
    "detaches": False,
}


def without_the_sinks_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sink, "evict_stale", lambda sink: None)


def without_replacement(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenGroup, "lacks", property(lambda group: 0))


def with_places_given_back_twice(patch: pytest.MonkeyPatch) -> None:
    free = Attempt._free_env

    def twice(life: Attempt) -> None:
        give_back = life._on_env_free
        free(life)
        if give_back is not None:
            give_back()

    patch.setattr(Attempt, "_free_env", twice)


def with_no_room_kept_for_siblings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenGroup, "alive", property(lambda group: len(group.finished)))


def with_surplus_left_running(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempt, "stop", lambda life, status, reason: None)


def with_first_come_first_served(patch: pytest.MonkeyPatch) -> None:
    def seats(mix: Mix, num_groups: int) -> dict[str, int]:
        return dict.fromkeys(mix.shares, 0) | {next(iter(mix.shares)): num_groups}

    patch.setattr(Mix, "seats", seats)


def with_infrastructure_as_reward_zero(patch: pytest.MonkeyPatch) -> None:
    end = Attempt._end

    def zero(life: Attempt, status: TrajectoryStatus, reason: str, *, reward: float | None = None):
        return end(life, status, reason, reward=0.0 if reward is None else reward)

    patch.setattr(Attempt, "_end", zero)


@pytest.mark.parametrize(
    "plant",
    [
        without_the_sinks_check,
        without_replacement,
        with_places_given_back_twice,
        with_no_room_kept_for_siblings,
        with_surplus_left_running,
        with_first_come_first_served,
        with_infrastructure_as_reward_zero,
    ],
)
def test_the_promises_catch_a_planted_bug(plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError)):
        played(A_HARD_WORLD)


def test_without_a_planted_bug_the_hard_world_is_fine():
    played(A_HARD_WORLD)
