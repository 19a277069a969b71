"""Closes trajectories whose owner stopped sending heartbeats.

- An owner that sends nothing for `silence_s` is gone. A request in one of its trajectories counts
  as a heartbeat.
- The process that runs an orchestrator is no owner: what it opened lasts as long as it does. After
  its death those trajectories belong to `FORMER`, and only their use keeps them open.
"""

from collections.abc import Callable

from artangram.orchestrator.driver import Clock, Timer
from artangram.orchestrator.live import LiveTrajectory

FORMER = "a process that is gone"

SILENCE_S = 120.0
"""Longer than an orchestrator needs to come back, and an owner to find it again."""


class Owner:
    """A client that keeps trajectories open."""

    __slots__ = ("heard_at", "name", "trajectories")

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard_at = 0.0
        #: In the order of their opening.
        self.trajectories: dict[LiveTrajectory, None] = {}


class Heartbeats:
    """When each owner was heard last."""

    def __init__(
        self, clock: Clock, *, silence_s: float, on_gone: Callable[[list[LiveTrajectory]], None]
    ) -> None:
        self.silence_s = silence_s
        self._clock = clock
        self._on_gone = on_gone
        #: The longest unheard first.
        self._owners: dict[str, Owner] = {}
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<Heartbeats of {len(self._owners)} owners>"

    def keep(self, trajectory: LiveTrajectory, name: str) -> None:
        """The owner called `name` keeps `trajectory` open."""
        owner = self._owners.get(name) or Owner(name)
        owner.trajectories[trajectory] = None
        trajectory.owner = owner
        self.hear(owner)

    def forget(self, trajectory: LiveTrajectory) -> None:
        """It was closed. An owner without any goes when it has been silent for long enough."""
        if trajectory.owner is not None:
            trajectory.owner.trajectories.pop(trajectory, None)
            trajectory.owner = None

    def heard(self, name: str) -> list[LiveTrajectory]:
        """A heartbeat; returns what its sender keeps open."""
        owner = self._owners.get(name)
        if owner is None:
            return []
        self.hear(owner)
        return list(owner.trajectories)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def hear(self, owner: Owner) -> None:
        """A heartbeat came, or a request in one of its trajectories."""
        self._owners.pop(owner.name, None)
        self._owners[owner.name] = owner
        owner.heard_at = self._clock.now()
        if self._timer is None:
            self._wake_for_first()

    def _wake_for_first(self) -> None:
        first = next(iter(self._owners.values()), None)
        self._timer = None
        if first is not None:
            self._timer = self._clock.call_at(first.heard_at + self.silence_s, self._look)

    def _look(self) -> None:
        lost_at = self._clock.now() - self.silence_s
        gone = [owner for owner in self._owners.values() if owner.heard_at <= lost_at]
        left: list[LiveTrajectory] = []
        for owner in gone:
            del self._owners[owner.name]
            left += owner.trajectories
        self._wake_for_first()
        if left:
            self._on_gone(left)
