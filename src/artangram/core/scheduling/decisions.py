"""What the scheduler wants done. Imperatives; carry them out in the order given.

The order matters: a `Resize` that takes cores away comes before the `Start` or `Resize` that gives
them to another action.
"""

from enum import StrEnum

from msgspec import Struct

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import ActionRecord
from artangram.core.scheduling.lease import Cores, Lease


class StopReason(StrEnum):
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Start(Struct, frozen=True, gc=False, tag="start"):
    lease: Lease


class Resize(Struct, frozen=True, gc=False, tag="resize"):
    """A running action's cores are now these."""

    action_id: ActionId
    cores: Cores
    pace: float = 1.0
    """Seconds of its time limit that pass in one second on these cores."""


class Stop(Struct, frozen=True, gc=False, tag="stop"):
    """End a running action. Its lease lasts until `Finished` confirms that it is gone."""

    action_id: ActionId
    reason: StopReason


class Report(Struct, frozen=True, gc=False, tag="report"):
    """An action has ended; exactly one per action ever submitted."""

    record: ActionRecord


class WakeAt(Struct, frozen=True, gc=False, tag="wake_at"):
    """Send `ClockTicked` at `at`. The latest `WakeAt` replaces all earlier ones."""

    at: float


class Release(Struct, frozen=True, gc=False, tag="release"):
    """A draining node is empty: it may go."""

    resource: Resource
    node: NodeId


class Close(Struct, frozen=True, gc=False, tag="close"):
    """A trajectory has passed one of its limits: close it, and say `TrajectoryClosed`."""

    trajectory: TrajectoryId
    reason: str


Decision = Start | Resize | Stop | Report | WakeAt | Release | Close
