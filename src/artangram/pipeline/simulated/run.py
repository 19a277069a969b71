"""A run on a cluster that is not there: collect, learn and bring weights on virtual time.

`sync`, `one_off` and `overlapped` are the ways to put these verbs in order. Rollout, gateway and
the roll of the weights are the very ones of a real run; only engines, environments and the trainer
take their time from numbers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from msgspec import Struct

from artangram.core.trajectory import Status, Trajectory
from artangram.envs.protocol import Task
from artangram.gateway import Gateway
from artangram.pipeline.simulated.baselines import Batches
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
    waited_s: tuple[float, ...]
    """For each batch: by the trainer, or, launched as a whole, from first to last."""
    tokens: int
    """Given and sampled, of the trajectories that were trained on."""
    trained: int
    """Trajectories."""
    cancelled: int
    """Trajectories that became stale or were more than needed."""
    accumulated_s: float
    """Replica-seconds that new versions were on their way from the store."""
    exposed_s: float
    """Replica-seconds that replicas stood still for them."""
    swaps: int
    """Times that a replica took a new version."""
    worst_staleness: int

    @property
    def step_s(self) -> float:
        """Mean of the steps after the first, which has no one before it to overlap with."""
        later = self.steps_s[1:] or self.steps_s
        return sum(later) / len(later)


class SimulatedRun:
    """The verbs; see the module."""

    def __init__(
        self, scenario: Scenario, gateway: Gateway, rollout: Rollout, *, tasks: list[Task]
    ) -> None:
        self.scenario = scenario
        self._gateway = gateway
        self._rollout = rollout
        self._batches = Batches(
            rollout.runner, tasks, groups=scenario.groups, group_size=scenario.group_size
        )
        self.step = 0
        self._waited: list[float] = []
        self._ended_at: list[float] = []
        self._trained = 0
        self._tokens = 0
        self._accumulated_s = self._exposed_s = 0.0
        self._swaps = self._worst = 0

    @property
    def goes_on(self) -> bool:
        return self.step < self.scenario.steps

    async def collect(self) -> None:
        """Wait for a batch of the rollout."""
        batch = await self._rollout.sink.batch(self.scenario.groups)
        self._rollout.settle(batch)
        self._waited.append(batch.waited_s)
        self._count(batch.trajectories)

    async def launch(self) -> None:
        """Start a batch of its own and wait until all of it has ended."""
        began_at = asyncio.get_running_loop().time()
        trajectories = await self._batches.next()
        self._waited.append(asyncio.get_running_loop().time() - began_at)
        self._count(trajectories)

    async def learn(self) -> None:
        """Make a step of what came last."""
        await asyncio.sleep(self.scenario.train_s)
        self.step += 1
        self._ended_at.append(asyncio.get_running_loop().time())

    def announce(self) -> None:
        """The trainer has a new version: staleness counts from now on, wherever it is."""
        self._rollout.announce(self._rollout.updates.current + 1)

    async def bring(self) -> None:
        """Bring the newest version to the store, and from there to the replicas."""
        updates = self._rollout.updates
        version = updates.current
        await asyncio.sleep(self.scenario.weights.push_s)
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
        self._swaps += len(rolled.swaps)

    async def _pull(self, replica: str, version: int) -> Path:
        await asyncio.sleep(self.scenario.weights.pull_s)
        return Path()

    def _count(self, trajectories: Iterable[Trajectory]) -> None:
        current = self._rollout.updates.current
        for one in trajectories:
            self._trained += 1
            self._tokens += sum(len(segment.token_ids) for segment in one.segments)
            oldest = current if one.oldest_version is None else one.oldest_version
            self._worst = max(self._worst, current - oldest)

    def outcome(self) -> Outcome:
        starts = [0.0, *self._ended_at[:-1]]
        tally = self._rollout.tally
        return Outcome(
            steps_s=tuple(end - start for start, end in zip(starts, self._ended_at, strict=True)),
            waited_s=tuple(self._waited),
            tokens=self._tokens,
            trained=self._trained,
            cancelled=sum(tally.count(status) for status in (Status.STALE, Status.SURPLUS)),
            accumulated_s=self._accumulated_s,
            exposed_s=self._exposed_s,
            swaps=self._swaps,
            worst_staleness=self._worst,
        )


Order = Callable[[SimulatedRun], Awaitable[None]]
"""In which the verbs of a run follow each other."""


async def sync(run: SimulatedRun) -> None:
    """Sample, learn, bring weights, one after the other."""
    while run.goes_on:
        await run.collect()
        await run.learn()
        run.announce()
        await run.bring()


async def one_off(run: SimulatedRun) -> None:
    """Learn from the batch before while a whole new one is sampled; then both wait for weights."""
    await run.launch()
    while run.goes_on:
        coming = asyncio.create_task(run.launch())
        await run.learn()
        await coming
        run.announce()
        await run.bring()


async def overlapped(run: SimulatedRun) -> None:
    """Sampling never stops; a version is on its way while the next one is made."""
    bringing: asyncio.Task[None] | None = None
    while run.goes_on:
        await run.collect()
        await run.learn()
        if bringing is not None:
            await bringing
        run.announce()
        bringing = asyncio.create_task(run.bring())
    if bringing is not None:
        await bringing


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
    tasks = _tasks(scenario, in_step=in_step)
    stages = [Stage(shares=scenario.shares)] if scenario.shares else []
    source = Source(tasks, stages=stages, seed=scenario.seed)
    tokenizer = CountingTokenizer()
    async with Rollout(source, gateway, plan=plan, tokenizer=tokenizer) as rollout:
        run = SimulatedRun(scenario, gateway, rollout, tasks=tasks)
        await order(run)
        return run.outcome()


def _tasks(scenario: Scenario, *, in_step: bool) -> list[Task]:
    step = Step()
    plain = [SyntheticTask(shape, seed=scenario.seed) for shape in scenario.tasks]
    return [InStep(task, step) for task in plain] if in_step else list(plain)
