"""A run on a simulated cluster: the loops of real training on virtual time.

Loop, rollout, gateway and the update of weights are the code of a real run; only engines,
environments and the trainer are replaced by delays.
"""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from msgspec import Struct

from artangram.core.rollout.trajectory import Batch
from artangram.envs.protocol import Task
from artangram.gateway import Gateway
from artangram.rollout import Bias, PhaseLimits, Plan, Rollout, Source, Stage
from artangram.weights import roll
from artangram_bench.simulated.cluster import Scenario, a_gateway
from artangram_bench.simulated.tasks import InStep, Step, SyntheticTask
from artangram_bench.simulated.virtualtime import run_virtually
from artangram_bench.simulated.words import CountingTokenizer

PATIENT = PhaseLimits(reset_s=3600.0, turn_s=3600.0, generate_s=36_000.0, reward_s=3600.0)
"""Limits are not what is measured here."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a run took."""

    steps_s: tuple[float, ...]
    """From one batch to the next, the first included."""
    waited_s: tuple[float, ...]
    """By the trainer, for each batch."""
    trained_s: tuple[float, ...]
    tokens: tuple[int, ...]
    """Of each batch, given and sampled."""
    trained: int
    """Trajectories."""
    cut_off: dict[str, Bias]
    """Of each task: trajectories that became stale or were more than needed, and their length."""
    accumulated_s: float
    """Replica-seconds that new versions were on their way to replicas, from a store or directly."""
    exposed_s: float
    """Replica-seconds that replicas stood still for them."""
    swaps: int
    """Times that a replica took a new version."""
    worst_staleness: int
    """Of what was learned from, counted from the version that learned."""
    warm_up: int
    """Steps at the start that are not like the others."""
    hit_rates: dict[str, float]
    """Of each task: the share of prompt tokens that were in a prefix cache."""
    rerouted: int
    """Turns that left the replica that had read most of their session."""
    reread_tokens: int
    """That were read again for it."""
    spilled: int
    """Turns on another class than those of the plan."""

    @property
    def cancelled(self) -> float:
        """The share of trajectories that was cut off."""
        cancelled = sum(bias.cancelled for bias in self.cut_off.values())
        return cancelled / max(1, cancelled + sum(bias.kept for bias in self.cut_off.values()))

    @property
    def cut_length(self) -> float | None:
        """Tokens of what was cut off, over those of what was kept of the same task."""
        weighed = [
            (bias.tokens, bias.cancelled)
            for bias in self.cut_off.values()
            if bias.cancelled and bias.tokens is not None
        ]
        if not weighed:
            return None
        return sum(tokens * n for tokens, n in weighed) / sum(n for _, n in weighed)

    @property
    def step_s(self) -> float:
        """Of the steps after the first ones, which have none before them to overlap with."""
        return _each(self.steps_s[self.warm_up :] or self.steps_s)

    @property
    def training(self) -> float:
        """The share of a step for which the trainer was busy."""
        return _each(self.trained_s[self.warm_up :] or self.trained_s) / self.step_s

    @property
    def tokens_per_s(self) -> float:
        """Of the same steps. Dropping long trajectories makes steps shorter, but not this."""
        return _each(self.tokens[self.warm_up :] or self.tokens) / self.step_s


def _each(values: Sequence[float]) -> float:
    """What each adds: the slope of the line through their running totals.

    Where long and short steps alternate, a mean depends on which of them is the last one.
    """
    totals = list(accumulate(values, initial=0.0))
    middle, mean = len(values) / 2.0, fmean(totals)
    rise = sum((n - middle) * (total - mean) for n, total in enumerate(totals))
    return rise / sum((n - middle) ** 2 for n in range(len(totals)))


