"""A belief about a duration: chances on a logarithmic scale, and the Gittins index they imply.

- Durations fall into bins, `STEPS` to a factor of two; inside a bin every duration is as likely.
- `rank_s(attained)` says how soon an action that has run for `attained_s` is worth running on: the
  least expected time per chance to end, over all stretches that it could be given next (the inverse
  of its Gittins index). With a certain duration that is the rest of it: shortest remaining time
  first. Where chances to end sink with age, the rank rises, and new work goes first.
- A distribution never changes, so its ranks are computed once, when they are asked for: that of an
  action that has not run, which is all that most are asked for, without those of older ones.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import add, mul, sub, truediv

STEPS = 4
"""Bins to a factor of two: durations within 19 % of each other count as alike."""

FIRST, LAST = -10 * STEPS, 22 * STEPS
"""The first bin begins at about a millisecond, the last one ends after 48 days."""

NUM_BINS = LAST - FIRST

EDGES = tuple(2.0 ** (step / STEPS) for step in range(FIRST, LAST + 1))
"""Where bins begin, and where the last one ends."""

LOG_STEP = math.log(2.0) / STEPS

LOGS = tuple((index + 0.5 + FIRST) * LOG_STEP for index in range(NUM_BINS))
"""The log of the middle of each bin."""

_MIDDLES = tuple(0.5 * (begin + end) for begin, end in pairwise(EDGES))
_HALVES = tuple((end - begin) * 0.5 for begin, end in pairwise(EDGES))

OUTLIVED = 1.0
"""An action that outlived everything believed of it is expected to take this share of its age
again: so it is with the heaviest tails that still have a mean."""

RESIDUE = 0.05
"""Share of a known duration that is left, at the least, of an action that reaches it."""

TYPICAL = 0.95
"""The mean counts the longest 5 % as long as the shortest of them: one run that took a thousand
times as long as the others says little about the next one."""

LEAST_CHANCE = 5e-4
"""Bins at both ends with less than this are left out of a distribution."""


def bin_of(duration_s: float) -> int:
    """The bin of a duration, from 0; extremes are in the first one and in the last one."""
    if duration_s <= EDGES[0]:
        return 0
    return min(NUM_BINS - 1, int(math.log2(duration_s) * STEPS - FIRST))


class Distribution:
    """How likely each duration is."""

    __slots__ = ("_ages", "_ranks", "_unrun", "chances", "first", "mean_s", "median_s", "spread")

    def __init__(self, weights: Sequence[float], first: int = 0) -> None:
        """`weights` are of the bins from `first` on, in any unit; not all of them are zero."""
        least = LEAST_CHANCE * sum(weights)
        begin, end = 0, len(weights)
        while weights[begin] < least:
            begin += 1
        while weights[end - 1] < least:
            end -= 1
        kept = weights[begin:end]
        total = sum(kept)
        #: The bin of the first chance.
        self.first = first = first + begin
        self.chances = [weight / total for weight in kept]
        self._ages: list[float] = []
        self._ranks: list[float] = []
        #: The rank of an action that has not run.
        self._unrun: float | None = None
        #: The spread is the deviation of the log: 0.7 is a factor of two either way.
        self.mean_s, self.median_s, self.spread = _moments(first, self.chances)

    def __repr__(self) -> str:
        return f"<Distribution: about {self.median_s:.3g} s, spread {self.spread:.2f}>"

    def chance(self, index: int) -> float:
        """How likely a duration in bin `index` is."""
        at = index - self.first
        return self.chances[at] if 0 <= at < len(self.chances) else 0.0

    def rank_s(self, attained_s: float) -> float:
        """Expected time per chance to end, after `attained_s`."""
        if attained_s <= 0.0:
            if self._unrun is None:
                self._unrun = _unrun_rank(self.first, self.chances)
            return self._unrun
        if not self._ranks:
            self._ages, self._ranks = _table(self.first, self.chances)
        ages, ranks = self._ages, self._ranks
        at = bisect_right(ages, attained_s)
        if at == len(ages):
            return OUTLIVED * attained_s
        below, above = ages[at - 1], ages[at]
        share = (attained_s - below) / (above - below)
        return ranks[at - 1] + share * (ranks[at] - ranks[at - 1])

    def split(self, at_s: float) -> tuple[float, float]:
        """How much of it is expected up to `at_s`, and how much after that."""
        before = after = 0.0
        for index, chance in enumerate(self.chances, self.first):
            middle = 0.5 * (EDGES[index] + EDGES[index + 1])
            if middle > at_s:
                before += chance * at_s
                after += chance * (middle - at_s)
            else:
                before += chance * middle
        return before, after


class KnownDuration:
    """A duration that is known but for an error too small to rank by."""

    __slots__ = ("mean_s", "median_s", "spread")

    def __init__(self, duration_s: float) -> None:
        self.mean_s = self.median_s = duration_s
        self.spread = 0.0

    def __repr__(self) -> str:
        return f"<KnownDuration: {self.mean_s:.3g} s>"

    def rank_s(self, attained_s: float) -> float:
        rest_s = self.mean_s - attained_s
        return max(rest_s, RESIDUE * self.mean_s, OUTLIVED * -rest_s)

    def split(self, at_s: float) -> tuple[float, float]:
        """How much of it is up to `at_s`, and how much after that."""
        return min(self.mean_s, at_s), max(0.0, self.mean_s - at_s)


Belief = Distribution | KnownDuration


def _moments(first: int, chances: Sequence[float]) -> tuple[float, float, float]:
    """Mean, median and the deviation of the log."""
    middles, logs = _MIDDLES[first : first + len(chances)], LOGS[first : first + len(chances)]
    below = [0.0, *accumulate(chances)]
    median = middles[bisect_right(below, 0.5, 0, len(chances)) - 1]
    last = bisect_left(below, TYPICAL, 1, len(chances)) - 1
    mean = _total(map(mul, chances[:last], middles)) + (1.0 - below[last]) * middles[last]
    weighed = list(map(mul, chances, logs))
    log_mean, log_square = _total(weighed), _total(map(mul, weighed, logs))
    return mean, median, math.sqrt(max(0.0, log_square - log_mean * log_mean))


def _total(numbers: Iterable[float]) -> float:
    """Added one by one: `sum` rounds differently from one version of Python to another."""
    total = 0.0
    for total in accumulate(numbers):  # noqa: B007 - the last one is the total
        pass
    return total


def _curve(first: int, chances: Sequence[float]) -> tuple[list[float], list[float]]:
    """At the end of each bin: the time expected to be spent until then, and the chance to end."""
    left = list(accumulate(chances, sub, initial=1.0))
    if left[-1] < 0.0:
        left = [max(0.0, share) for share in left]
    steps = map(mul, _HALVES[first:], map(add, left, left[1:]))
    spent = list(accumulate(steps, initial=EDGES[first]))
    return spent[1:], [1.0 - share for share in left[1:]]


def _unrun_rank(first: int, chances: Sequence[float]) -> float:
    """The first rank of `_table`: no stretch from the beginning is steeper."""
    spent, ended = _curve(first, chances)
    steepest: float = max(map(truediv, ended, spent))
    return 1.0 / steepest


def _table(first: int, chances: Sequence[float]) -> tuple[list[float], list[float]]:
    """Ages, and the rank at each of them.

    From age a, a stretch up to b ends the action with chance F(b) - F(a) and takes the integral of
    1 - F from a to b. The best ratio is the slope of the steepest line from the point of a to a
    later one on the curve (integral, F). From the last age to the first, it leads to the nearest
    corner of the upper hull of the later points.
    """
    points = [(0.0, 0.0), (EDGES[first], 0.0), *zip(*_curve(first, chances), strict=True)]
    ages = [0.0, *EDGES[first : first + len(chances) + 1]]
    hull = [points.pop()]
    ranks = []
    for at, share in reversed(points):
        till, ended = hull[-1]
        slope = (ended - share) / (till - at)
        while len(hull) > 1:
            till, ended = hull[-2]
            further = (ended - share) / (till - at)
            if further < slope:
                break
            hull.pop()
            slope = further
        ranks.append(1.0 / slope)
        hull.append((at, share))
    ranks.reverse()
    return ages, [*ranks, OUTLIVED * ages[-1]]
