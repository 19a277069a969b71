"""The records of a status that say how full the cluster is, and what each job has and wants."""

from msgspec import Struct

from artangram.core.ids import ActionId, JobId, TrajectoryId


class PoolStatus(Struct, frozen=True, kw_only=True):
    """How much of one thing is in use."""

    resource: str
    unit: str
    """cores, MB, devices, slots."""
    used: int
    capacity: int


class JobStatus(Struct, frozen=True, kw_only=True):
    """What a job has and wants now."""

    job: JobId
    share: float = 1.0
    """Of what is short, relative to other jobs."""
    queued: int = 0
    running: int = 0
    trajectories: int = 0
    cores: int = 0
    memory_mb: int = 0
    """Held by its trajectories that have a node."""
    devices: int = 0
    waits_for: str = ""
    """Why its oldest waiting action waits; empty if none does or it was not asked."""
    oldest: ActionId | None = None
    """That action."""


class RunningStatus(Struct, frozen=True, kw_only=True):
    """An action with a lease."""

    action: ActionId
    kind: str
    job: JobId
    trajectory: TrajectoryId | None
    where: str
    """Its node, or what it calls."""
    units: int
    """Cores it holds now; 0 while it is preempted, and of a call."""
    held_s: float
    """How long ago its lease began."""
