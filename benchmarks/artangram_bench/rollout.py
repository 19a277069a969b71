"""How much faster is a rollout that moves trajectory by trajectory, on hardware that fits?"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram_bench.result import Origin

if TYPE_CHECKING:
    from artangram_bench.simulated.experiments import Settings, WeightRow
    from artangram_bench.simulated.rows import Row
    from artangram_bench.simulated.sensitivity import FluidGain
    from artangram_bench.simulated.workload import Reading

GAINS = ("trajectories", "redundancy", "affinity", "split", "asynchrony")
CHECKS = ("calibration", "ablation")
NAMES = (*GAINS, *CHECKS, "weights", "sensitivity")


class RolloutFigures(Struct, frozen=True, kw_only=True):
    """Of one run of `artangram bench rollout`."""

    settings: object
    gains: Sequence[object]
    checks: Sequence[object]
    """Whether tasks are shaped as the paper's, and what each feature gains alone."""
    weights: Sequence[object]
    sensitivity: Sequence[object] = ()
    """Of the affinity gain, by a fluid."""


def rollout(
    only: Annotated[str, typer.Option(help="Experiments to run, by name, with commas.")] = "all",
    batch: Annotated[
        int, typer.Option(help="Trajectories per batch in the experiment with slow environments.")
    ] = 512,
    scale: Annotated[int, typer.Option(help="Divides the paper's clusters and batches.")] = 8,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds; everything runs once with each.")
    ] = 5,
    models: Annotated[
        str, typer.Option(help="Models for the affinity experiment, with commas.")
    ] = "qwen3-8b,qwen3-14b",
    readings: Annotated[
        str,
        typer.Option(help="What the paper's batch of 512 counts, for affinity: with commas."),
    ] = "trajectories,groups",
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """ROLLART's experiments on simulated clusters: the live rollout code on virtual time."""
    # Only here: other verbs do not need the whole pipeline.
    from artangram_bench.simulated import experiments
    from artangram_bench.simulated.sensitivity import sensitivity

    names, output, origin = _chosen(only), Printer(json), Origin()
    settings = experiments.Settings(
        scale=scale,
        batch=batch,
        seeds=tuple(range(seeds)),
        models=tuple(models.split(",")),
        readings=tuple(_reading(name) for name in readings.split(",")),
    )
    rows: dict[str, list[Row]] = {}
    weights: list[WeightRow] = []
    fluids: list[FluidGain] = []
    for name in names:
        with _told(output, name):
            if name == "weights":
                weights += experiments.weights(settings)
            elif name == "sensitivity":
                fluids += sensitivity(settings.models)
            else:
                rows[name] = list(_rows(name, settings))
    gains = [row for name in GAINS for row in rows.get(name, ())]
    checks = [row for name in CHECKS for row in rows.get(name, ())]
    _print_rows(output, [*gains, *checks])
    _print_weights(output, weights)
    _print_fluids(output, fluids)
    figures = RolloutFigures(
        settings=settings, gains=gains, checks=checks, weights=weights, sensitivity=fluids
    )
    output.json(origin.result("What does each idea of the rollout gain?", figures))


@contextmanager
def _told(output: Printer, name: str) -> Iterator[None]:
    """Progress for terminals; elsewhere a line at the end of each experiment."""
    began_at = monotonic()
    with output.progress() as progress:
        progress.add_task(name)
        yield
    if progress.disable:
        typer.echo(f"{name}: {monotonic() - began_at:.0f} s", err=True)


def _chosen(only: str) -> list[str]:
    names = list(NAMES) if only == "all" else only.split(",")
    for name in names:
        if name not in NAMES:
            raise BadInput("only", f"{name!r} is no experiment", f"say some of {', '.join(NAMES)}")
    return names


def _reading(name: str) -> "Reading":
    from artangram_bench.simulated.workload import Reading

    if f"512 {name}" not in set(Reading):
        raise BadInput("readings", f"{name!r} is unknown", "say trajectories, groups or both")
    return Reading(f"512 {name}")


def _rows(name: str, settings: "Settings") -> "Iterator[Row]":
    from artangram_bench.simulated import experiments

    by_name = {
        "trajectories": experiments.trajectories,
        "redundancy": experiments.redundancy,
        "calibration": experiments.calibration,
        "affinity": experiments.affinity,
        "split": experiments.split,
        "asynchrony": experiments.asynchrony,
        "ablation": experiments.ablation,
    }
    return by_name[name](settings)


def _print_rows(output: Printer, rows: "list[Row]") -> None:
    for name in dict.fromkeys(row.experiment for row in rows):
        output.table(
            f"{name}: gain over the baseline, and the paper's",
            [
                *("case", "baseline s", "ours s", "gain", "from-to", "fluid", "paper", "verdict"),
                *("binds", "cache hits", "cut off"),
            ],
            [_cells(row) for row in rows if row.experiment == name],
        )


def _cells(row: "Row") -> list[str]:
    seconds = [f"{row.baseline_s:.0f}", f"{row.ours_s:.0f}"]
    spread = "-".join(f"{gain:.2f}" for gain in row.spread)
    paper = "-".join(f"{gain:.2f}" for gain in sorted(set(row.paper or ())))
    fluid = "" if row.fluid is None else f"{row.fluid:.2f}"
    hits = ", ".join(f"{task} {rate:.0%}" for task, rate in row.hit_rates.items())
    gain = [f"{row.gain:.2f}x", spread, fluid, paper, row.verdict or ""]
    return [row.case, *seconds, *gain, row.binds, hits, _cut_off(row)]


def _cut_off(row: "Row") -> str:
    """The share that was cancelled, and its length relative to what was kept."""
    length = "" if row.cut_length is None else f" of {row.cut_length:.2f}x"
    return f"{row.cancelled:.0%}{length}" if row.cancelled else ""


def _print_weights(output: Printer, rows: "list[WeightRow]") -> None:
    if not rows:
        return
    output.table(
        "New weights, seconds of one replica",
        ["model", "push", "pull and load", "exposed", "share", "paper"],
        [
            [
                row.model,
                f"{row.push_s:.1f}",
                f"{row.accumulated_s:.1f}",
                f"{row.exposed_s:.1f}",
                f"{row.share:.0%}",
                f"{row.paper_share:.0%}",
            ]
            for row in rows
        ],
    )


def _print_fluids(output: Printer, rows: "list[FluidGain]") -> None:
    if rows:
        output.table(
            "What affinity could gain at the same cost, by a fluid",
            ["varied", "model", "over H20 alone", "over H800 alone"],
            [
                [one.varied, one.model, f"{one.over_h20:.2f}x", f"{one.over_h800:.2f}x"]
                for one in rows
            ],
        )
