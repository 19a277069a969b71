"""A row of the results tables: a sentence with its figure, and what was aimed at.

Whether a goal is reached is computed from the figure before it is rounded.
"""

from enum import Enum, auto
from typing import NamedTuple


class Shown(Enum):
    """Where a row is to be read. What the README alone shows sums up rows of the page."""

    PAGE = auto()
    BOTH = auto()
    README = auto()


class Goal(NamedTuple):
    text: str
    is_reached: bool


class Row(NamedTuple):
    text: str
    goal: Goal | None = None
    """What was aimed at, the papers' figure or better; none where nothing was."""
    shown: Shown = Shown.PAGE
    note: str = ""
    """What only the page says of it."""


def at_most(figure: float, limit: float, unit: str = "x") -> Goal:
    return Goal(f"at most {limit:g}{unit}", figure <= limit)


def at_least(figure: float, limit: float, unit: str = "x") -> Goal:
    return Goal(f"at least {limit:g}{unit}", figure >= limit)


def headline(is_one: bool) -> Shown:
    return Shown.BOTH if is_one else Shown.PAGE
