"""How few GPUs do many teachers need? The answer depends on how busy static deployments are."""

from pathlib import Path
from statistics import mean
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.bench.result import Origin, seeds_of
from artangram.cli.output import Output, make_folder
from artangram.core.policies.catalog import policy as policy_named
from artangram.observe.trace import Trace
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, generate
from artangram.sim.report import SimReport, report

STATIC_GPUS = 40
DUTIES = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05)
SIZES = (4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 40)
"""Sizes from 16 on are made of nodes of 8 devices; smaller ones are one node."""


class DutyRow(Struct, frozen=True, kw_only=True):
    """The fewest GPUs on which a policy has the mean ACT of 40 static ones."""

    duty: float
    static_act_s: float
    policy: str
    gpus: int | None
    """`None` when even 40 are too few."""
    act_mean_s: float
    restores_per_action: float


def mopd(
    batch: Annotated[int, typer.Option(help="Trajectories of a step.")] = 1024,
    seeds: Annotated[str, typer.Option(help="One trace from each.")] = "0,1",
    policies: Annotated[str, typer.Option(help="Compared with static.")] = "elastic",
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it here (.svg or .png).")] = None,
) -> None:
    """GPUs that ten teacher services need to keep the mean ACT of static deployments, by duty."""
    output, origin = Output(json), Origin()
    rows = []
    with output.progress() as progress:
        task = progress.add_task("mopd")
        for duty in DUTIES:
            traces = [
                generate("mopd", seed=seed, batch=batch, duty=duty) for seed in seeds_of(seeds)
            ]
            static = mean(_run(t, "static", STATIC_GPUS).act.mean_s for t in traces)
            for name in policies.split(","):
                progress.update(task, description=f"duty {duty:.1%}, {name}")
                rows.append(_fewest(traces, name, duty, static))
    output.table(
        f"Ten teachers, static on {STATIC_GPUS} GPUs: GPUs needed for its mean ACT",
        ["duty", "static ACT s", "policy", "GPUs", "share", "ACT s", "restores per action"],
        [
            [
                f"{r.duty:.1%}",
                f"{r.static_act_s:.2f}",
                r.policy,
                str(r.gpus or "-"),
                f"{r.gpus / STATIC_GPUS:.0%}" if r.gpus else "-",
                f"{r.act_mean_s:.2f}",
                f"{r.restores_per_action:.3f}",
            ]
            for r in rows
        ],
    )
    output.json(origin.result("How few GPUs do many teachers need?", rows))
    if plot is not None:
        make_folder(plot)
        _draw(rows, plot)


def _fewest(traces: list[Trace], name: str, duty: float, static: float) -> DutyRow:
    """More GPUs never make it slower, so halving the sizes left finds the fewest."""
    low, high = 0, len(SIZES)
    found = None
    while low < high:
        middle = (low + high) // 2
        reports = [_run(trace, name, SIZES[middle]) for trace in traces]
        row = _row(duty, static, name, SIZES[middle], reports)
        if row.act_mean_s <= static:
            found, high = row, middle
        else:
            low = middle + 1
    return found or _row(duty, static, name, None, reports)


def _row(
    duty: float, static: float, name: str, gpus: int | None, reports: list[SimReport]
) -> DutyRow:
    return DutyRow(
        duty=duty,
        static_act_s=static,
        policy=name,
        gpus=gpus,
        act_mean_s=mean(one.act.mean_s for one in reports),
        restores_per_action=mean(one.restores / one.actions for one in reports),
    )


def _run(trace: Trace, name: str, gpus: int) -> SimReport:
    cluster = cluster_for("mopd", gpus=gpus)
    simulation = Simulation(trace, cluster, policy_named(name), beliefs("exact", 0))
    simulation.run()
    return report(simulation, policy=name, trace=trace, cluster=cluster)


def _draw(rows: list[DutyRow], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for name in dict.fromkeys(row.policy for row in rows):
        points = [
            (100 * r.duty, 100 * r.gpus / STATIC_GPUS) for r in rows if r.policy == name and r.gpus
        ]
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.axhline(29, color="grey", linestyle="--", label="29 % (the paper)")
    axes.set_xscale("log")
    axes.set_xlabel("duty of the static deployments, %")
    axes.set_ylabel(f"GPUs needed, % of {STATIC_GPUS}")
    axes.set_ylim(0, 105)
    axes.legend(frameon=False)
    figure.savefig(path)
