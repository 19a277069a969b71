"""Coding agents on this machine, for real: who waits how long, and how much CPU is set aside?

- A trajectory thinks (sleeps), runs small Python tools, and ends with a real pytest suite that can
  use all cores. It has as many turns as one of the `coding` family, and its times are a tenth of
  theirs, so that a run ends today: how much of its life it thinks, and not acts, decides what
  cores by the action are worth.
- Every policy gets the same trajectories on the same cores, one policy after the other, in random
  order per round.
- `pods:1` is carried out by the scheduler that carries out the others: a trajectory gets one core
  for its life, from its first action to its end, and waits for it in its first action. The kernel
  limits it to that core. Starting a pod costs here what starting a sandbox costs, and thinking
  before the first action reserves nothing; both favour pods.
"""

import asyncio
import os
import random
import sys
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import process_time
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.bench.result import Origin
from artangram.cli.output import Output
from artangram.core.policies.catalog import policy as policy_named
from artangram.envs.elastictest import command, one_file
from artangram.orchestrator.client import House, between
from artangram.orchestrator.local import local
from artangram.orchestrator.records import ActionResult
from artangram.sandbox.protocol import HostImage

PODS, OURS = "pods:1", "elastic"
THINK_S, TOOL_S, SUITE_S = 1.0, 0.042, 3.0
"""Medians, in seconds of one core for tools and suites."""
THINK_SIGMA, TOOL_SIGMA, SUITE_SIGMA = 0.6, 1.2, 0.93
TURNS_SIGMA, MOST_TURNS = 0.56, 40
LONGEST_S = 15.0
TEST_S = 0.15
"""One test of a suite."""
BETTER_AT_LEAST, RESERVED_AT_MOST = 3.0, 0.4

_BURN = "sum(i * i for i in range({loops}))"
_TEST = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_one(number):
    assert {burn} >= 0
"""


class Plan(Struct, frozen=True, kw_only=True):
    """What one trajectory will do: think and act in turns, then the suite."""

    thinks: tuple[float, ...]
    tools: tuple[float, ...]
    """CPU seconds, one fewer than `thinks`."""
    tests: int


class Life(Struct, frozen=True, kw_only=True):
    """What a trajectory did and got."""

    acts_s: tuple[float, ...]
    waits_s: tuple[float, ...]
    num_failed: int
    lease_core_s: float
    """Cores held by actions, times how long."""
    life_s: float
    """From the start of its first action to its end."""


class PolicyRow(Struct, frozen=True, kw_only=True):
    policy: str
    act_mean_s: float
    act_p99_s: float
    wait_mean_s: float
    reserved_core_s: float
    """Per trajectory."""
    makespan_s: float
    """Mean over the rounds."""
    failed: int
    lives: list[list[Life]]
    """By round."""


class LiveFigures(Struct, frozen=True, kw_only=True):
    cores: int
    rounds: int
    rows: list[PolicyRow]
    better: float | None
    """Mean ACT of pods over that of elastic."""
    reserved_share: float | None
    """CPU reserved per trajectory by elastic over that by pods."""
    load_after: float


def live_agents(
    trajectories: Annotated[int, typer.Option(help="That start at once.", min=1)] = 12,
    turns: Annotated[float, typer.Option(help="Median of a trajectory.", min=1)] = 12.8,
    rounds: Annotated[int, typer.Option(help="Of all policies, in random order.", min=1)] = 2,
    policies: Annotated[str, typer.Option(help="Compared.")] = f"{PODS},tangram,{OURS}",
    cores: Annotated[int | None, typer.Option(help="Use only so many.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same trajectories.")] = 0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Coding agents with real tools and test suites: ACT and CPU set aside, policy by policy."""
    output, names = Output(json), policies.split(",")
    for name in names:
        policy_named(name)
    origin = Origin()
    count = min(cores or sys.maxsize, len(os.sched_getaffinity(0)))
    rng = random.Random(seed)
    found: dict[str, list[tuple[list[Life], float]]] = {name: [] for name in names}
    with output.progress() as progress, TemporaryDirectory(prefix="artangram-live-") as folder:
        task = progress.add_task("live")
        shop = Workshop(Path(folder))
        for number in range(rounds):
            plans = [a_plan(rng, turns) for _ in range(trajectories)]
            for name in rng.sample(names, len(names)):
                progress.update(task, description=f"round {number + 1}, {name}")
                found[name].append(asyncio.run(_run(name, plans, shop, cores=count)))
    rows = [summary(name, runs) for name, runs in found.items()]
    figures = _figures(rows, count, rounds)
    _print(output, figures)
    output.json(origin.result("What does leasing cores by the action bring live?", figures))


def a_plan(rng: random.Random, turns_median: float) -> Plan:
    """One trajectory."""
    turns = round(min(MOST_TURNS, max(1.0, turns_median * rng.lognormvariate(0, TURNS_SIGMA))))
    drawn = [min(LONGEST_S, TOOL_S * rng.lognormvariate(0, TOOL_SIGMA)) for _ in range(turns - 1)]
    suite_s = min(LONGEST_S, SUITE_S * rng.lognormvariate(0, SUITE_SIGMA))
    return Plan(
        thinks=tuple(THINK_S * rng.lognormvariate(0, THINK_SIGMA) for _ in range(turns)),
        tools=tuple(drawn),
        tests=max(1, round(suite_s / TEST_S)),
    )


