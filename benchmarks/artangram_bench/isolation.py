"""Do a slow, a hanging and a crashing environment slow the others down?

- One rollout, gateway and cluster; every turn of a healthy environment is a command in a sandbox.
- Blocks of time alternate in one run: only healthy environments, then as many healthy ones beside
  one of every fault. The ratio is of healthy trajectories per second in neighbouring blocks.
- A slow environment waits in every turn for five times as long as a reply takes. A hanging one runs
  a command that never returns: it is ended at the limit of its phase, and another begins. A
  crashing one runs a command that kills itself, again and again.
- The model is a script with delays, and environments leave most of the cores' time unused: that a
  hanging command holds a core until its limit is not what this measures.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from statistics import median
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import InfraFailed
from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.core.rollout.weights import Staleness
from artangram.envs.protocol import Observation, Problem
from artangram.gateway import Gateway
from artangram.gateway.engines.protocol import EngineRequest
from artangram.gateway.engines.scripted import ScriptedEngine, ScriptedPace
from artangram.models.vocabulary import Vocabulary
from artangram.orchestrator.client import Client
from artangram.orchestrator.local import local
from artangram.rollout import PhaseLimits, Plan, Retries, Rollout, Source
from artangram_bench.result import Origin

SAID = "word"
WORDS = Vocabulary.of([SAID])
HEALTHY = "healthy"
FAULTS = ("slow", "hanging", "crashing")
TURNS = 2
TOKEN_S = 0.1
REPLY_TOKENS = (4, 12)
"""At least and at most: environments of one pace would finish together, and windows count badly."""
SLOW_S = 5 * TOKEN_S * sum(REPLY_TOKENS) / 2
TURN_LIMIT_S = 1.5 * SLOW_S
WARM_S = 2.0
"""Until the trajectories of a block are at all places of their lives."""


class Block(Struct, frozen=True, kw_only=True):
    """A stretch of time with the same environments."""

    faults: tuple[str, ...]
    per_s: float
    """Healthy trajectories."""
    failed: int
    """Trajectories that ended as failures of infrastructure, faulty ones that is."""
    late: int
    """Phases that were ended at their limit."""


class Isolation(Struct, frozen=True, kw_only=True):
    environments: int
    faults: tuple[str, ...]
    seconds: float
    blocks: list[Block]
    ratios: list[float]
    """With faults over without, of neighbours."""
    ratio: float
    """Their median."""
    noise: float
    """By how much blocks without faults differ, as a share of their median."""


class _Task:
    """At any time one environment of every fault is open; all others are healthy."""

    name = "tools"
    max_turns = TURNS + 1
    max_tokens = REPLY_TOKENS[1]

    def __init__(self, client: Client, *, faults: tuple[str, ...]) -> None:
        self.client = client
        self.faults = faults
        self.open: list[str] = []
        self.healthy = 0

    def problems(self, seed: int) -> Iterator[Problem]:
        number = 0
        while True:
            yield Problem(id=f"{seed}-{number}", task=self.name)
            number += 1

    def env(self, problem: Problem, *, trajectory: str) -> "_Env":
        kind = next((fault for fault in self.faults if fault not in self.open), HEALTHY)
        return _Env(self, kind, trajectory)


class _Env:
    """As its kind says; see the module."""

    def __init__(self, task: _Task, kind: str, name: str) -> None:
        self._task = task
        self._kind = kind
        self._place = task.client.trajectory(task=task.name, memory_mb=64, id=name)
        self._turns = 0
        task.open.append(kind)

    @property
    def queued_s(self) -> float:
        return self._place.queued_s

    async def reset(self) -> Observation:
        await self._place.__aenter__()
        return Observation(text=SAID)

    async def respond(self, reply: str) -> Observation:
        if self._kind == "slow":
            await asyncio.sleep(SLOW_S)
        script = {"hanging": "sleep 1000", "crashing": "kill -9 $$"}.get(self._kind, f"echo {SAID}")
        ran = await self._place.run(["/bin/sh", "-c", script], kind=f"tools/{self._kind}")
        if not ran.ok:
            raise InfraFailed(f"{ran.outcome}: {ran.reason}")
        self._turns += 1
        return Observation(text=SAID, done=self._turns == TURNS)

    async def score(self) -> float:
        self._task.healthy += self._kind == HEALTHY
        return 1.0

    async def aclose(self) -> None:
        await self._place.close()
        self._task.open.remove(self._kind)


def isolation(
    environments: Annotated[int, typer.Option(help="Concurrent healthy environments.", min=1)] = 12,
    blocks: Annotated[
        int, typer.Option(help="Blocks with and without faults, alternating.", min=1)
    ] = 5,
    seconds: Annotated[float, typer.Option(help="Seconds of a block.", min=0.1)] = 8.0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Throughput of healthy environments beside a slow, a hanging and a crashing one."""
    output, origin = Printer(json), Origin()
    with output.progress() as progress:
        progress.add_task("isolation")
        found = asyncio.run(_measured(environments, blocks=blocks, seconds=seconds))
    _print(output, found)
    output.json(origin.result("Do faulty environments slow the others down?", found))


