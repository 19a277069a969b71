"""A picture of a search for a size: step time, ACT and cost over size, and which one is enough."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from artangram.sim.figure import BOUND_COLOUR, COLOURS, drawing, legend_below
from artangram.sim.sizing import Goal, SizeResult, Sweep, smallest

_PANELS = (("step_s", "mean step (s)", "step"), ("act_s", "mean ACT (s)", "act"))


def draw_sizes(
    found: Sequence[Sequence[SizeResult]],
    path: Path,
    *,
    sweep: Sweep,
    goals: Sequence[Goal],
    bounds: dict[str, float],
    is_priced: bool,
) -> None:
    """One line per policy; a dashed line is a goal, a dotted one what no policy can beat.

    The mark with a ring is the smallest size that meets all goals.
    """
    panels = 3 if is_priced else 2
    with drawing(path, width=4.4 * panels, height=4.2) as figure:
        axes = figure.subplots(1, panels)
        for axis, (field, label, measure) in zip(axes, _PANELS, strict=False):
            _draw(axis, found, field)
            for goal in goals:
                if goal.measure == measure:
                    axis.axhline(goal.most, color=BOUND_COLOUR, linewidth=1.2, dashes=(4, 3))
            if bounds.get(measure, 0.0) > 0:
                axis.axhline(bounds[measure], color=BOUND_COLOUR, linewidth=1.2, dashes=(1, 2))
            axis.set(yscale="log", title=label)
        if is_priced:
            _draw(axes[2], found, "cost")
            axes[2].set(title="cost of the trace", ylim=(0, None))
        for axis in axes:
            axis.set_xscale("log", base=2)
            axis.set_xlabel(str(sweep))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
        legend_below(figure, axes[0])


def _draw(axis: Axes, found: Sequence[Sequence[SizeResult]], field: str) -> None:
    for index, results in enumerate(found):
        shown = [one for one in results if getattr(one, field) and one.act_s is not None]
        colour = COLOURS[index % len(COLOURS)]
        sizes, values = [one.size for one in shown], [getattr(one, field) for one in shown]
        axis.plot(sizes, values, color=colour, marker="o", markersize=4, label=results[0].policy)
        best = smallest(shown)
        if best is not None:
            ring: dict[str, Any] = {
                "markersize": 12,
                "markerfacecolor": "none",
                "markeredgewidth": 2,
            }
            axis.plot([best.size], [getattr(best, field)], color=colour, marker="o", **ring)