class SimulatedTraining:
    """See `pipeline.protocol.RunVerbs`."""

    def __init__(self, scenario: Scenario, gateway: Gateway, rollout: Rollout) -> None:
        self.scenario = scenario
        self._gateway = gateway
        self._rollout = rollout
        far = {pool.hardware for pool in scenario.pools if pool.is_far}
        self._far = {replica.name for replica in gateway.replicas if replica.hardware in far}
        self._pushed: asyncio.Task[None] | None = None
        self._rolling: asyncio.Task[None] | None = None
        self.step = 0
        self._waited: list[float] = []
        self._busy: list[float] = []
        self._ended_at: list[float] = []
        self._trained = 0
        self._tokens: list[int] = []
        self._pulled_s = self._exposed_s = 0.0
        self._swaps = self._worst = 0

    @property
    def goes_on(self) -> bool:
        return self.step < self.scenario.steps

    async def collect(self) -> Batch:
        return await self._rollout.sink.batch(self.scenario.groups)

    async def learn(self, batch: Batch) -> None:
        """Learns nothing, but takes as long."""
        tokens = self._count(batch)
        took_s = self.scenario.train_s + tokens * self.scenario.train_token_s
        await asyncio.sleep(took_s)
        self._rollout.settle(batch)
        self.step += 1
        self._waited.append(batch.waited_s)
        self._busy.append(took_s)
        self._ended_at.append(asyncio.get_running_loop().time())

    async def announce(self) -> None:
        """When the previous version is everywhere: no replica falls two behind."""
        await self.delivered()
        self._rollout.announce(self._rollout.updates.current + 1)

    async def deliver(self) -> None:
        """Replicas far away get it beside the next step, as it comes."""
        self._rolling = asyncio.create_task(self._roll(self._rollout.updates.current))
        if not self._far:
            await self._rolling

    async def delivered(self) -> None:
        """Return when every replica has the version that was delivered last."""
        if self._rolling is not None:
            await self._rolling

    async def _roll(self, version: int) -> None:
        updates = self._rollout.updates
        self._pushed = asyncio.create_task(asyncio.sleep(self.scenario.weights.push_s))
        rolled = await roll(
            self._gateway,
            version,
            pull=self._pull,
            versions=updates.versions,
            mode=updates.staleness.update,
            at_once=self.scenario.at_once,
        )
        self._rollout.go_live(version)
        self._exposed_s += rolled.exposed_s
        self._swaps += len(rolled.swaps)

    async def keep(self) -> None:
        """Does nothing: a simulated run keeps no state."""

    async def _pull(self, replica: str, version: int) -> Path:
        took_s = self.scenario.weights.near_s
        if replica in self._far:
            assert self._pushed is not None, "deliver pushes first"
            await self._pushed
            took_s = self.scenario.weights.pull_s
        await asyncio.sleep(took_s)
        self._pulled_s += took_s
        return Path()

    def _count(self, batch: Batch) -> int:
        """How many tokens the batch has."""
        current = self._rollout.updates.current
        tokens = sum(
            len(segment.token_ids) for one in batch.trajectories for segment in one.segments
        )
        self._tokens.append(tokens)
        self._trained += len(batch.trajectories)
        self._worst = max(self._worst, *(group.staleness(current) for group in batch.groups))
        return tokens

    def outcome(self) -> Outcome:
        starts = [0.0, *self._ended_at[:-1]]
        return Outcome(
            steps_s=tuple(end - start for start, end in zip(starts, self._ended_at, strict=True)),
            waited_s=tuple(self._waited),
            trained_s=tuple(self._busy),
            tokens=tuple(self._tokens),
            trained=self._trained,
            cut_off=self._rollout.tally.biases(),
            accumulated_s=self._pulled_s + self._exposed_s,
            exposed_s=self._exposed_s,
            swaps=self._swaps,
            worst_staleness=self._worst,
            warm_up=self.scenario.warm_up,
            rerouted=self._gateway.counters.rerouted,
            reread_tokens=self._gateway.counters.reread_tokens,
            spilled=sum(self._gateway.counters.spills.values()),
            hit_rates={
                task: tally.hit_rate for task, tally in self._gateway.counters.tasks.items()
            },
        )


def simulate(scenario: Scenario) -> Outcome:
    """What all steps of the scenario took."""
    return run_virtually(_simulated(scenario))


async def _simulated(scenario: Scenario) -> Outcome:
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
    stages = [Stage(shares=scenario.shares)] if scenario.shares else []
    source = Source(_tasks(scenario), stages=stages, seed=scenario.seed)
    tokenizer = CountingTokenizer()
    async with Rollout(source, gateway, plan=plan, tokenizer=tokenizer) as rollout:
        training = SimulatedTraining(scenario, gateway, rollout)
        await scenario.loop(training)
        await training.delivered()
        return training.outcome()


def _tasks(scenario: Scenario) -> list[Task]:
    step = Step()
    plain = [SyntheticTask(shape, seed=scenario.seed) for shape in scenario.tasks]
    return [InStep(task, step) for task in plain] if scenario.in_step else list(plain)
