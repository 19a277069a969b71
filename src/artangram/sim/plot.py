"""One picture of several policies: how long actions took, and how busy the pools were.

- Left the share of actions that took longer than a given time, on logarithmic axes: the tail is
  where policies differ. A dot marks the mean, a dashed line the lower bound on it.
- The first policy is the widest line: where several agree, each shows beside the next.
- Right a strip per policy and a column per pool: the share in use over time, all on one scale,
  with its mean at the end.
- `curves` keeps the few points a picture needs, so that a simulation can be forgotten before the
  next one begins.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import FuncFormatter
from msgspec import Struct
from numpy.typing import NDArray

from artangram.core.ids import Resource
from artangram.sim.driver import Simulation
from artangram.sim.figure import BOUND_COLOUR, COLOURS, drawing, legend_below, literal
from artangram.sim.tally import SimTally

DASHES = ("-", "--", ":", "-.")
THIN, THICK = 1.4, 4.2
"""Widths of the last line and of the first of many."""
MOST_POINTS = 120
"""Of one line: as many as the eye sees at this size."""
MOST_BINS = 80
"""Of one strip."""
LEAST_S = 1e-3
"""A logarithmic axis has no zero; shorter times are drawn here."""
STRIP_INCHES = 0.62

Points = tuple[tuple[float, float], ...]


class Curves(Struct, frozen=True, kw_only=True):
    """What a picture shows of one simulation."""

    policy: str
    act_mean_s: float
    act: Points
    """Seconds, and the share of actions that took at least so long; falling."""
    utilisation: dict[Resource, Points]
    """Of every pool with a capacity: seconds, and the share in use around them."""


def curves(simulation: Simulation, policy: str) -> Curves:
    """The curves of a simulation that has run."""
    act, use = _all_act(simulation.tally), simulation.machine.use
    return Curves(
        policy=policy,
        act_mean_s=float(act.mean()) if len(act) else 0.0,
        act=_ccdf(act),
        utilisation={
            name: _binned(timeline.shares(simulation.now)) for name, timeline in use.items()
        },
    )


def plot(
    curves: Sequence[Curves],
    path: Path,
    *,
    lower_bound_s: float | None = None,
    title: str | None = None,
) -> None:
    """Draw `curves` into `path`, an SVG or a PNG by its suffix. Raises `BadInput` for others."""
    height = max(4.6, STRIP_INCHES * len(curves) + 1.6)
    with drawing(path, width=11.0, height=height) as figure:
        pools = list(dict.fromkeys(name for one in curves for name in one.utilisation))
        grid = figure.add_gridspec(1, 2, width_ratios=(1.0, 1.15))
        tail = figure.add_subplot(grid[0, 0])
        _draw_tail(tail, curves, lower_bound_s)
        _draw_strips(figure, grid[0, 1], curves, pools)
        legend_below(figure, tail)
        if title:
            figure.suptitle(literal(title), fontsize=12)


def _draw_tail(axes: Axes, curves: Sequence[Curves], lower_bound_s: float | None) -> None:
    for index, one in enumerate(curves):
        seconds, shares = _columns(one.act)
        style = _line(index, of=len(curves))
        axes.plot(seconds, shares, **style)
        dot = {**style, "marker": "o", "markersize": 3.4 + style["linewidth"]}
        axes.plot([], [], label=f"{one.policy} (mean {one.act_mean_s:.3g} s)", **dot)
        if seconds:
            mean_s = max(LEAST_S, one.act_mean_s)
            axes.plot([mean_s], [float(np.interp(mean_s, seconds, shares))], **dot)
    if lower_bound_s is not None and lower_bound_s > 0:
        label = f"lower bound on the mean ({lower_bound_s:.3g} s)"
        axes.axvline(lower_bound_s, color=BOUND_COLOUR, linewidth=1.2, dashes=(2, 2), label=label)
    if any(one.act for one in curves):
        axes.set(xscale="log", yscale="log")
    axes.set_xlabel("action completion time, ACT (s)")
    axes.set_ylabel("share of actions that took longer")
    axes.set_title("How long actions take")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))


def _draw_strips(
    figure: Figure, place: SubplotSpec, curves: Sequence[Curves], pools: Sequence[Resource]
) -> None:
    if not (curves and pools):
        return
    grid = place.subgridspec(len(curves), len(pools), hspace=0.06)
    ends = [use[-1][0] for one in curves for use in one.utilisation.values() if use]
    first: Axes | None = None
    for row, one in enumerate(curves):
        for column, pool in enumerate(pools):
            axes = figure.add_subplot(grid[row, column], sharex=first, sharey=first)
            first = first or axes
            _draw_use(axes, one.utilisation.get(pool, ()), COLOURS[row % len(COLOURS)])
            axes.tick_params(labelbottom=row == len(curves) - 1, labelleft=column == 0)
            if row == 0:
                axes.set_title(f"Utilisation of {literal(pool)}")
            if row == len(curves) - 1:
                axes.set_xlabel("simulated time (s)")
            if column == 0:
                axes.set_ylabel(literal(one.policy), rotation=0, ha="right", va="center")
    if first is not None and ends:
        first.set_xlim(0.0, max(ends))


def _draw_use(axes: Axes, use: Points, colour: str) -> None:
    seconds, shares = _columns(use)
    if seconds:  # A closed outline has half the points of two edges.
        outline = [(seconds[0], 0.0), *use, (seconds[-1], 0.0)]
        axes.fill(*zip(*outline, strict=True), color=colour, alpha=0.75, linewidth=0)
    axes.set(ylim=(0.0, 1.05), yticks=(0.0, 1.0))
    axes.locator_params(axis="x", nbins=4)
    axes.grid(visible=False)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    if shares:
        mean = f"{100 * float(np.mean(shares)):.0f}%"
        axes.text(1.01, 0.5, mean, transform=axes.transAxes, ha="left", va="center")


def _percent(share: float, _position: int) -> str:
    return f"{100 * share:g}%"


def _line(index: int, *, of: int) -> dict[str, Any]:
    """A colour for each policy; when they are used up, another dash. Narrower one by one."""
    dash = DASHES[index // len(COLOURS) % len(DASHES)]
    width = THIN + (THICK - THIN) * (of - 1 - index) / max(4, of - 1)
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": dash, "linewidth": width}


def _all_act(tally: SimTally) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *(np.asarray(t.act) for t in tally.by_kind.values())])


def _ccdf(act: NDArray[np.float64]) -> Points:
    """The share of actions that took at least so long, from the fastest to the slowest."""
    if not len(act):
        return ()
    slowest, count = np.sort(act)[::-1], len(act)
    # Ranks that are even on the logarithmic axis, and enough of them where it squeezes the bulk.
    tail = np.geomspace(1, count, MOST_POINTS * 3 // 4)
    bulk = np.linspace(1, count, MOST_POINTS // 4)
    ranks = np.unique(np.concatenate([tail, bulk]).round().astype(int))[::-1]
    return tuple((max(LEAST_S, float(slowest[rank - 1])), float(rank / count)) for rank in ranks)


def _binned(shares: list[tuple[float, float]]) -> Points:
    """Means of neighbouring bins, few enough to draw."""
    if not shares:
        return ()
    table = np.array(shares)
    parts = np.array_split(table, min(len(table), MOST_BINS))
    return tuple((float(part[:, 0].mean()), float(part[:, 1].mean())) for part in parts)


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
