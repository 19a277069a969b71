"""Draw the README's picture of learning from `results/learn.json`: success by step, run by run."""

import json
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
COLOURS = {
    "asynchronous": "#0072b2",
    "synchronous": "#d55e00",
    "rewards dealt out at random": "#999999",
}
SMOOTHING = 0.8
"""Of the moving average: a step has too few problems to be read alone."""


def main() -> None:
    result = json.loads((HERE / "results" / "learn.json").read_text(encoding="utf-8"))
    # Without a salt the ids inside an SVG are random.
    with mpl.rc_context({"svg.hashsalt": "artangram"}):
        figure = Figure(figsize=(8.0, 3.6), layout="constrained")
        draw(figure.add_subplot(), result["figures"]["runs"])
        path = HERE.parent / "docs" / "images" / "learn.svg"
        figure.savefig(path, metadata={"Date": None})


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
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center right")


def _label(run: Any) -> str:
    return "rewards dealt out at random" if run["is_shuffled"] else str(run["mode"])


def _average(before: float, now: float) -> float:
    return SMOOTHING * before + (1 - SMOOTHING) * now


if __name__ == "__main__":
    main()
