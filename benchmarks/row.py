"""A row of the results tables: a sentence with its figure, and the goal that was set for it.

Whether a goal is reached is computed from the figure before it is rounded.
"""

from typing import NamedTuple


class Goal(NamedTuple):
    text: str
    is_reached: bool


class Row(NamedTuple):
    """One figure of `docs/results.md`."""

    text: str
    goal: Goal | None = None
    """The paper's figure or better; none where no goal was set."""


class Headline(NamedTuple):
    """One result of the README."""

    what: str
    """What was run."""
    result: str
    """How much faster or smaller than the usual way."""
    strongest: str
    """The same against the strongest baseline."""
    ceiling: str = "not computed"
    """What the best possible system would gain over the strongest baseline."""


def at_most(figure: float, limit: float, unit: str = "x") -> Goal:
    return Goal(f"at most {limit:g}{unit}", figure <= limit)


def at_least(figure: float, limit: float, unit: str = "x") -> Goal:
    return Goal(f"at least {limit:g}{unit}", figure >= limit)
