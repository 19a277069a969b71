"""A belief about a duration: chances on a logarithmic scale, and the Gittins index they imply.

- Durations fall into bins, `STEPS` to a factor of two; inside a bin every duration is as likely.
- `rank_s(attained)` says how soon an action that has run for `attained_s` is worth running on: the
  least expected time per chance to end, over all stretches that it could be given next (the inverse
  of its Gittins index). With a certain duration that is the rest of it: shortest remaining time
  first. Where chances to end sink with age, the rank rises, and new work goes first.
- A distribution never changes, so its table of ranks is computed once, when it is asked for.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

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

    __slots__ = ("_ages", "_ranks", "chances", "first", "mean_s", "median_s", "spread")

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
        self.mean_s, self.median_s = _mean_and_median(first, self.chances)
        #: The deviation of the log: 0.7 is a factor of two either way.
        self.spread = _spread(first, self.chances)

    def __repr__(self) -> str:
        return f"<Distribution: about {self.median_s:.3g} s, spread {self.spread:.2f}>"

    def chance(self, index: int) -> float:
        """How likely a duration in bin `index` is."""
        at = index - self.first
        return self.chances[at] if 0 <= at < len(self.chances) else 0.0

    def rank_s(self, attained_s: float) -> float:
        """Expected time per chance to end, after `attained_s`."""
        if not self._ranks:
            self._ages, self._ranks = _table(self.first, self.chances)
        ages, ranks = self._ages, self._ranks
        if attained_s <= 0.0:
            return ranks[0]
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


def _mean_and_median(first: int, chances: Sequence[float]) -> tuple[float, float]:
    mean = median = below = 0.0
    for index, chance in enumerate(chances, first):
        middle = 0.5 * (EDGES[index] + EDGES[index + 1])
        if below <= 0.5:
            median = middle
        if below < TYPICAL:
            counted = chance if below + chance < TYPICAL else 1.0 - below
            mean += counted * middle
        below += chance
    return mean, median


def _spread(first: int, chances: Sequence[float]) -> float:
    logs = LOGS[first : first + len(chances)]
    mean = sum(chance * log for chance, log in zip(chances, logs, strict=True))
    square = sum(chance * log * log for chance, log in zip(chances, logs, strict=True))
    return math.sqrt(max(0.0, square - mean * mean))


def _table(first: int, chances: Sequence[float]) -> tuple[list[float], list[float]]:
    """Ages, and the rank at each of them.

    From age a, a stretch up to b ends the action with chance F(b) - F(a) and takes the integral of
    1 - F from a to b. The best ratio is the slope of the steepest line from the point of a to a
    later one on the curve (integral, F). From the last age to the first, it leads to the nearest
    corner of the upper hull of the later points.
    """
    begin, survivors, spent = EDGES[first], 1.0, EDGES[first]
    points = [(0.0, 0.0), (spent, 0.0)]
    for index, chance in enumerate(chances, first):
        left = max(0.0, survivors - chance)
        spent += (EDGES[index + 1] - begin) * 0.5 * (survivors + left)
        begin, survivors = EDGES[index + 1], left
        points.append((spent, 1.0 - left))
    ages = [0.0, *EDGES[first : first + len(chances)]]
    hull = [points.pop()]
    ranks = []
    while points:
        point = points.pop()
        while len(hull) > 1 and _slope(point, hull[-2]) >= _slope(point, hull[-1]):
            hull.pop()
        ranks.append(1.0 / _slope(point, hull[-1]))
        hull.append(point)
    ranks.reverse()
    return [*ages, begin], [*ranks, OUTLIVED * begin]


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])
