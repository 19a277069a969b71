"""A picture of when two kinds of accelerators pay: the gain over hit rate and mix."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from artangram.sim.affinity import GainMap


def draw_gains(gains: GainMap, path: Path, *, hit_rate: float, share: float, title: str) -> None:
    """Colours and lines of equal gain; the ring is the run's own point."""
    with mpl.rc_context({"svg.hashsalt": "artangram"}):
        figure = Figure(figsize=(6.4, 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        axis = figure.subplots()
        x, y, z = (np.array(values) for values in (gains.hit_rates, gains.shares, gains.gains))
        shades = axis.contourf(100 * x, 100 * y, z, levels=12, cmap="viridis")
        if z.min() < 1.0 < z.max():
            axis.contour(100 * x, 100 * y, z, levels=[1.0], colors="white", linestyles="dashed")
        figure.colorbar(shades, label="gain over the better kind alone, same cost")
        axis.plot(100 * hit_rate, 100 * share, "o", ms=11, mfc="none", mec="white", mew=2.5)
        axis.set(
            xlabel="hits of the prefix cache (% of what was read before)",
            ylabel=f"trajectories of {', '.join(gains.readers)} (%)",
            title=title,
        )
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        figure.savefig(path, dpi=130, metadata=metadata)
