"""Live coding agents on this machine: how long do they wait, and how much CPU is reserved?

- Every policy gets the same trajectories on the same cores, one policy after the other, in random
  order per round, for each duty (`live_plans`). The goals are judged by the first duty.
- Pods run under the same scheduler as the others: a trajectory has its request reserved from its
  first action to its end, and waits for it in its first action. The kernel keeps it within its
  limit. Starting a pod costs here what starting a sandbox costs, which favours pods.
- The result has the CPU used beside the CPU reserved: if they differ by more than sleeping
  explains, other processes used the machine.
"""

import asyncio
import os
import random
import sys
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.orchestrator.client import Client
from artangram.orchestrator.local import local
from artangram.orchestrator.options import between
from artangram.orchestrator.records import ActionResult
from artangram_bench.live_plans import DUTIES, Duty, Plan, SuiteFiles, plans
from artangram_bench.result import Origin

PODS, OURS = "pods:1", "elastic"
POLICIES = f"{PODS},pods:0.5/4,overcommit,tangram,{OURS}"
BETTER_AT_LEAST, RESERVED_AT_MOST = 3.0, 0.4


class Life(Struct, frozen=True, kw_only=True):
    """What a trajectory did and got."""

    acts_s: tuple[float, ...]
    waits_s: tuple[float, ...]
    failures: tuple[str, ...]
    lease_core_s: float
    """Cores held by actions, times how long."""
    cpu_s: float
    """Used by its programs."""
    active_s: float
    """With an action running."""
    life_s: float
    """From the start of its first action to its end."""


class PolicyRow(Struct, frozen=True, kw_only=True):
    policy: str
    act_mean_s: float
    act_p99_s: float
    wait_mean_s: float
    reserved_core_s: float
    """Per trajectory."""
    cpu_s: float
    """Used per trajectory."""
    active_share: float
    """Of the life of trajectories, with an action running."""
    makespan_s: float
    """Mean over the rounds."""
    failed: int
    why_failed: str
    """The first time."""
    lives: list[list[Life]]
    """By round."""


class DutyFigures(Struct, frozen=True, kw_only=True):
    duty: str
    think_s: float
    rows: list[PolicyRow]
    better: float | None
    """Mean ACT of pods over that of elastic."""
    reserved_share: float | None
    """CPU reserved per trajectory by elastic over that by pods."""


class LiveFigures(Struct, frozen=True, kw_only=True):
    cores: int
    trajectories: int
    rounds: int
    duties: list[DutyFigures]
    better: float | None
    """Of the first duty, as the next."""
    reserved_share: float | None
    load_after: float


