"""The look of every picture: one palette, one grid, one way to save it.

Nothing global: no pyplot, no state left behind. The same figure gives the same bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from artangram.core.errors import BadInput

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito: told apart with any colour vision."""
BOUND_COLOUR = "#666666"
"""Of goals, and of bounds that no policy can beat."""
GRID_COLOUR = "#dddddd"

_LOOK: dict[Any, Any] = {
    "svg.hashsalt": "artangram",  # Without a salt the ids inside an SVG are random.
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID_COLOUR,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


@contextmanager
def drawing(path: Path, *, width: float, height: float) -> Iterator[Figure]:
    """A figure of this many inches, saved as an SVG or a PNG by the suffix when the block ends.

    Raises `BadInput` for other suffixes.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise BadInput("plot", f"cannot draw {path.name!r}", "name a .svg or a .png file")
    with mpl.rc_context(_LOOK), catch_warnings():
        filterwarnings("ignore", "Glyph")  # A letter that the font lacks is drawn as a box.
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        _settle(figure)
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(path, format=kind, dpi=130, metadata=metadata)


def _settle(figure: Figure) -> None:
    """Place all axes for good. The solver of the layout differs in the last digits by run."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(edge, 4) for edge in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))


def legend_below(figure: Figure, axes: Axes, *, most_columns: int = 4) -> None:
    """The legend of `axes`, under the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(most_columns, max(1, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def literal(name: str) -> str:
    """A name as it is: what stands between two dollars is no formula."""
    shown = "".join(letter if letter.isprintable() else " " for letter in name)
    return shown.replace("$", r"\$")
