"""How many trajectories came to a node lately: about as many may come again."""

from math import exp

LATELY_S = 30.0
"""After this long, a trajectory that came counts as a third of one."""


class Newcomers:
    """A count that fades."""

    __slots__ = ("_at", "_known", "lately")

    def __init__(self) -> None:
        self.lately = 0.0
        self._known = 0
        self._at = 0.0

    def count(self, num_trajectories: int, now: float) -> None:
        """Set how many trajectories live here now."""
        self.lately *= exp((self._at - now) / LATELY_S)
        self.lately += max(0, num_trajectories - self._known)
        self._known, self._at = num_trajectories, now