def live_agents(
    trajectories: Annotated[int, typer.Option(help="Trajectories that start at once.", min=1)] = 8,
    turns: Annotated[float, typer.Option(help="Median number of turns.", min=1)] = 12.8,
    rounds: Annotated[
        int, typer.Option(help="Rounds of all policies, in random order.", min=1)
    ] = 1,
    policies: Annotated[str, typer.Option(help="Policies to compare, with commas.")] = POLICIES,
    duties: Annotated[
        str, typer.Option(help="How long agents think: names, with commas.")
    ] = ",".join(DUTIES),
    cores: Annotated[int | None, typer.Option(help="Use only this many.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same trajectories.")] = 0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Coding agents with real tools and test suites: ACT and reserved CPU, policy by policy."""
    output, names = Printer(json), policies.split(",")
    chosen = [_duty_named(name) for name in duties.split(",")]
    for name in names:
        policy_named(name)
    origin = Origin()
    count = min(cores or sys.maxsize, len(os.sched_getaffinity(0)))
    found = []
    with output.progress() as progress, TemporaryDirectory(prefix="artangram-live-") as folder:
        task, shop = progress.add_task("live"), SuiteFiles(Path(folder))
        for duty in chosen:
            rng = random.Random(seed)
            runs: dict[str, list[Run]] = {name: [] for name in names}
            for number in range(rounds):
                batch = plans(duty, count=trajectories, turns=turns, rng=rng)
                for name in rng.sample(names, len(names)):
                    progress.update(task, description=f"{duty.name} {number + 1}, {name}")
                    runs[name].append(asyncio.run(_run(name, batch, shop, cores=count)))
            found.append(figures_of(duty, [summary(name, runs[name]) for name in names]))
    figures = LiveFigures(
        cores=count,
        trajectories=trajectories,
        rounds=rounds,
        duties=found,
        better=found[0].better,
        reserved_share=found[0].reserved_share,
        load_after=round(os.getloadavg()[0], 2),
    )
    _print(output, figures)
    output.json(origin.result("What does leasing cores by the action bring live?", figures))


def _duty_named(name: str) -> Duty:
    if name not in DUTIES:
        raise BadInput("duties", f"{name!r} is unknown", f"use some of: {', '.join(DUTIES)}")
    return DUTIES[name]


Run = tuple[list[Life], float]
"""The lives of all trajectories under one policy, and how long that took."""


async def _run(name: str, batch: list[Plan], shop: SuiteFiles, *, cores: int) -> Run:
    loop = asyncio.get_running_loop()
    async with local(policy=name, cores=cores) as client:
        began_at = loop.time()
        lives = await asyncio.gather(*(one_life(client, plan, shop, cores) for plan in batch))
        return lives, loop.time() - began_at


async def one_life(client: Client, plan: Plan, shop: SuiteFiles, cores: int) -> Life:
    """Act and think as `plan` says, in one sandbox."""
    results: list[ActionResult] = []
    async with client.trajectory(task="swe", source=shop.image) as trajectory:
        for work_s, think_s in zip(plan.tools, plan.thinks, strict=True):
            results.append(await trajectory.run(shop.tool(work_s), kind="swe/tool"))
            await asyncio.sleep(think_s)
        suite = await trajectory.run(shop.suite(plan.tests), kind="swe/test", cpu=between(1, cores))
    return a_life([*results, suite])


def a_life(results: list[ActionResult]) -> Life:
    """A trajectory that ends with its last action."""
    first = results[0].record.started_at
    return Life(
        acts_s=tuple(result.act_s for result in results),
        waits_s=tuple(result.wait_s for result in results),
        failures=tuple(_failure(result) for result in results if not result.ok),
        lease_core_s=sum(result.core_s for result in results),
        cpu_s=sum(result.command.cpu_s for result in results if result.command is not None),
        active_s=sum(result.overhead_s + result.run_s for result in results),
        life_s=0.0 if first is None else results[-1].record.ended_at - first,
    )


def _failure(result: ActionResult) -> str:
    return f"{result.outcome.value}: {result.reason or result.stderr[-200:]}"


def summary(name: str, runs: list[Run]) -> PolicyRow:
    """One policy over all rounds. A pod reserves its request for life, others for an action."""
    lives = [life for found, _ in runs for life in found]
    acts = sorted(act for life in lives for act in life.acts_s)
    failures = [failure for life in lives for failure in life.failures]
    request = policy_named(name).request_milli / 1000
    reserved = [request * life.life_s if request else life.lease_core_s for life in lives]
    return PolicyRow(
        policy=name,
        act_mean_s=mean(acts),
        act_p99_s=acts[min(len(acts) - 1, int(0.99 * len(acts)))],
        wait_mean_s=mean(wait for life in lives for wait in life.waits_s),
        reserved_core_s=mean(reserved),
        cpu_s=mean(life.cpu_s for life in lives),
        active_share=sum(life.active_s for life in lives) / sum(life.life_s for life in lives),
        makespan_s=mean(took for _, took in runs),
        failed=len(failures),
        why_failed=failures[0] if failures else "",
        lives=[found for found, _ in runs],
    )


def figures_of(duty: Duty, rows: list[PolicyRow]) -> DutyFigures:
    """The ratios that the goals are about, if both sides ran."""
    by_name = {row.policy: row for row in rows}
    pods, ours = by_name.get(PODS), by_name.get(OURS)
    if pods is None or ours is None:
        better = reserved_share = None
    else:
        better = pods.act_mean_s / ours.act_mean_s
        reserved_share = ours.reserved_core_s / pods.reserved_core_s
    return DutyFigures(
        duty=duty.name,
        think_s=duty.think_s,
        rows=rows,
        better=better,
        reserved_share=reserved_share,
    )


def _print(output: Printer, figures: LiveFigures) -> None:
    for one in figures.duties:
        _print_duty(output, figures, one)
    output.console.print(
        f"Goals, for {figures.duties[0].duty}: {BETTER_AT_LEAST:g}x, at most "
        f"{RESERVED_AT_MOST:.0%}. Load afterwards {figures.load_after}.",
        soft_wrap=True,
    )


def _print_duty(output: Printer, figures: LiveFigures, one: DutyFigures) -> None:
    title = f"{one.duty}: {figures.trajectories} agents that think for {one.think_s:g} s (median) "
    numbers = ["ACT s", "p99 s", "wait s", "core-s reserved", "CPU-s used", "active", "makespan s"]
    output.table(
        title + f"on {figures.cores} cores, {figures.rounds} rounds",
        ["policy", *numbers, "failed"],
        [
            [
                row.policy,
                f"{row.act_mean_s:.2f}",
                f"{row.act_p99_s:.1f}",
                f"{row.wait_mean_s:.2f}",
                f"{row.reserved_core_s:.2f}",
                f"{row.cpu_s:.2f}",
                f"{row.active_share:.0%}",
                f"{row.makespan_s:.1f}",
                str(row.failed),
            ]
            for row in one.rows
        ],
    )
    for row in one.rows:
        if row.why_failed:
            output.console.print(f"{row.policy}: {row.why_failed}", soft_wrap=True, markup=False)
    if one.better is not None and one.reserved_share is not None:
        output.console.print(
            f"Mean ACT {one.better:.2f}x better than {PODS}; CPU reserved per trajectory "
            f"{one.reserved_share:.0%} of {PODS}.",
            soft_wrap=True,
        )
