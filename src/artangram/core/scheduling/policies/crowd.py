"""How long the crowd on a node will last, and with how many workers an action starts in it.

- Workers are fixed at start. With more of them than cores an action is slower by the squeeze
  penalty; with fewer, it cannot use the cores that come free once the crowd has gone.
- The crowd lasts for what is expected of all that wait or run here, and of what trajectories that
  think now will still ask for: half of what one asked for so far.
- Whatever of an action is left then decides when its step ends, so a second of that counts as
  `TAIL` seconds. More of it shortens steps, less of it the mean ACT.
"""

from artangram.core.scheduling.distribution import Belief
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.width import Widths

TAIL = 4.0
"""Of 1, 4 and 12 on seed 11: with 1, steps without siblings take up to 1.8 times as long as under
kernel sharing; with 12, the mean ACT is 1 to 5 % worse than with 4."""

STILL_TO_COME = 0.5
"""Share of its work that a trajectory still has before it, on average."""


class Crowd:
    """What is expected of the actions and trajectories of one node, in core-seconds."""

    __slots__ = ("_asked_s", "_backlog_s", "_num_seen", "_num_there")

    def __init__(self) -> None:
        self._backlog_s = 0.0
        #: All that was ever asked for, by how many trajectories; and how many of them live here.
        self._asked_s = 0.0
        self._num_seen = 0
        self._num_there = 0

    def enter(self, ticket: Ticket, num_trajectories: int) -> None:
        """`ticket` wants cores from now on; so many trajectories live here."""
        ticket.load_s = ticket.belief.mean_s * ticket.area
        self._backlog_s += ticket.load_s
        self._asked_s += ticket.load_s
        self._num_seen += max(0, num_trajectories - self._num_there)
        self._num_there = num_trajectories

    def leave(self, ticket: Ticket) -> None:
        """`ticket` wants no cores any more."""
        self._backlog_s -= ticket.load_s

    def lasts_s(self, cores: int, num_thinking: int) -> float:
        """For how long all cores will be wanted."""
        each_s = STILL_TO_COME * self._asked_s / max(1, self._num_seen)
        return (self._backlog_s + num_thinking * each_s) / cores


def best_workers(
    widths: Widths,
    belief: Belief,
    *,
    share: int,
    lasts_s: float,
    penalty: float,
    price: float,
    tail: float,
) -> int:
    """The workers to start with in a crowd that leaves `share` cores and `lasts_s`.

    A core-second wasted in the crowd delays others by `price`, a second after it counts as `tail`.
    """
    in_crowd, after = belief.split(lasts_s * widths.speed[share])
    return min(
        widths.sizes,
        key=lambda size: (
            in_crowd * _cost(widths, size, share=share, penalty=penalty, price=price)
            + tail * after * widths.times[size]
        ),
    )


def _cost(widths: Widths, size: int, *, share: int, penalty: float, price: float) -> float:
    """Of a second's work in the crowd, done by `size` workers."""
    if size <= share:
        return widths.times[size]
    # What squeezed workers waste delays them, and those behind.
    return widths.times[share] + penalty / (1.0 - penalty) * (1.0 + price)
