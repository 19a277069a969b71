"""How much better than expected an attempt was: rewards in, one number per attempt out.

Pure, on plain floats: a group has a handful of attempts. What a loss does with the number is in
`losses`.
"""

from collections.abc import Sequence
from statistics import fmean, pstdev, stdev

EPSILON = 1e-4
"""Added to a deviation, so that rewards which hardly differ do not become large advantages."""


def group_relative(rewards: Sequence[float]) -> list[float]:
    """GRPO: against the mean of the siblings, in units of their sample deviation."""
    mean = fmean(rewards)
    scale = stdev(rewards) + EPSILON if len(rewards) > 1 else 1.0
    return [(reward - mean) / scale for reward in rewards]


def centred(rewards: Sequence[float]) -> list[float]:
    """Dr. GRPO: against the mean of the siblings, in the reward's own units."""
    mean = fmean(rewards)
    return [reward - mean for reward in rewards]


def batch_relative(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """REINFORCE++ for groups of siblings: in units of the whole batch's deviation.

    So groups whose attempts hardly differ weigh less.
    """
    values = [centred(group) for group in groups]
    scale = pstdev(value for group in values for value in group) + EPSILON
    return [[value / scale for value in group] for group in values]


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether siblings differ: where none does, none is preferred."""
    return max(rewards) > min(rewards)
