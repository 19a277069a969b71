"""How fast a line moves, learned while something stands in it."""

FORGETS = 0.05
"""How much less every further one counts that was served before: some twenty are remembered."""


class MovingLine:
    """The trajectories of one job that wait for a node."""

    __slots__ = ("_served", "_since", "_took_s", "num")

    def __init__(self, now: float) -> None:
        self.num = 0
        self._since = now
        self._took_s = 0.0
        self._served = 0.0

    def serve(self, now: float) -> None:
        """The first of them has a node."""
        self._took_s = (1.0 - FORGETS) * self._took_s + now - self._since
        self._served = (1.0 - FORGETS) * self._served + 1.0
        self._since = now

    def wait_s(self, now: float) -> float:
        """How long one more would stand in it. The longer none was served, the slower it is."""
        each_s = now - self._since
        if self._served:
            each_s = max(self._took_s, each_s) / self._served
        return (self.num + 1) * each_s
