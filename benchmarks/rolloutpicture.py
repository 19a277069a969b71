"""Draw the picture of the simulated rollout: every gain beside the paper's range.

Reads `results/rollout_*.json`, so whatever was run last is in it.
"""

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from artangram.sim.figure import COLOURS, drawing

HERE = Path(__file__).parent
PAPER = "#cccccc"
ROW = 0.22
"""Inches of one gain."""


def main() -> None:
    rows = [row for row in gains() if row["paper"]]
    path = HERE.parent / "docs" / "images" / "rollout.svg"
    with drawing(path, width=9.0, height=1.0 + ROW * len(rows)) as figure:
        draw(figure.add_subplot(), rows)


def gains() -> list[Any]:
    """Of all experiments that there is a result of."""
    paths = sorted((HERE / "results").glob("rollout_*.json"))
    figures = [json.loads(path.read_text(encoding="utf-8"))["figures"] for path in paths]
    return [row for one in figures for row in (*one["gains"], *one["checks"])]


def draw(axes: Axes, rows: list[Any]) -> None:
    for place, row in enumerate(rows):
        low, high = row["paper"]
        wide = max(high - low, 0.02)
        axes.barh(place, wide, left=low, height=0.7, color=PAPER, label=None if place else "paper")
        axes.plot(row["spread"], [place] * 2, color=COLOURS[0], linewidth=1.4)
        axes.plot([row["gain"]], [place], "o", color=COLOURS[0], label=None if place else "here")
    axes.axvline(1.0, color="#999999", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{row['case']}: {row['verdict']}" for row in rows])
    axes.tick_params(axis="y", labelsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("times faster than the baseline (least to most of the seeds)")
    axes.legend(loc="lower right")


if __name__ == "__main__":
    main()
