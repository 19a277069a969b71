"""An action: one external invocation, atomic for the trajectory that makes it; and how it ended."""

import math
from enum import StrEnum

from msgspec import Struct, field

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, TrajectoryId
from artangram.core.scheduling.needs import Needs

MOST_WORK_S = 1e9
"""Thirty years."""

MOST_PRIORITY = 10
"""Either way of 0. Ten levels are ten hours of waiting: see `policies.queue`."""


class Action(Struct, frozen=True, kw_only=True, gc=False):
    """One schedulable piece of external work.

    `work_s` is how long it is believed to take on one unit of its elastic resource (or at all, when
    it has none); `None` means that the scheduler learns it from earlier actions of the same `kind`.
    """

    id: ActionId
    kind: str
    needs: Needs
    job: JobId = JobId("default")
    task: str = ""
    problem: str = ""
    """What its trajectory attempts. Actions of one kind on one problem are expected to be alike."""
    trajectory: TrajectoryId | None = None
    work_s: float | None = None
    deadline_at: float | None = None
    """An absolute time after which the result is of no use."""
    priority: int = 0
    """Actions of its job with a lower one go after it; other jobs do not notice."""
    timeout_s: float | None = None
    """A limit on run time. Time in the queue never counts."""
    repeatable: bool = False
    """It may run again after infrastructure failed under it."""
    tokens: int | None = None
    """What it will use of an API that limits tokens; `None` to learn it from calls of its kind."""
    selector: dict[str, str] = field(default_factory=dict)
    """Labels that its node must have, beside those its trajectory asks for."""


def checked(action: Action) -> Action:
    """`action` itself, or `BadInput` for values no scheduler could honour."""
    if not action.id:
        raise BadInput("id", "is empty", "give every action a unique id")
    if not action.kind:
        raise BadInput("kind", "is empty", "name the kind of action, as in swe/test")
    if not -MOST_PRIORITY <= action.priority <= MOST_PRIORITY:
        fix = f"give a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}"
        raise BadInput("priority", f"{action.priority} is out of range", fix)
    if action.tokens is not None and action.tokens < 0:
        raise BadInput("tokens", f"{action.tokens} is not a number of tokens", "give 0 or more")
    if action.work_s is action.timeout_s is action.deadline_at is None:
        return action  # Most name no time at all.
    times = (action.work_s, action.timeout_s, action.deadline_at)
    for name, value in zip(_TIMES, times, strict=True):
        if value is not None and not 0 <= value < math.inf:
            raise BadInput(name, f"{value!r} is not a time", "give a number of seconds, 0 or more")
    if action.work_s is not None and action.work_s > MOST_WORK_S:
        raise BadInput("work_s", f"{action.work_s!r} is too long", f"give {MOST_WORK_S:g} at most")
    return action


_TIMES = ("work_s", "timeout_s", "deadline_at")


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
