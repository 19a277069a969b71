"""How many units an action is worth at a given price of a unit.

An action that runs on k units for t(k) delays all work behind it by the area it uses. With a price
per unit for that delay, the best size minimises t(k) * (1 + k * price). For one curve these are
straight lines in the price, so the best size is a step function of it, computed once: the lower
envelope of the lines.

Such a price pays for an early end. Of actions whose ends are a guess none is known to be early, and
what is lost by a wide one is not made up: units are divided among them by gain (`divided`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from math import inf

from artangram.core.scheduling.distribution import Belief
from artangram.core.scheduling.needs import Amounts
from artangram.core.scheduling.speedup import Speedup

TAIL = 4.0
"""Whatever is left of an action when the crowd on its node has gone decides when its step ends: a
second of that counts as `TAIL` seconds. With 1 or 2, steps without siblings took up to 11 % longer
(seed 12); with 8, the mean ACT was 1 % worse (seed 11)."""

RUNGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Sizes worth telling apart while an action runs; between them speed barely changes."""


class Widths:
    """Speeds of one action class at every size, and its best size at every price."""

    __slots__ = (
        "_best",
        "_prices",
        "area",
        "dear",
        "gains",
        "least",
        "most",
        "sizes",
        "speed",
        "times",
    )

    def __init__(self, sizes: Amounts, speed: list[float]) -> None:
        #: Speed by number of units, relative to one unit; zero below the least.
        self.speed = speed
        self.least = sizes[0]
        self.most = sizes[-1]
        self.sizes = sizes
        #: Time by number of units, relative to the time on one unit.
        self.times = [1.0 / s if s else 0.0 for s in speed]
        #: The least area (units x relative time) any size uses.
        self.area = min(k * self.times[k] for k in sizes)
        self._best, self._prices = _envelope(sizes, self.times)
        #: Larger sizes, and the speed that each unit up to there adds: less and less.
        self.gains = _gains(sizes, speed)
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
        index = bisect_right(self.sizes, cap)
        return self.sizes[index - 1] if index else 0


def best_workers(
    widths: Widths,
    belief: Belief,
    *,
    share: int,
    lasts_s: float,
    penalty: float,
    price: float,
    tail: float,
) -> int:
    """The workers to start with in a crowd that leaves `share` cores and `lasts_s`.

    Workers are fixed at start. With more of them than cores an action is slower by the `penalty`;
    with fewer, it cannot use the cores that come free once the crowd has gone. A
    core-second wasted in the crowd delays others by `price`, a second after it counts as `tail`.
    """
    in_crowd, after = belief.split(lasts_s * widths.speed[share])
    return min(
        widths.sizes,
        key=lambda size: (
            in_crowd * _cost(widths, size, share=share, penalty=penalty, price=price)
            + tail * after * widths.times[size]
        ),
    )


def _cost(widths: Widths, size: int, *, share: int, penalty: float, price: float) -> float:
    """Of a second's work in the crowd, done by `size` workers."""
    if size <= share:
        return widths.times[size]
    # What squeezed workers waste delays them, and those behind.
    return widths.times[share] + penalty / (1.0 - penalty) * (1.0 + price)


def divided(widths: Sequence[Widths], free: int) -> list[int]:
    """Sizes of all: their least amounts, and `free` units more or as many as they can use.

    Each unit goes where it adds most speed. Speeds grow less and less with units, so those that
    scale alike get alike, and none wastes units while another one is short of them.
    """
    sizes = [each.least for each in widths]
    if free <= 0:
        return sizes
    heap = [(-each.gains[0][1], index, 0) for index, each in enumerate(widths) if each.gains]
    heapify(heap)
    while heap:
        _, index, step = heap[0]
        gains = widths[index].gains
        wanted = gains[step][0] - sizes[index]
        if wanted >= free:
            sizes[index] += free
            break
        sizes[index] += wanted
        free -= wanted
        step += 1
        if step < len(gains):
            heapreplace(heap, (-gains[step][1], index, step))
        else:
            heappop(heap)
    return sizes


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


def _gains(sizes: Amounts, speed: list[float]) -> list[tuple[int, float]]:
    """The corners of the least concave curve above `speed`, and its slope before each."""
    hull: list[tuple[int, float]] = []
    for size in sizes:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-2], (size, speed[size])):
            hull.pop()
        hull.append((size, speed[size]))
    slopes = ((after[0], _slope(before, after)) for before, after in pairwise(hull))
    return [(size, slope) for size, slope in slopes if slope > 0.0]


def _slope(before: tuple[int, float], after: tuple[int, float]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0])


def _crossing(steep: tuple[float, float, int], flat: tuple[float, float, int]) -> float:
    return (flat[1] - steep[1]) / (steep[0] - flat[0]) if steep[0] > flat[0] else inf


@lru_cache(maxsize=4096)
def fixed_widths(amounts: Amounts, curve: Speedup) -> Widths:
    """Widths of an action that keeps the size it starts with: only admissible amounts."""
    return Widths(amounts, _speeds(amounts, curve))


@lru_cache(maxsize=4096)
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
