"""A run on a cluster that is not there: collect, learn and publish on virtual time.

`sync`, `one_off` and `overlapped` are the ways to put these verbs in order. Rollout, gateway and
the roll of the weights are the very ones of a real run; only engines, environments and the trainer
take their time from numbers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from artangram.core.trajectory import Batch, Status
from artangram.gateway import Gateway
from artangram.pipeline.simulated.cluster import Scenario, a_gateway
from artangram.pipeline.simulated.tasks import InStep, Step, SyntheticTask
from artangram.pipeline.simulated.virtualtime import run_virtually
from artangram.pipeline.simulated.words import CountingTokenizer
from artangram.rollout import PhaseLimits, Plan, Rollout, Source, Stage
from artangram.weights import roll

PATIENT = PhaseLimits(reset_s=3600.0, turn_s=3600.0, generate_s=36_000.0, reward_s=3600.0)
"""Limits are not what is measured here."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a run took."""

    steps_s: tuple[float, ...]
    """From one batch to the next, the first included."""
    collect_s: tuple[float, ...]
    """That the trainer waited for batches."""
    tokens: int
    """Given and sampled, of the trajectories that were trained on."""
    kept: int
    cancelled: int
    accumulated_s: float
    """Replica-seconds that new versions were on their way from the store."""
    exposed_s: float
    """Replica-seconds that replicas stood still for them."""
    worst_staleness: int

    @property
    def step_s(self) -> float:
        """Mean of the steps after the first, which has no one before it to overlap with."""
        later = self.steps_s[1:] or self.steps_s
        return sum(later) / len(later)


class SimulatedRun:
    """The verbs; see the module."""

    def __init__(self, scenario: Scenario, gateway: Gateway, rollout: Rollout) -> None:
        self.scenario = scenario
        self._gateway = gateway
        self._rollout = rollout
        self.step = 0
        self._collected: list[float] = []
        self._ended_at: list[float] = []
        self._tokens = 0
        self._accumulated_s = self._exposed_s = 0.0
        self._worst = 0

    @property
    def goes_on(self) -> bool:
        return self.step < self.scenario.steps

    async def collect(self) -> Batch:
        batch = await self._rollout.sink.batch(self.scenario.groups)
        self._collected.append(batch.waited_s)
        self._worst = max(self._worst, *(g.staleness(batch.version) for g in batch.groups))
        for trajectory in batch.trajectories:
            self._tokens += sum(len(segment.token_ids) for segment in trajectory.segments)
        return batch

    async def learn(self, batch: Batch) -> None:
        await asyncio.sleep(self.scenario.train_s)
        self._rollout.settle(batch)
        self.step += 1
        self._ended_at.append(asyncio.get_running_loop().time())

    async def publish(self) -> None:
        updates, weights = self._rollout.updates, self.scenario.weights
        version = updates.current + 1
        await asyncio.sleep(weights.push_s)
        self._rollout.announce(version)
        rolled = await roll(
            self._gateway,
            version,
            pull=self._pull,
            versions=updates.versions,
            mode=updates.staleness.update,
            at_once=self.scenario.at_once,
        )
        self._rollout.go_live(version)
        self._accumulated_s += rolled.accumulated_s
        self._exposed_s += rolled.exposed_s

    async def _pull(self, replica: str, version: int) -> Path:
        await asyncio.sleep(self.scenario.weights.pull_s)
        return Path()

    def outcome(self) -> Outcome:
        starts = [0.0, *self._ended_at[:-1]]
        tally = self._rollout.tally
        return Outcome(
            steps_s=tuple(end - start for start, end in zip(starts, self._ended_at, strict=True)),
            collect_s=tuple(self._collected),
            tokens=self._tokens,
            kept=sum(tally.count(status) for status in (Status.OK, Status.TRUNCATED)),
            cancelled=sum(tally.count(status) for status in (Status.STALE, Status.SURPLUS)),
            accumulated_s=self._accumulated_s,
            exposed_s=self._exposed_s,
            worst_staleness=self._worst,
        )


Order = Callable[[SimulatedRun], Awaitable[None]]
"""In which the verbs of a run follow each other."""


async def sync(run: SimulatedRun) -> None:
    """Sample, learn, publish, one after the other."""
    while run.goes_on:
        batch = await run.collect()
        await run.learn(batch)
        await run.publish()


async def overlapped(run: SimulatedRun) -> None:
    """Sampling never stops; a version is on its way while the next batch comes together."""
    publishing: asyncio.Task[None] | None = None
    while run.goes_on:
        batch = await run.collect()
        if publishing is not None:
            await publishing
        await run.learn(batch)
        publishing = asyncio.create_task(run.publish())
    if publishing is not None:
        await publishing


def simulate(scenario: Scenario, order: Order = overlapped, *, in_step: bool = False) -> Outcome:
    """Run the scenario. With `in_step` environments wait for each other at every turn."""
    return run_virtually(_simulated(scenario, order, in_step=in_step))


async def _simulated(scenario: Scenario, order: Order, *, in_step: bool) -> Outcome:
    gateway = a_gateway(scenario)
    plan = Plan(
        environments=scenario.envs,
        group_size=scenario.group_size,
        staleness=scenario.staleness,
        extra_groups=scenario.extra_groups,
        extra_siblings=scenario.extra_siblings,
        spares=scenario.spares,
        phases=PATIENT,
    )
    source = _source(scenario, in_step=in_step)
    tokenizer = CountingTokenizer()
    async with Rollout(source, gateway, plan=plan, tokenizer=tokenizer) as rollout:
        run = SimulatedRun(scenario, gateway, rollout)
        await order(run)
        return run.outcome()


def _source(scenario: Scenario, *, in_step: bool) -> Source:
    step = Step()
    plain = [SyntheticTask(shape, seed=scenario.seed) for shape in scenario.tasks]
    stages = [Stage(shares=scenario.shares)] if scenario.shares else []
    if in_step:
        return Source([InStep(task, step) for task in plain], stages=stages, seed=scenario.seed)
    return Source(plain, stages=stages, seed=scenario.seed)
