"""One row of the results table."""

from typing import NamedTuple


class Row(NamedTuple):
    question: str
    figure: str
    goal: str = ""
    """What was aimed at, the papers' figure or better; empty where nothing was."""
    is_headline: bool = False
    """Whether the README shows it, too."""
