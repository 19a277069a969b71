"""Draw the README's picture of learning from `results/learn.json`: success by step, run by run."""

import json
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from artangram.sim.figure import COLOURS as PALETTE
from artangram.sim.figure import drawing

HERE = Path(__file__).parent
COLOURS = {
    "asynchronous": PALETTE[0],
    "synchronous": PALETTE[1],
    "rewards dealt out at random": "#999999",
}
SMOOTHING = 0.8
"""Of the moving average: a step has too few problems to be read alone."""


def main() -> None:
    result = json.loads((HERE / "results" / "learn.json").read_text(encoding="utf-8"))
    path = HERE.parent / "docs" / "images" / "learn.svg"
    with drawing(path, width=8.0, height=3.6) as figure:
        draw(figure.add_subplot(), result["figures"]["runs"])


def draw(axes: Axes, runs: list[Any]) -> None:
    seeds = Counter(_label(run) for run in runs)
    named: set[str] = set()
    for run in runs:
        label = _label(run)
        axes.plot(
            range(1, len(run["curve"]) + 1),
            list(accumulate(run["curve"], _average)),
            color=COLOURS[label],
            linewidth=1.4,
            label=None
            if label in named
            else f"{label} ({seeds[label]} {'seeds' if seeds[label] > 1 else 'seed'})",
        )
        named.add(label)
    axes.set(
        ylim=(0, 1),
        xlabel="training step",
        ylabel="success in training\n(four tasks, moving average)",
    )
    axes.legend(loc="center right")


def _label(run: Any) -> str:
    return "rewards dealt out at random" if run["is_shuffled"] else str(run["mode"])


def _average(before: float, now: float) -> float:
    return SMOOTHING * before + (1 - SMOOTHING) * now


if __name__ == "__main__":
    main()
