"""A picture of when two kinds of accelerators pay: the gain over hit rate and mix."""

from pathlib import Path

import numpy as np

from artangram.sim.affinity import GainMap
from artangram.sim.figure import drawing


def draw_gains(gains: GainMap, path: Path, *, hit_rate: float, share: float, title: str) -> None:
    """Colours and lines of equal gain; the ring is the run's own point."""
    with drawing(path, width=6.4, height=4.6) as figure:
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
