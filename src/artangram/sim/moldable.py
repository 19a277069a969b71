"""Actions on one pool, as arrays: when each arrives, and how long it takes on how many units."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Option = tuple[float, float]
"""Units, and the seconds on so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moldable:
    """Actions in order of arrival, each with its options.

    Row i of `action`, `size` and `time_s` is one option of one action; the options of an action
    stand together, and every action has at least one.
    """

    units: int
    """Of the whole pool."""
    arrive_s: Floats
    action: Ints
    size: Floats
    time_s: Floats

    def __len__(self) -> int:
        return len(self.arrive_s)

    def least(self, of_rows: Floats) -> Floats:
        """For each action the least value among its options."""
        first = np.searchsorted(self.action, np.arange(len(self)))
        return np.asarray(np.minimum.reduceat(of_rows, first), dtype=np.float64)

    @property
    def fastest_s(self) -> Floats:
        """The shortest time of each action."""
        return self.least(self.time_s)

    @property
    def least_area(self) -> Floats:
        """The least units times seconds of each action."""
        return self.least(self.size * self.time_s)


def moldable(
    arrive_s: Sequence[float], options: Sequence[Sequence[Option]], *, units: int
) -> Moldable:
    """Actions in any order."""
    assert all(options), "every action needs an option"
    order = sorted(range(len(arrive_s)), key=lambda j: arrive_s[j])
    rows = [(j, size, time_s) for j, old in enumerate(order) for size, time_s in options[old]]
    return Moldable(
        units=units,
        arrive_s=np.array([arrive_s[j] for j in order], dtype=np.float64),
        action=np.array([j for j, _, _ in rows], dtype=np.int64),
        size=np.array([size for _, size, _ in rows], dtype=np.float64),
        time_s=np.array([time_s for _, _, time_s in rows], dtype=np.float64),
    )
