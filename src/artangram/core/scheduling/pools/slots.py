"""How much of a pool may be in use at once: what quotas and functions have in common."""

from typing import NamedTuple


class Slots(NamedTuple):
    """Of all that may be under way at once, what is left."""

    left: int
    total: int
