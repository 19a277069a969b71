"""Does the simulator, fed with the trace of a live run, predict the action completion time of it?

- Coding agents of `bench live` run in real sandboxes under a policy, with a journal. The trace and
  the cluster are read from the journal as `artangram trace record` does, and simulated under the
  same policy, which is told nothing about durations, as live.
- The recorded cluster says nothing about what a start costs on this machine, so making a sandbox
  and dispatching are taken from the record, as medians of the overheads of first and of later
  actions. `as_recorded` is the prediction without that.
- Wait, overhead and run are compared one by one, so that errors that cancel out are seen.
"""

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
from msgspec import Struct, structs

from artangram.cli.output import Printer
from artangram.core.ids import Resource
from artangram.core.scheduling.action import ActionRecord
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.decisions import Report
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.observe.journaltrace import trace_of
from artangram.observe.recording import owner_of, recorded
from artangram.orchestrator.local import local
from artangram.orchestrator.recovery import Setup
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.report import ActTimes
from artangram_bench.live_agents import one_life
from artangram_bench.live_plans import DUTIES, Plan, SuiteFiles, plans
from artangram_bench.result import Origin

CPU = Resource("cpu")
OFF_AT_MOST = 0.15


class ActParts(Struct, frozen=True, kw_only=True):
    """Means over all actions, in seconds."""

    act_s: float
    wait_s: float
    overhead_s: float
    run_s: float


class Prediction(Struct, frozen=True, kw_only=True):
    """One live run and its simulation."""

    policy: str
    round: int
    actions: int
    live: ActParts
    simulated: ActParts
    as_recorded: ActParts
    """Simulated with a cluster whose starts cost nothing."""
    create_s: float
    dispatch_s: float

    @property
    def off(self) -> float:
        return self.simulated.act_s / self.live.act_s - 1


class PredictFigures(Struct, frozen=True, kw_only=True):
    cores: int
    trajectories: int
    runs: list[Prediction]
    off: dict[str, float]
    """By policy: the simulated mean ACT of all rounds over the live one, minus 1."""
    off_at_most: float
    load_after: float


def predict(
    policies: Annotated[str, typer.Option(help="Policies, with commas.")] = "elastic,fcfs,pods:1",
    trajectories: Annotated[int, typer.Option(help="Trajectories that start at once.", min=1)] = 8,
    turns: Annotated[float, typer.Option(help="Median number of turns.", min=1)] = 6.0,
    rounds: Annotated[int, typer.Option(help="Live runs of each policy.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Same seed, same trajectories.")] = 0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Record live runs with real sandboxes, simulate them, and compare the mean ACT."""
    output, origin, names = Printer(json), Origin(), policies.split(",")
    for name in names:
        policy_named(name)
    cores, rng, runs = len(os.sched_getaffinity(0)), random.Random(seed), []
    with output.progress() as progress, TemporaryDirectory(prefix="artangram-predict-") as folder:
        task, shop = progress.add_task("predict"), SuiteFiles(Path(folder))
        for number in range(rounds):
            batch = plans(DUTIES["paper"], count=trajectories, turns=turns, rng=rng)
            for name in rng.sample(names, len(names)):
                progress.update(task, description=f"{name}, round {number + 1}")
                state_dir = Path(folder) / f"state-{number}-{name.replace(':', '-')}"
                asyncio.run(_live(name, batch, shop, cores=cores, state_dir=state_dir))
                runs.append(predicted(state_dir, name, round=number + 1))
    figures = PredictFigures(
        cores=cores,
        trajectories=trajectories,
        runs=runs,
        off={name: _off([one for one in runs if one.policy == name]) for name in names},
        off_at_most=OFF_AT_MOST,
        load_after=round(os.getloadavg()[0], 2),
    )
    _print(output, figures)
    output.json(origin.result("Does the simulator predict the ACT of a live run?", figures))


async def _live(
    policy: str, batch: list[Plan], shop: SuiteFiles, *, cores: int, state_dir: Path
) -> None:
    async with local(policy=policy, cores=cores, state_dir=state_dir) as client:
        await asyncio.gather(*(one_life(client, plan, shop, cores) for plan in batch))


def predicted(state_dir: Path, policy: str, *, round: int) -> Prediction:
    """What the simulator says of the run whose journal is in `state_dir`."""
    records = list(_records(state_dir))
    cluster = msgspec.json.decode(owner_of(state_dir), type=Setup).cluster
    create_s, dispatch_s = _start_costs(records)
    spec = cluster.pools[CPU]
    assert isinstance(spec, CpuSpec)
    costly = structs.replace(spec, create_s=create_s, overhead_s=dispatch_s)
    return Prediction(
        policy=policy,
        round=round,
        actions=len(records),
        live=ActParts(
            act_s=fmean(one.act_s for one in records),
            wait_s=fmean(one.wait_s for one in records),
            overhead_s=fmean(one.overhead_s for one in records),
            run_s=fmean(one.run_s for one in records),
        ),
        simulated=_simulated(
            state_dir, policy, structs.replace(cluster, pools={**cluster.pools, CPU: costly})
        ),
        as_recorded=_simulated(state_dir, policy, cluster),
        create_s=create_s,
        dispatch_s=dispatch_s,
    )


def _records(state_dir: Path) -> Iterator[ActionRecord]:
    for entry in recorded(state_dir):
        for decision in entry.decisions:
            if isinstance(decision, Report):
                yield decision.record


def _start_costs(records: list[ActionRecord]) -> tuple[float, float]:
    """Medians: of making a sandbox, which the first action of a trajectory waits for, and of
    dispatching."""
    seen: set[object] = set()
    first: list[float] = []
    later: list[float] = []
    for one in sorted(records, key=lambda record: record.submitted_at):
        (later if one.trajectory in seen else first).append(one.overhead_s)
        seen.add(one.trajectory)
    dispatch_s = median(later)
    return max(0.0, median(first) - dispatch_s), dispatch_s


def _simulated(state_dir: Path, policy: str, cluster: ClusterSpec) -> ActParts:
    trace = trace_of(recorded(state_dir), name="recorded")
    simulation = Simulation(trace, cluster, policy_named(policy), beliefs("learned", 0))
    simulation.run()
    times = ActTimes.of(simulation.tally.by_kind.values())
    return ActParts(
        act_s=times.mean_s,
        wait_s=times.wait_mean_s,
        overhead_s=times.overhead_mean_s,
        run_s=times.run_mean_s,
    )


def _off(runs: list[Prediction]) -> float:
    live = sum(one.live.act_s * one.actions for one in runs)
    return sum(one.simulated.act_s * one.actions for one in runs) / live - 1


def _print(output: Printer, figures: PredictFigures) -> None:
    rows = []
    for one in figures.runs:
        for what, parts in (("live", one.live), ("simulated", one.simulated)):
            means = (parts.act_s, parts.wait_s, parts.overhead_s, parts.run_s)
            off = f"{one.off:+.1%}" if what == "simulated" else ""
            rows.append([f"{one.policy} {one.round} {what}", *(f"{m:.3f}" for m in means), off])
    output.table(
        f"Mean ACT of {figures.trajectories} agents on {figures.cores} cores, seconds",
        ["", "ACT", "wait", "overhead", "run", "off"],
        rows,
    )
    told = ", ".join(f"{name} {off:+.1%}" for name, off in figures.off.items())
    output.console.print(f"Off by {told} (goal: {figures.off_at_most:.0%} at most).")
