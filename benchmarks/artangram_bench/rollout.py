"""How much faster is a rollout that moves trajectory by trajectory, on hardware that fits?"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.errors import BadInput
from artangram_bench.result import Origin

if TYPE_CHECKING:
    from artangram_bench.simulated.experiments import WeightRow
    from artangram_bench.simulated.rows import Row
    from artangram_bench.simulated.sensitivity import FluidGain
    from artangram_bench.simulated.settings import Settings

GAINS = ("trajectories", "redundancy", "affinity", "crowded", "sweep", "split", "asynchrony")
CHECKS = ("calibration", "ablation", "divided")
QUESTION = "What does each idea of the rollout gain?"
NAMES = (*GAINS, *CHECKS, "weights", "sensitivity")


class RolloutFigures(Struct, frozen=True, kw_only=True):
    """Of one run of `artangram bench rollout`."""

    settings: object
    gains: "Sequence[Row]"
    checks: "Sequence[Row]"
    """Whether tasks are shaped as the paper's, and what each feature gains alone."""
    weights: "Sequence[WeightRow]"
    sensitivity: "Sequence[FluidGain]" = ()
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
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
    into: Annotated[
        Path | None,
        typer.Option(help="Write each experiment into a file of its own here, when it is done."),
    ] = None,
) -> None:
    """ROLLART's experiments on simulated clusters: the live rollout code on virtual time."""
    # Only here: other verbs do not need the whole pipeline.
    from artangram_bench.simulated.settings import Settings

    names, output, origin = _chosen(only), Printer(json), Origin()
    settings = Settings(
        scale=scale,
        batch=batch,
        seeds=tuple(range(seeds)),
        models=tuple(models.split(",")),
    )
    every: list[RolloutFigures] = []
    for name in names:
        with _told(output, name):
            figures = _figures(name, settings)
        _print(output, figures)
        every.append(figures)
        if into is not None:
            Printer(str(into / f"rollout_{name}.json")).json(origin.result(QUESTION, figures))
    output.json(origin.result(QUESTION, _joined(settings, every)))


def _figures(name: str, settings: "Settings") -> RolloutFigures:
    """Of one experiment."""
    # Only here: other verbs do not need the whole pipeline.
    from artangram_bench.simulated import experiments
    from artangram_bench.simulated.sensitivity import sensitivity

    gains = list(_rows(name, settings)) if name in GAINS else []
    checks = list(_rows(name, settings)) if name in CHECKS else []
    return RolloutFigures(
        settings=settings,
        gains=gains,
        checks=checks,
        weights=list(experiments.weights(settings)) if name == "weights" else [],
        sensitivity=list(sensitivity(settings.models)) if name == "sensitivity" else [],
    )


def _joined(settings: "Settings", every: list[RolloutFigures]) -> RolloutFigures:
    return RolloutFigures(
        settings=settings,
        gains=[row for one in every for row in one.gains],
        checks=[row for one in every for row in one.checks],
        weights=[row for one in every for row in one.weights],
        sensitivity=[row for one in every for row in one.sensitivity],
    )


def _print(output: Printer, figures: RolloutFigures) -> None:
    _print_rows(output, [*figures.gains, *figures.checks])
    _print_weights(output, figures.weights)
    _print_fluids(output, figures.sensitivity)


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


def _rows(name: str, settings: "Settings") -> "Iterator[Row]":
    from artangram_bench.simulated import affinities, experiments

    by_name = {
        "trajectories": experiments.trajectories,
        "redundancy": experiments.redundancy,
        "calibration": experiments.calibration,
        "affinity": affinities.affinity,
        "crowded": affinities.crowded,
        "divided": affinities.divided,
        "sweep": affinities.sweep,
        "split": experiments.split,
        "asynchrony": experiments.asynchrony,
        "ablation": experiments.ablation,
    }
    return by_name[name](settings)


def _print_rows(output: Printer, rows: "Sequence[Row]") -> None:
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


def _print_weights(output: Printer, rows: "Sequence[WeightRow]") -> None:
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


def _print_fluids(output: Printer, rows: "Sequence[FluidGain]") -> None:
    if rows:
        output.table(
            "What affinity could gain at the same cost, by a fluid",
            ["varied", "model", "over H20 alone", "over H800 alone"],
            [
                [one.varied, one.model, f"{one.over_h20:.2f}x", f"{one.over_h800:.2f}x"]
                for one in rows
            ],
        )