async def _measured(environments: int, *, blocks: int, seconds: float) -> Isolation:
    async with local() as client:
        return await compared(client, environments, blocks=blocks, seconds=seconds)


async def compared(client: Client, environments: int, *, blocks: int, seconds: float) -> Isolation:
    """Blocks without and with faults in turn; every other pair the other way round."""
    found: list[Block] = []
    ratios: list[float] = []
    gateway = Gateway()
    gateway.add(ScriptedEngine(_script, pace=ScriptedPace(token_s=TOKEN_S)))
    for number in range(blocks):
        pair: list[Block] = []
        for faults in ((), FAULTS) if number % 2 == 0 else (FAULTS, ()):
            task = _Task(client, faults=faults)
            rollout = _rollout(task, gateway, environments, life=f"{number}{len(pair)}-")
            pair.append(await _block(rollout, task, environments, seconds=seconds))
        found += pair
        alone, beside = sorted(pair, key=lambda block: len(block.faults))
        ratios.append(beside.per_s / alone.per_s)
    return Isolation(
        environments=environments,
        faults=FAULTS,
        seconds=seconds,
        blocks=found,
        ratios=ratios,
        ratio=median(ratios),
        noise=_noise([block.per_s for block in found if not block.faults]),
    )


def _noise(same: list[float]) -> float:
    return (max(same) - min(same)) / median(same)


def _script(request: EngineRequest) -> list[int]:
    (word,) = WORDS.encode(SAID)
    return [word] * Random(request.id).randint(*REPLY_TOKENS)


def _rollout(task: _Task, gateway: Gateway, environments: int, *, life: str) -> Rollout:
    plan = Plan(
        environments=environments + len(task.faults),
        group_size=1,
        staleness=Staleness(max_staleness=3),
        phases=PhaseLimits(turn_s=TURN_LIMIT_S),
        # At once, in another trajectory: one that waits for its next attempt would hold the place
        # of a healthy one, since another one is faulty now.
        retries=Retries(attempts=0),
    )
    return Rollout(Source([task]), gateway, plan=plan, tokenizer=WORDS, life=life)


async def _block(rollout: Rollout, task: _Task, environments: int, *, seconds: float) -> Block:
    loop = asyncio.get_running_loop()
    async with rollout:
        training = asyncio.create_task(_take_all(rollout, environments))
        await asyncio.sleep(WARM_S)
        before, began_at = task.healthy, loop.time()
        await asyncio.sleep(seconds)
        per_s = (task.healthy - before) / (loop.time() - began_at)
        training.cancel()
    return Block(
        faults=task.faults,
        per_s=per_s,
        failed=rollout.tally.count(TrajectoryStatus.INFRA_FAILED),
        late=sum(rollout.runner.late.values()),
    )


async def _take_all(rollout: Rollout, count: int) -> None:
    """A trainer that always wants more than there is."""
    while True:
        rollout.settle(await rollout.sink.batch(count))


def _print(output: Printer, found: Isolation) -> None:
    output.table(
        f"Healthy trajectories per second of {found.environments} environments",
        ["beside", "per s", "failed", "ended at a limit"],
        [
            [
                ", ".join(block.faults) or "-",
                f"{block.per_s:.2f}",
                str(block.failed),
                str(block.late),
            ]
            for block in found.blocks
        ],
    )
    low, high = min(found.ratios), max(found.ratios)
    output.console.print(
        f"with faults / without: {found.ratio:.3f} ({low:.3f} to {high:.3f}); "
        f"blocks without faults differ by {found.noise:.1%}"
    )
