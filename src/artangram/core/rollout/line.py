"""How many trajectories may hold an environment while the cluster has a line for them.

A trajectory that stands in line does nothing, and a long line of one run is in the way of others.

- While none waits for a node, twice as many may as do now: the next look sees a line before it is
  long.
- While a trajectory would wait for more than `MOST_WAIT_S`, as many may as the cluster serves, and
  an eighth more to stand in line: what comes free is used at once.
- In between, and where only cores are short, as many as do now.
"""

MOST_WAIT_S = 10.0
"""A shorter wait is no line: commands take seconds, trajectories minutes."""
FIRST = 8
"""That many may before anything is known."""
SPARE_SHARE = 8
"""One more for each of these stands in line."""


class EnvironmentBound:
    """The most that may hold an environment, by what the cluster says of its line."""

    __slots__ = ("_environments", "most")

    def __init__(self, environments: int) -> None:
        self._environments = environments
        self.most = min(environments, FIRST)

    def on_line(self, *, wait_s: float, num_waiting: int, in_envs: int) -> None:
        """`in_envs` hold an environment, of which `num_waiting` wait for a node of the cluster."""
        most = max(1, in_envs)
        if not num_waiting and wait_s <= MOST_WAIT_S:
            most = max(FIRST, 2 * in_envs)
        elif num_waiting and wait_s > MOST_WAIT_S:
            served = max(0, in_envs - num_waiting)
            most = served + max(1, served // SPARE_SHARE)
        self.most = min(self._environments, most)
