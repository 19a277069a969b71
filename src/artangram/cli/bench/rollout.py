"""How much faster is a rollout that moves trajectory by trajectory, on hardware that fits?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from artangram.cli.bench.result import Origin
from artangram.cli.output import Output
from artangram.core.errors import BadInput

if TYPE_CHECKING:
    from artangram.pipeline.simulated.experiments import Row, WeightRow

GAINS = ("trajectories", "redundancy", "affinity", "asynchrony")
NAMES = (*GAINS, "weights")


class RolloutFigures(Struct, frozen=True, kw_only=True):
    """Of one run of `artangram bench rollout`."""

    scale: int
    batch: int
    seed: int
    gains: Sequence[object]
    weights: Sequence[object]


def rollout(
    only: Annotated[str, typer.Option(help="Some of the experiments, by name.")] = "all",
    batch: Annotated[int, typer.Option(help="Trajectories of a batch with slow envs.")] = 512,
    scale: Annotated[int, typer.Option(help="Divides the paper's clusters and batches.")] = 8,
    seed: Annotated[int, typer.Option(help="Of every environment.")] = 0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """ROLLART's experiments on simulated clusters: the very rollout code, on virtual time."""
    output, origin = Output(json), Origin()
    gains: list[Row] = []
    weights: list[WeightRow] = []
    with output.progress() as progress:
        task = progress.add_task("rollout")
        for name in _chosen(only):
            progress.update(task, description=name)
            if name == "weights":
                weights += _weights(scale, seed)
            else:
                gains += _gains(name, batch=batch, scale=scale, seed=seed)
    _print_gains(output, gains)
    _print_weights(output, weights)
    figures = RolloutFigures(scale=scale, batch=batch, seed=seed, gains=gains, weights=weights)
    output.json(origin.result("What does each idea of the rollout gain?", figures))


def _chosen(only: str) -> list[str]:
    names = list(NAMES) if only == "all" else only.split(",")
    for name in names:
        if name not in NAMES:
            raise BadInput("only", f"{name!r} is no experiment", f"say some of {', '.join(NAMES)}")
    return names


def _gains(name: str, *, batch: int, scale: int, seed: int) -> "list[Row]":
    # Only here: other verbs do not need the whole pipeline.
    from artangram.pipeline.simulated import experiments

    match name:
        case "trajectories":
            rows = experiments.trajectories(batch, seed=seed)
        case "redundancy":
            rows = experiments.redundancy(seed=seed)
        case "affinity":
            rows = experiments.affinity(scale, seed=seed)
        case _:
            rows = experiments.asynchrony(scale, seed=seed)
    return list(rows)


def _weights(scale: int, seed: int) -> "list[WeightRow]":
    from artangram.pipeline.simulated import experiments

    return list(experiments.weights(scale, seed=seed))


def _print_gains(output: Output, rows: "list[Row]") -> None:
    for name in dict.fromkeys(row.experiment for row in rows):
        output.table(
            f"{name}: gain over the baseline, and the paper's",
            ["case", "baseline s", "ours s", "gain", "paper"],
            [_cells(row) for row in rows if row.experiment == name],
        )


def _cells(row: "Row") -> list[str]:
    paper = "-".join(f"{gain:.2f}" for gain in sorted(set(row.paper)))
    seconds = [f"{row.baseline_s:.0f}", f"{row.ours_s:.0f}"]
    return [row.case, *seconds, f"{row.gain:.2f}x", f"{paper}x"]


def _print_weights(output: Output, rows: "list[WeightRow]") -> None:
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
