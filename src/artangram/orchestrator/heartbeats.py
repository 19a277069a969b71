"""Who keeps trajectories open, and when they were last heard of.

- An owner that gives no sign for `silence_s` is gone, and what it kept open is to be closed. A sign
  is anything it says: a heartbeat, or an action in one of its trajectories.
- The process that runs an orchestrator needs to give none while it lives. After its death the
  trajectories it had opened belong to `FORMER`, which can give signs by their use only.
"""

from collections.abc import Callable

from artangram.core.ids import TrajectoryId
from artangram.orchestrator.clock import Clock, Timer

FORMER = "a process that is gone"

SILENCE_S = 120.0
"""Longer than an orchestrator needs to come back, and an owner to find it again."""


class Heartbeats:
    """When each owner was heard of, however many trajectories it has."""

    def __init__(
        self, clock: Clock, *, silence_s: float, on_gone: Callable[[list[TrajectoryId]], None]
    ) -> None:
        self.silence_s = silence_s
        self._clock = clock
        self._on_gone = on_gone
        #: One entry for each trajectory that is open.
        self._owner: dict[TrajectoryId, str] = {}
        #: One entry for each owner of those, the longest unheard first.
        self._heard_at: dict[str, float] = {}
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<Owners: {len(self._heard_at)} of {len(self._owner)} trajectories>"

    def keep(self, trajectory: TrajectoryId, owner: str) -> None:
        """`owner` has opened `trajectory`."""
        self._owner[trajectory] = owner
        self._hear(owner)

    def forget(self, trajectory: TrajectoryId) -> None:
        """It was closed; an owner of nothing goes when it has been silent for long enough."""
        self._owner.pop(trajectory, None)

    def heard(self, owner: str) -> list[TrajectoryId]:
        """`owner` gave a sign; what it has open."""
        if owner in self._heard_at:
            self._hear(owner)
        return [trajectory for trajectory, who in self._owner.items() if who == owner]

    def used(self, trajectory: TrajectoryId) -> None:
        """Somebody does something in it."""
        owner = self._owner.get(trajectory)
        if owner is not None:
            self._hear(owner)

    def close(self) -> None:
        """Nobody is missed any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _hear(self, owner: str) -> None:
        self._heard_at.pop(owner, None)
        self._heard_at[owner] = self._clock.now()
        if self._timer is None:
            self._wake_for_first()

    def _wake_for_first(self) -> None:
        first_at = next(iter(self._heard_at.values()), None)
        self._timer = None
        if first_at is not None:
            self._timer = self._clock.call_at(first_at + self.silence_s, self._look)

    def _look(self) -> None:
        lost_at = self._clock.now() - self.silence_s
        gone = {owner for owner, at in self._heard_at.items() if at <= lost_at}
        for owner in gone:
            del self._heard_at[owner]
        left = [trajectory for trajectory, owner in self._owner.items() if owner in gone]
        self._wake_for_first()
        if left:
            self._on_gone(left)
