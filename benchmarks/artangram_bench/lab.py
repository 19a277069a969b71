"""How close to the bound? Fifteen open-loop traces, loads 0.4 to 0.9, with and without bursts."""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import exp, log
from statistics import mean
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.sim.beliefs import beliefs
from artangram.sim.bounds import lower_bound
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, generate, lab_traces
from artangram.sim.report import report
from artangram_bench.result import PROCESSES, Origin, seeds_of

POLICIES = ["elastic", "tangram", "tangram:elastic", "fcfs", "fixed:4", "overcommit"]
SETTINGS = [
    *(("learned", 0.1), ("exact", 0.1), ("noisy:1.0", 0.1)),
    *(("learned", 0.0), ("exact", 0.0), ("noisy:1.0", 0.0)),
]


class LabRow(Struct, frozen=True, kw_only=True):
    """One policy over all traces of one setting."""

    policy: str
    estimates: str
    squeeze_penalty: float
    ratio: float
    """Mean ACT over the Lagrangian bound of schedules with fixed sizes, geometric mean."""
    worst_ratio: float
    act_mean_s: float
    p99_s: float
    ratios: list[float]


def lab(
    seeds: Annotated[
        str, typer.Option(help="Seeds, with commas; each makes five traces.")
    ] = "1,2,3",
    processes: Annotated[int, typer.Option(min=1, help="Simulations at once.")] = PROCESSES,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """How close to the bound: 15 open-loop traces, three kinds of estimates, squeeze penalties."""
    output, origin = Printer(json), Origin()
    numbers = seeds_of(seeds)
    settings = [(name, *setting) for setting in SETTINGS for name in POLICIES]
    rows = []
    with output.progress() as progress, ProcessPoolExecutor(processes) as pool:
        task = progress.add_task("bounds")
        bounds = list(pool.map(partial(_bound, numbers), range(len(lab_traces(numbers)))))
        found = pool.map(partial(_row, seeds=numbers, bounds=bounds), *zip(*settings, strict=True))
        for name, estimates, penalty in settings:
            progress.update(task, description=f"{name}, {estimates}, penalty {penalty}")
            rows.append(next(found))
    output.table(
        "Mean ACT over the Lagrangian bound (geometric mean of the traces)",
        ["policy", "estimates", "penalty", "ratio", "worst", "mean ACT s", "p99 s"],
        [
            [
                r.policy,
                r.estimates,
                f"{r.squeeze_penalty:.0%}",
                f"{r.ratio:.3f}",
                f"{r.worst_ratio:.2f}",
                f"{r.act_mean_s:.2f}",
                f"{r.p99_s:.1f}",
            ]
            for r in rows
        ],
    )
    output.json(origin.result("How close to the lower bound is each policy?", rows))


def _bound(seeds: tuple[int, ...], index: int) -> float:
    one = lab_traces(seeds)[index]
    trace = generate("lab", seed=one.seed, rho=one.rho, burst=one.burst)
    bound = lower_bound(trace, cluster_for("lab"))
    assert bound.moldable_act_mean_s is not None
    return bound.moldable_act_mean_s


def _row(
    name: str, estimates: str, penalty: float, seeds: tuple[int, ...], bounds: list[float]
) -> LabRow:
    ratios, means, tails = [], [], []
    cluster = cluster_for("lab", squeeze_penalty=penalty)
    for one, bound in zip(lab_traces(seeds), bounds, strict=True):
        trace = generate("lab", seed=one.seed, rho=one.rho, burst=one.burst)
        run = Simulation(trace, cluster, policy_named(name), beliefs(estimates, one.seed))
        run.run()
        act = report(run, policy=name, trace=trace, cluster=cluster).act
        ratios.append(act.mean_s / bound)
        means.append(act.mean_s)
        tails.append(act.p99_s)
    return LabRow(
        policy=name,
        estimates=estimates,
        squeeze_penalty=penalty,
        ratio=exp(mean(log(r) for r in ratios)),
        worst_ratio=max(ratios),
        act_mean_s=mean(means),
        p99_s=mean(tails),
        ratios=ratios,
    )
