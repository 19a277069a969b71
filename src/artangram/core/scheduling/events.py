"""What the scheduler is told. Past participles; nothing else changes its state."""

from msgspec import Struct, field

from artangram.core.ids import ActionId, JobId, NodeId, Resource, ServiceId, TrajectoryId
from artangram.core.scheduling.action import Action, Outcome
from artangram.core.scheduling.cluster import (
    FunctionsSpec,
    JobLimits,
    NodeSpec,
    QuotaSpec,
    ServiceSpec,
)


class TrajectoryOpened(Struct, frozen=True, gc=False, tag="trajectory_opened"):
    """A trajectory begins. It holds `memory_mb` on one node from its first cpu action on."""

    trajectory: TrajectoryId
    memory_mb: int = 0
    job: JobId = JobId("default")
    selector: dict[str, str] = field(default_factory=dict)
    """Labels that its node must have."""
    image: str = ""
    """What its sandbox is made of: a node that has it is preferred."""
    idle_s: float | None = None
    """Close it when it had no action for this long; `None` for never."""
    lifetime_s: float | None = None
    """Close it this long after it was opened, whatever it does; `None` for never."""
    parent: TrajectoryId | None = None
    """The trajectory that waits for it, if one does."""


class TrajectoryClosed(Struct, frozen=True, gc=False, tag="trajectory_closed"):
    """A trajectory ended; what it still has waiting or running is cancelled."""

    trajectory: TrajectoryId


class TrajectoryGone(Struct, frozen=True, gc=False, tag="trajectory_gone"):
    """Nothing is left of a closed trajectory on its node: its memory is free."""

    trajectory: TrajectoryId


class Submitted(Struct, frozen=True, gc=False, tag="submitted"):
    action: Action


class Finished(Struct, frozen=True, gc=False, tag="finished"):
    """An action that was started has stopped using its lease."""

    action_id: ActionId
    outcome: Outcome = Outcome.SUCCEEDED
    began_at: float | None = None
    reason: str = ""
    attempt: int = 1
    """The attempt of the lease that ended; one that was already given up is ignored."""
    turned_away: bool = False
    """Nothing was done, so it may start again as often as it takes."""
    tokens: int | None = None
    """What it used of an API that limits tokens, if that is known."""


class Cancelled(Struct, frozen=True, gc=False, tag="cancelled"):
    action_id: ActionId
    reason: str = "the caller cancelled it"


class NodeJoined(Struct, frozen=True, tag="node_joined"):
    """A node is there (again), empty; without a `spec` it is as its pool describes."""

    resource: Resource
    node: NodeId
    spec: NodeSpec | None = None


class NodeDraining(Struct, frozen=True, tag="node_draining"):
    """A node gets no new trajectories; `Release` tells when its last one has gone."""

    resource: Resource
    node: NodeId


class NodeUndrained(Struct, frozen=True, tag="node_undrained"):
    """A draining node takes new trajectories again."""

    resource: Resource
    node: NodeId


class NodeSuspected(Struct, frozen=True, tag="node_suspected"):
    """A node does not answer: nothing new starts there. What it has and runs may still be fine."""

    resource: Resource
    node: NodeId


class NodeTrusted(Struct, frozen=True, tag="node_trusted"):
    """A suspect node answers again, and has lost nothing."""

    resource: Resource
    node: NodeId


class NodeLost(Struct, frozen=True, tag="node_lost"):
    """A node and everything on it is gone."""

    resource: Resource
    node: NodeId
    reason: str = "the node was lost"


class ImageArrived(Struct, frozen=True, tag="image_arrived"):
    """A node has an image from now on: trajectories that ask for it had better live there."""

    resource: Resource
    node: NodeId
    image: str


class ServiceDeployed(Struct, frozen=True, tag="service_deployed"):
    """From now on there is such a service; it is resident nowhere yet."""

    service: ServiceId
    spec: ServiceSpec


class ServiceLost(Struct, frozen=True, tag="service_lost"):
    """A resident service died on its devices; they are empty now."""

    resource: Resource
    node: NodeId
    first: int
    degree: int
    service: ServiceId


class Throttled(Struct, frozen=True, tag="throttled"):
    """The API said that it takes no call before `until`."""

    resource: Resource
    until: float


class Reconfigured(Struct, frozen=True, kw_only=True, tag="reconfigured"):
    """What jobs are entitled to, or how much APIs and functions take on, is this from now on."""

    shares: dict[JobId, float] | None = None
    """All of them; `None` if none has changed."""
    limits: dict[JobId, JobLimits] | None = None
    """Likewise."""
    pools: dict[Resource, QuotaSpec | FunctionsSpec] = field(default_factory=dict)
    """Those that have changed."""


class ClockTicked(Struct, frozen=True, gc=False, tag="clock_ticked"):
    """Time passed up to what `WakeAt` asked for."""


NodeEvent = NodeDraining | NodeUndrained | NodeSuspected | NodeTrusted

Event = (
    TrajectoryOpened
    | TrajectoryClosed
    | TrajectoryGone
    | Submitted
    | Finished
    | Cancelled
    | NodeJoined
    | NodeDraining
    | NodeUndrained
    | NodeSuspected
    | NodeTrusted
    | NodeLost
    | ImageArrived
    | ServiceDeployed
    | ServiceLost
    | Throttled
    | Reconfigured
    | ClockTicked
)
