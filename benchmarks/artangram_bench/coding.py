"""How many cores do coding agents need? The closed loop at sizes from scarce to ample."""

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from statistics import mean
from typing import Annotated

import typer
from msgspec import Struct, structs

from artangram.cli.output import Printer
from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.observe.trace import Trace
from artangram.sim.beliefs import beliefs
from artangram.sim.bounds import critical_path_s, lower_bound
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, generate
from artangram.sim.report import report
from artangram_bench.result import PROCESSES, Origin, seeds_of

RUNS = [
    ("elastic", "learned"),
    ("elastic", "learned:kinds"),
    ("elastic", "exact"),
    ("overcommit", "learned"),
    ("tangram", "learned"),
    ("tangram", "exact"),
    ("tangram:elastic", "learned"),
    ("fcfs", "learned"),
    ("pods:1", "learned"),
    ("pods:2", "learned"),
    ("pods:0.5/4", "learned"),
]
"""Policies, and what each is told: what a live scheduler knows, and for some more or less of it."""
CORES = (1024, 512, 256, 192, 128, 96, 80)
PENALTY = 0.1
CPU = Resource("cpu")


class CodingRow(Struct, frozen=True, kw_only=True):
    cores: int
    policy: str
    estimates: str
    steps: int
    """Of each job."""
    act_mean_s: float
    act_bound_s: float
    """No policy has a smaller mean ACT, so none is better than this one by more than the ratio."""
    p99_s: float
    step_s: float
    critical_path_s: float
    """The ceiling: no policy makes the mean step shorter."""
    utilisation: float


def coding(
    seeds: Annotated[str, typer.Option(help="Seeds, with commas; each makes one trace.")] = "0,1",
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each job.")] = 3,
    processes: Annotated[int, typer.Option(min=1, help="Simulations at once.")] = PROCESSES,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Mean ACT and step time of coding agents on 80 to 1024 cores, with a 10 % squeeze penalty."""
    output, origin = Printer(json), Origin()
    numbers, settings = seeds_of(seeds), [(cores, *run) for cores in CORES for run in RUNS]
    calls = [(seed, steps, *setting) for setting in settings for seed in numbers]
    rows = []
    with output.progress() as progress, ProcessPoolExecutor(processes) as pool:
        task = progress.add_task("coding")
        found = pool.map(_run, *zip(*calls, strict=True))
        for cores, name, told in settings:
            progress.update(task, description=f"{cores} cores, {name}, {told}")
            rows.append(_mean_row([next(found) for _ in numbers]))
    output.table(
        f"Coding agents: 3 jobs x 256 trajectories x {steps} steps, mean over seeds, in seconds",
        ["cores", "policy", "told", "ACT mean", "best gain", "p99", "step", "shortest", "use"],
        [
            [
                str(r.cores),
                r.policy,
                r.estimates,
                f"{r.act_mean_s:.2f}",
                f"{r.act_mean_s / r.act_bound_s:.2f}x",
                f"{r.p99_s:.1f}",
                f"{r.step_s:.0f}",
                f"{r.critical_path_s:.0f}",
                f"{r.utilisation:.0%}",
            ]
            for r in rows
        ],
    )
    output.json(origin.result("How many cores do coding agents need?", rows))


@cache
def _trace(seed: int, steps: int) -> Trace:
    return generate("coding", seed=seed, steps=steps)


def _run(seed: int, steps: int, cores: int, name: str, told: str) -> CodingRow:
    trace = _trace(seed, steps)
    cluster = cluster_for("coding", cores=cores, squeeze_penalty=PENALTY)
    simulation = Simulation(trace, cluster, policy_named(name), beliefs(told, 0))
    simulation.run()
    one = report(simulation, policy=name, trace=trace, cluster=cluster)
    return CodingRow(
        cores=cores,
        policy=name,
        estimates=told,
        steps=steps,
        act_mean_s=one.act.mean_s,
        act_bound_s=lower_bound(trace, cluster).act_mean_s + _overhead_s(trace, cluster),
        p99_s=one.act.p99_s,
        step_s=mean(step.duration_s for step in one.steps),
        critical_path_s=mean(critical_path_s(trace, cluster).values()),
        utilisation=one.utilisation[CPU],
    )


def _overhead_s(trace: Trace, cluster: ClusterSpec) -> float:
    """The mean cost under every policy: dispatch for each action, a sandbox for the first."""
    spec = cluster.pools[CPU]
    assert isinstance(spec, CpuSpec)
    num_actions = sum(len(turn.actions) for one in trace.trajectories for turn in one.turns)
    return spec.overhead_s + spec.create_s * len(trace.trajectories) / num_actions


def _mean_row(runs: list[CodingRow]) -> CodingRow:
    numbers = ("act_mean_s", "act_bound_s", "p99_s", "step_s", "critical_path_s", "utilisation")
    means = {name: mean(getattr(run, name) for run in runs) for name in numbers}
    return structs.replace(runs[0], **means)
