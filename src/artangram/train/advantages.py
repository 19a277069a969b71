"""How much better than expected an attempt was: rewards in, one number per attempt out.

Pure, on plain floats: a group has a handful of attempts. What a loss does with the number is in
`losses`.
"""

from collections.abc import Sequence
from statistics import fmean, pstdev, stdev

EPSILON = 1e-4
"""Added to a deviation, so that rewards which hardly differ do not become large advantages."""


def group_relative(rewards: Sequence[float], *, scaled: bool = True) -> list[float]:
    """GRPO: against the mean of the siblings, in units of their sample deviation if `scaled`."""
    mean = fmean(rewards)
    scale = stdev(rewards) + EPSILON if scaled and len(rewards) > 1 else 1.0
    return [(reward - mean) / scale for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """RLOO: against the mean of the other siblings. Zero for an only child."""
    if len(rewards) == 1:
        return [0.0]
    total, others = sum(rewards), len(rewards) - 1
    return [reward - (total - reward) / others for reward in rewards]


def batch_relative(groups: Sequence[Sequence[float]], *, centred: bool = True) -> list[list[float]]:
    """REINFORCE++: in units of the whole batch's deviation, so that easy groups weigh less.

    `centred` takes the group's mean away first, which is its variant for groups of siblings.
    """
    shifted = [[r - (fmean(group) if centred else 0.0) for r in group] for group in groups]
    flat = [value for group in shifted for value in group]
    mean, scale = fmean(flat), pstdev(flat) + EPSILON
    return [[(value - mean) / scale for value in group] for group in shifted]


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether siblings differ: where none does there is nothing to prefer."""
    return max(rewards) > min(rewards)
