"""How an action ended, told once."""

from enum import StrEnum

from msgspec import Struct

from artangram.core.ids import ActionId, JobId, TrajectoryId


class Outcome(StrEnum):
    """How an action ended. Only the first three say something about its program."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    """It used up its own run time limit."""
    EXPIRED = "expired"
    """Its deadline passed."""
    CANCELLED = "cancelled"
    REFUSED = "refused"
    """It could never run here; it was not queued."""
    INFRA_FAILED = "infra_failed"
    """The infrastructure failed under it. Never a reward of zero."""


class ActionRecord(Struct, frozen=True, kw_only=True, gc=False):
    """The whole life of an action in times: ACT = wait + overhead + run."""

    action_id: ActionId
    job: JobId
    task: str
    kind: str
    trajectory: TrajectoryId | None
    outcome: Outcome
    reason: str
    submitted_at: float
    started_at: float | None
    """When its lease began; `None` if it never started."""
    began_at: float | None
    """When its program began, after the lease was made real."""
    ended_at: float
    attempts: int
    units: int
    """The units it ended with."""

    @property
    def act_s(self) -> float:
        return self.ended_at - self.submitted_at

    @property
    def wait_s(self) -> float:
        return (self.ended_at if self.started_at is None else self.started_at) - self.submitted_at

    @property
    def overhead_s(self) -> float:
        if self.started_at is None or self.began_at is None:
            return 0.0
        return self.began_at - self.started_at

    @property
    def run_s(self) -> float:
        return 0.0 if self.began_at is None else self.ended_at - self.began_at
