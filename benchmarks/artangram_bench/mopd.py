"""How few GPUs do many teachers need? The answer depends on how busy static deployments are.

Beside what a policy reaches stands the fewest GPUs for which the lower bound still allows the mean
ACT of static: with fewer, no policy could.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer, claim_picture, writing
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.observe.trace import Trace
from artangram.sim.beliefs import beliefs
from artangram.sim.bounds import lower_bound
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, generate
from artangram.sim.report import SimReport, report
from artangram_bench.result import Origin, seeds_of

STATIC_GPUS = 40
DUTIES = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05)
SIZES = (4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 40)
"""Sizes from 16 on are made of nodes of 8 devices; smaller ones are one node."""
BOUND_SIZES = tuple(range(4, 16))
NUM_BOUNDED = 2
"""Traces of a duty that are bounded: the search for a good bound takes as long as a simulation."""


class DutyRow(Struct, frozen=True, kw_only=True):
    """The fewest GPUs on which a policy has the mean ACT of 40 static ones."""

    duty: float
    static_act_s: float
    policy: str
    gpus: int | None
    """`None` when even 40 are too few."""
    act_mean_s: float
    restores_per_action: float
    gpus_by_seed: tuple[int | None, ...]
    """The same for each trace alone."""
    bound_gpus: int | None
    """The fewest for which the bound of the first traces still allows the static ACT of these."""


def mopd(
    batch: Annotated[int, typer.Option(help="Trajectories per step.")] = 1024,
    seeds: Annotated[
        str, typer.Option(help="Seeds, with commas; each makes one trace.")
    ] = "0,1,2,3,4",
    policies: Annotated[
        str, typer.Option(help="Policies to compare with static, with commas.")
    ] = "elastic",
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it here (.svg or .png).")] = None,
) -> None:
    """GPUs that ten teacher services need to keep the mean ACT of static deployments, by duty."""
    output, origin = Printer(json), Origin()
    names, numbers, rows = policies.split(","), seeds_of(seeds), []
    for name in names:
        policy_named(name)
    if plot is not None:
        claim_picture(plot)
    with output.progress() as progress:
        task = progress.add_task("mopd")
        for duty in DUTIES:
            progress.update(task, description=f"duty {duty:.1%}, static and bound")
            traces = [generate("mopd", seed=seed, batch=batch, duty=duty) for seed in numbers]
            goal = Goal(duty, traces)
            for name in names:
                progress.update(task, description=f"duty {duty:.1%}, {name}")
                rows.append(_fewest(goal, name))
    output.table(
        f"Ten teachers, static on {STATIC_GPUS} GPUs: GPUs needed for its mean ACT",
        [
            "duty",
            "static ACT s",
            "policy",
            "GPUs",
            "share",
            "by seed",
            "bound",
            "ACT s",
            "restores",
        ],
        [_cells(row) for row in rows],
    )
    output.json(origin.result("How few GPUs do many teachers need?", rows))
    if plot is not None:
        with writing(plot):
            _draw(rows, plot)


def _cells(row: DutyRow) -> list[str]:
    return [
        f"{row.duty:.1%}",
        f"{row.static_act_s:.2f}",
        row.policy,
        str(row.gpus or "-"),
        f"{row.gpus / STATIC_GPUS:.1%}" if row.gpus else "-",
        " ".join(str(gpus or "-") for gpus in row.gpus_by_seed),
        str(row.bound_gpus or "-"),
        f"{row.act_mean_s:.2f}",
        f"{row.restores_per_action:.3f}",
    ]


class Goal:
    """What static deployments reach at one duty, and how few GPUs could do that at all."""

    def __init__(self, duty: float, traces: list[Trace]) -> None:
        self.duty = duty
        self.traces = traces
        self.act_s = [_run(trace, "static", STATIC_GPUS).act.mean_s for trace in traces]
        self.bound_gpus = _first(BOUND_SIZES, self._is_allowed)

    def _is_allowed(self, gpus: int) -> bool:
        """Whether the bound allows any policy to be as fast as static with that few."""
        cluster = cluster_for("mopd", gpus=gpus)
        bounded = self.traces[:NUM_BOUNDED]
        least = mean(lower_bound(trace, cluster).act_mean_s for trace in bounded)
        return least <= mean(self.act_s[:NUM_BOUNDED])


def _fewest(goal: Goal, name: str) -> DutyRow:
    @cache
    def reached(gpus: int, nth: int) -> SimReport:
        return _run(goal.traces[nth], name, gpus)

    def all_of(gpus: int) -> list[SimReport]:
        return [reached(gpus, nth) for nth in range(len(goal.traces))]

    def alone(nth: int) -> int | None:
        return _first(SIZES, lambda gpus: _mean_act([reached(gpus, nth)]) <= goal.act_s[nth])

    found = _first(SIZES, lambda gpus: _mean_act(all_of(gpus)) <= mean(goal.act_s))
    reports = all_of(found or SIZES[-1])
    return DutyRow(
        duty=goal.duty,
        static_act_s=mean(goal.act_s),
        policy=name,
        gpus=found,
        act_mean_s=_mean_act(reports),
        restores_per_action=mean(one.restores / one.actions for one in reports),
        gpus_by_seed=tuple(alone(nth) for nth in range(len(goal.traces))),
        bound_gpus=goal.bound_gpus,
    )


def _first(sizes: tuple[int, ...], is_enough: Callable[[int], bool]) -> int | None:
    """The first size that is enough, by halving: more GPUs are believed never to be slower."""
    place = bisect_left(sizes, True, key=is_enough)
    return sizes[place] if place < len(sizes) else None


def _mean_act(reports: list[SimReport]) -> float:
    """A cluster that refuses the calls of a service is too small."""
    return mean(inf if one.refused else one.act.mean_s for one in reports)


def _run(trace: Trace, name: str, gpus: int) -> SimReport:
    cluster = cluster_for("mopd", gpus=gpus)
    simulation = Simulation(trace, cluster, policy_named(name), beliefs("exact", 0))
    simulation.run()
    return report(simulation, policy=name, trace=trace, cluster=cluster)


def _draw(rows: list[DutyRow], path: Path) -> None:
    from artangram.sim.figure import BOUND_COLOUR, COLOURS, drawing

    with drawing(path, width=8.0, height=3.8) as figure:
        axes = figure.add_subplot()
        for index, name in enumerate(dict.fromkeys(row.policy for row in rows)):
            points = [
                (100 * r.duty, 100 * r.gpus / STATIC_GPUS)
                for r in rows
                if r.policy == name and r.gpus
            ]
            axes.plot(*zip(*points, strict=True), marker="o", label=name, color=COLOURS[index])
        bounds = {100 * r.duty: 100 * r.bound_gpus / STATIC_GPUS for r in rows if r.bound_gpus}
        axes.plot(
            list(bounds), list(bounds.values()), marker=".", color=BOUND_COLOUR, label="lower bound"
        )
        axes.axhline(29, color=BOUND_COLOUR, linestyle="--", label="29 % (the paper)")
        axes.set_xscale("log")
        axes.set_xticks([100 * duty for duty in DUTIES], [f"{100 * duty:g}" for duty in DUTIES])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("share of the time in which each static deployment is busy, %")
        axes.set_ylabel(f"GPUs needed, % of {STATIC_GPUS}")
        axes.set_ylim(0, 105)
        axes.legend()
