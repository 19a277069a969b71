"""How many units an action is worth at a given price of a unit.

An action that runs on k units for t(k) delays all work behind it by the area it uses. With a price
per unit for that delay, the best size minimises t(k) * (1 + k * price). For one curve these are
straight lines in the price, so the best size is a step function of it, computed once: the lower
envelope of the lines.
"""

from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import pairwise
from math import inf

from artangram.core.scheduling.needs import Amounts
from artangram.core.scheduling.speedup import Speedup

RUNGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Sizes worth telling apart while an action runs; between them speed barely changes."""


class Widths:
    """Speeds of one action class at every size, and its best size at every price."""

    __slots__ = ("_best", "_prices", "_sizes", "area", "dear", "least", "most", "speed", "times")

    def __init__(self, sizes: Amounts, speed: list[float]) -> None:
        #: Speed by number of units, relative to one unit; zero below the least.
        self.speed = speed
        self.least = sizes[0]
        self.most = sizes[-1]
        self._sizes = sizes
        #: Time by number of units, relative to the time on one unit.
        self.times = [1.0 / s if s else 0.0 for s in speed]
        #: The least area (units x relative time) any size uses.
        self.area = min(k * self.times[k] for k in sizes)
        self._best, self._prices = _envelope(sizes, self.times)
        #: From this price on it is worth no more than its least size; never, if it scales well.
        self.dear = max(self._prices, default=0.0) if self._best[-1] == self.least else inf

    def best(self, price: float) -> int:
        """The best size when a unit costs `price`."""
        return self._best[bisect_left(self._prices, price)]

    def best_within(self, price: float, cap: int) -> int:
        """The best size of at most `cap` units; zero when even the least is more."""
        size = self._best[bisect_left(self._prices, price)]
        return size if size <= cap else self.largest_within(cap)

    def largest_within(self, cap: int) -> int:
        """The largest size of at most `cap` units; zero when even the least is more."""
        index = bisect_right(self._sizes, cap)
        return self._sizes[index - 1] if index else 0


def _envelope(sizes: Amounts, times: list[float]) -> tuple[list[int], list[float]]:
    """Sizes that are best for some price, widest first, and the prices between them."""
    lines = sorted(((k * times[k], times[k], k) for k in sizes), reverse=True)
    hull: list[tuple[float, float, int]] = []
    for line in lines:
        while hull and _is_hidden(hull, line):
            hull.pop()
        hull.append(line)
    prices = [_crossing(wide, narrow) for wide, narrow in pairwise(hull)]
    return [size for _, _, size in hull], prices


def _is_hidden(hull: list[tuple[float, float, int]], line: tuple[float, float, int]) -> bool:
    """Is the last line of the hull nowhere the lowest once `line`, less steep, is there?"""
    if line[1] <= hull[-1][1]:
        return True
    return len(hull) > 1 and _crossing(hull[-1], line) <= _crossing(hull[-2], hull[-1])


def _crossing(steep: tuple[float, float, int], flat: tuple[float, float, int]) -> float:
    return (flat[1] - steep[1]) / (steep[0] - flat[0]) if steep[0] > flat[0] else inf


@lru_cache(maxsize=65_536)
def fixed_widths(amounts: Amounts, curve: Speedup) -> Widths:
    """Widths of an action that keeps the size it starts with: only admissible amounts."""
    return Widths(amounts, _speeds(amounts, curve))


@lru_cache(maxsize=65_536)
def malleable_widths(amounts: Amounts, curve: Speedup, workers: int, penalty: float) -> Widths:
    """Widths of an action started with `workers` whose cores may change while it runs.

    Below `workers` its processes share cores and lose the share `penalty` of their speed. Between
    admissible amounts the speed is interpolated: the workers are there, only cores are missing.
    """
    speed = _speeds(tuple(a for a in amounts if a <= workers), curve)
    squeezed = [s * (1.0 - penalty) for s in speed[:-1]] + speed[-1:]
    least = amounts[0]
    inner = (k for k in RUNGS if least < k < workers)
    sizes = (least, *inner, workers) if workers > least else (least,)
    return Widths(sizes, squeezed)


def _speeds(amounts: Amounts, curve: Speedup) -> list[float]:
    """Speed at every number of units up to the largest amount, interpolated between amounts."""
    speed = [0.0] * (amounts[-1] + 1)
    low = amounts[0]
    speed[low] = curve.speed(low)
    for high in amounts[1:]:
        below, above = speed[low], curve.speed(high)
        for units in range(low + 1, high + 1):
            speed[units] = below + (above - below) * (units - low) / (high - low)
        low = high
    return speed
