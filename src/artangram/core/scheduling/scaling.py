"""How a kind of work speeds up with more units, learned from runs whose units changed.

A run that takes long is there when others have gone and gets their cores, so runs on many cores
are the long ones: comparing times at different sizes says that cores slow a kind down. What is
comparable is work. Under each curve that may be true, a run has done some amount of work by its
end, and a belief says how likely it is to end just then. The curve under which that was likeliest
over many runs is believed.
"""

import math
from collections.abc import Mapping

from artangram.core.scheduling.distribution import Belief, KnownDuration, bin_of
from artangram.core.scheduling.speedup import DEFAULT, Amdahl

CURVES = tuple(Amdahl(serial) for serial in (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5))
"""What may be true. Under all of them another unit makes a run faster: the caller says how many it
can use."""

DOUBT = 0.5
"""Deviation of the log of a kind's serial share around the default."""

WEIGHT = 0.3
"""How much one run counts: the belief that it is held against is a guess, and often the same one
for many runs."""

FADING = 0.99
"""What is left of what a run said with every later run."""

SURPRISE = 1e-4
"""The least chance that a belief is held to have given to what came."""

CLOSENESS = 0.15
"""How far off a duration is that is taken for known: the deviation of the log."""

_PRIORS = [-0.5 * (math.log(curve.serial / DEFAULT.serial) / DOUBT) ** 2 for curve in CURVES]


class Scaling:
    """What runs of one kind say about its curve."""

    __slots__ = ("_scores", "curve")

    def __init__(self) -> None:
        self._scores = [0.0] * len(CURVES)
        self.curve = DEFAULT

    def observe(self, held: Mapping[float, float], last: float, belief: Belief) -> None:
        """A run ended on `last` units, after the seconds that it `held` each number of units.

        `belief` is what was believed of its duration on one unit.
        """
        likely = [_log_chance(held, last, belief, curve) for curve in CURVES]
        most = max(likely)
        scores = [
            FADING * score + WEIGHT * (one - most)
            for score, one in zip(self._scores, likely, strict=True)
        ]
        self._scores = scores
        totals = [score + prior for score, prior in zip(scores, _PRIORS, strict=True)]
        self.curve = CURVES[totals.index(max(totals))]


def _log_chance(held: Mapping[float, float], last: float, belief: Belief, curve: Amdahl) -> float:
    """How likely a run is to end when it did, were `curve` true; up to a constant."""
    work_s = sum(held_s * curve.speed(units) for units, held_s in held.items())
    if isinstance(belief, KnownDuration):
        off = math.log(work_s / belief.mean_s) / CLOSENESS
        return max(math.log(SURPRISE), -0.5 * off * off)
    # Bins are as wide as what they hold is long, and on more units work passes faster.
    chance = max(SURPRISE, belief.chance(bin_of(work_s)))
    return math.log(chance) + math.log(curve.speed(last) / work_s)
