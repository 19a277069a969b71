"""One picture of several policies: how long actions took, and how busy the pools were.

- Left the share of actions that took longer than a given time, on logarithmic axes: the tail is
  where policies differ. A dot marks the mean, a dashed line the lower bound on it.
- The first policy is the widest line: where several agree, each shows beside the next.
- Right the utilisation of every pool over time.
- `curves` keeps the few points a picture needs, so that a simulation can be forgotten before the
  next one begins.
- Nothing global: no pyplot, no state left behind. The same curves give the same bytes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from msgspec import Struct
from numpy.typing import NDArray

from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.sim.driver import Simulation
from artangram.sim.tally import SimTally

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito: told apart with any colour vision."""
DASHES = ("-", "--", ":", "-.")
THIN, THICK = 1.4, 4.2
"""Widths of the last line and of the first of many."""
MOST_POINTS = 120
"""Of one line: as many as the eye sees at this size."""
MOST_COLUMNS = 4
"""Of the legend."""
LEAST_S = 1e-3
"""A logarithmic axis has no zero; shorter times are drawn here."""

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
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise BadInput("plot", f"cannot draw {path.name!r}", "name a .svg or a .png file")
    # Without a salt the ids inside an SVG are random.
    with mpl.rc_context({"svg.hashsalt": "artangram"}), catch_warnings():
        filterwarnings("ignore", "Glyph")  # A letter that the font lacks is drawn as a box.
        figure = _figure(curves, lower_bound_s, title)
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(path, format=kind, dpi=130, metadata=metadata)


def _figure(curves: Sequence[Curves], lower_bound_s: float | None, title: str | None) -> Figure:
    pools = list(dict.fromkeys(name for one in curves for name in one.utilisation))
    rows = max(1, len(pools))
    figure = Figure(figsize=(11.0, max(4.6, 1.7 * rows + 1.2)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(rows, 2)
    tail = figure.add_subplot(grid[:, 0])
    _draw_tail(tail, curves, lower_bound_s)
    above: Axes | None = None
    for row, pool in enumerate(pools):
        above = figure.add_subplot(grid[row, 1], sharex=above)
        _draw_use(above, curves, pool)
        if row < rows - 1:
            above.tick_params(labelbottom=False)
        else:
            above.set_xlabel("simulated time (s)")
    handles, labels = tail.get_legend_handles_labels()
    columns = min(MOST_COLUMNS, max(1, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    if title:
        figure.suptitle(_literal(title), fontsize=12)
    return figure


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
        axes.axvline(lower_bound_s, color="#666666", linewidth=1.2, dashes=(2, 2), label=label)
    if any(one.act for one in curves):
        axes.set(xscale="log", yscale="log")
    axes.set_xlabel("action completion time, ACT (s)")
    axes.set_ylabel("share of actions that took longer")
    axes.set_title("How long actions take", fontsize=11)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    _tidy(axes)


def _draw_use(axes: Axes, curves: Sequence[Curves], pool: Resource) -> None:
    for index, one in enumerate(curves):
        seconds, shares = _columns(one.utilisation.get(pool, ()))
        axes.plot(seconds, shares, **_line(index, of=len(curves)))
    axes.set_ylim(0.0, 1.05)
    axes.set_xlim(left=0.0)
    axes.set_ylabel("in use")
    axes.set_title(f"Utilisation of {_literal(pool)}", fontsize=11)
    _tidy(axes)


def _literal(name: str) -> str:
    """A name as it is: what stands between two dollars is no formula."""
    shown = "".join(letter if letter.isprintable() else " " for letter in name)
    return shown.replace("$", r"\$")


def _tidy(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


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
    parts = np.array_split(table, min(len(table), MOST_POINTS))
    return tuple((float(part[:, 0].mean()), float(part[:, 1].mean())) for part in parts)


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
