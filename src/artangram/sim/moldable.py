"""Actions on one pool, as arrays: when each arrives, and how long it takes on how many units."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Option = tuple[float, float]
"""Units, and the seconds it takes on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moldable:
    """Actions in order of arrival, each with its options.

    Row i of `action`, `part`, `size`, `time_s` and `fee` is one option of one action; the options
    of an action stand together, and every action has at least one.
    """

    parts: Floats
    """Units of each part of the pool. An option runs on one part."""
    arrive_s: Floats
    weight: Floats
    """Of each action: what a second of its completion counts."""
    action: Ints
    part: Ints
    size: Floats
    time_s: Floats
    fee: Floats
    """What an option counts whenever it runs, beside its completion."""

    def __len__(self) -> int:
        return len(self.arrive_s)

    @property
    def units(self) -> float:
        """Of the whole pool."""
        return float(self.parts.sum())

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
    """Actions in any order, on a pool of one part, whose completions all count alike."""
    assert all(options), "every action needs an option"
    order = sorted(range(len(arrive_s)), key=lambda j: arrive_s[j])
    rows = [(j, size, time_s) for j, old in enumerate(order) for size, time_s in options[old]]
    return Moldable(
        parts=np.array([units], dtype=np.float64),
        arrive_s=np.array([arrive_s[j] for j in order], dtype=np.float64),
        weight=np.ones(len(order)),
        action=np.array([j for j, _, _ in rows], dtype=np.int64),
        part=np.zeros(len(rows), dtype=np.int64),
        size=np.array([size for _, size, _ in rows], dtype=np.float64),
        time_s=np.array([time_s for _, _, time_s in rows], dtype=np.float64),
        fee=np.zeros(len(rows)),
    )