class Workshop:
    """The suites and programs that sandboxes see, sized for this machine's speed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loops_per_s = _loops_per_s()
        self._program = folder / "elastictest.pyz"
        self._program.write_bytes(one_file())
        folder.chmod(0o755)  # A sandbox's user is nobody in particular.
        self._program.chmod(0o644)

    @property
    def image(self) -> HostImage:
        """The host's programs, this interpreter with pytest, and the suites."""
        homes = {str(Path(home).resolve()) for home in (sys.prefix, sys.base_prefix)}
        return HostImage(also=(str(self._folder), *sorted(homes)))

    def tool(self, work_s: float) -> list[str]:
        """A small Python program that works and leaves a file."""
        burn = _BURN.format(loops=round(work_s * self._loops_per_s))
        return [sys.executable, "-I", "-S", "-c", f"open('notes', 'a').write(str({burn}))"]

    def suite(self, tests: int) -> list[str]:
        """A pytest suite that spreads over the cores it has."""
        path = self._folder / f"test_{tests}.py"
        if not path.exists():
            burn = _BURN.format(loops=round(TEST_S * self._loops_per_s))
            path.write_text(_TEST.format(tests=tests, burn=burn))
            path.chmod(0o644)
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(self._folder)]
        return command([*options, str(path)], python=sys.executable, program=str(self._program))


def _loops_per_s() -> float:
    """How fast this machine counts, the best of some tries: others may be using it."""
    loops = 200_000
    best = min(_burn_s(loops) for _ in range(7))
    return loops / best


def _burn_s(loops: int) -> float:
    began_at = process_time()
    sum(i * i for i in range(loops))
    return process_time() - began_at


async def _run(
    name: str, plans: list[Plan], shop: Workshop, *, cores: int
) -> tuple[list[Life], float]:
    """The lives of all trajectories under one policy, and how long that took."""
    loop = asyncio.get_running_loop()
    async with local(policy=name, cores=cores) as house:
        began_at = loop.time()
        lives = await asyncio.gather(*(_live(house, plan, shop, cores) for plan in plans))
        return lives, loop.time() - began_at


async def _live(house: House, plan: Plan, shop: Workshop, cores: int) -> Life:
    results: list[ActionResult] = []
    async with house.trajectory(task="swe", source=shop.image) as trajectory:
        for think_s, work_s in zip(plan.thinks, plan.tools, strict=False):
            await asyncio.sleep(think_s)
            results.append(await trajectory.run(shop.tool(work_s), kind="swe/tool"))
        await asyncio.sleep(plan.thinks[-1])
        suite = await trajectory.run(shop.suite(plan.tests), kind="swe/test", cpu=between(1, cores))
    return a_life([*results, suite])


def a_life(results: list[ActionResult]) -> Life:
    """A trajectory that ends with its last action."""
    first = results[0].record.started_at
    return Life(
        acts_s=tuple(result.act_s for result in results),
        waits_s=tuple(result.wait_s for result in results),
        num_failed=sum(not result.ok for result in results),
        lease_core_s=sum(result.core_s for result in results),
        life_s=0.0 if first is None else results[-1].record.ended_at - first,
    )


def summary(name: str, runs: list[tuple[list[Life], float]]) -> PolicyRow:
    """One policy over all rounds. A pod reserves its cores for life, others for an action."""
    lives = [life for found, _ in runs for life in found]
    acts = sorted(act for life in lives for act in life.acts_s)
    request = policy_named(name).request_milli / 1000
    reserved = [request * life.life_s if request else life.lease_core_s for life in lives]
    return PolicyRow(
        policy=name,
        act_mean_s=mean(acts),
        act_p99_s=acts[min(len(acts) - 1, int(0.99 * len(acts)))],
        wait_mean_s=mean(wait for life in lives for wait in life.waits_s),
        reserved_core_s=mean(reserved),
        makespan_s=mean(took for _, took in runs),
        failed=sum(life.num_failed for life in lives),
        lives=[found for found, _ in runs],
    )


def _figures(rows: list[PolicyRow], cores: int, rounds: int) -> LiveFigures:
    by_name = {row.policy: row for row in rows}
    pods, ours = by_name.get(PODS), by_name.get(OURS)
    both = pods is not None and ours is not None
    return LiveFigures(
        cores=cores,
        rounds=rounds,
        rows=rows,
        better=pods.act_mean_s / ours.act_mean_s if both and pods and ours else None,
        reserved_share=(
            ours.reserved_core_s / pods.reserved_core_s if both and pods and ours else None
        ),
        load_after=round(os.getloadavg()[0], 2),
    )


def _print(output: Output, figures: LiveFigures) -> None:
    output.table(
        f"Coding agents on {figures.cores} cores, {figures.rounds} rounds",
        ["policy", "ACT s", "p99 s", "wait s", "core-s reserved", "makespan s", "failed"],
        [
            [
                row.policy,
                f"{row.act_mean_s:.2f}",
                f"{row.act_p99_s:.1f}",
                f"{row.wait_mean_s:.2f}",
                f"{row.reserved_core_s:.2f}",
                f"{row.makespan_s:.1f}",
                str(row.failed),
            ]
            for row in figures.rows
        ],
    )
    if figures.better is not None and figures.reserved_share is not None:
        output.console.print(
            f"Mean ACT {figures.better:.2f}x better than {PODS} (goal {BETTER_AT_LEAST:g}x); CPU "
            f"reserved per trajectory {figures.reserved_share:.0%} of {PODS} "
            f"(goal at most {RESERVED_AT_MOST:.0%}). Load afterwards {figures.load_after}.",
            soft_wrap=True,
        )
