"""An action: one external invocation, atomic for the trajectory that makes it."""

import math

from msgspec import Struct, field

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, TrajectoryId
from artangram.core.scheduling.needs import Needs

MOST_WORK_S = 1e9
"""Thirty years."""

MOST_PRIORITY = 10
"""Either way of 0. Ten levels are ten hours of waiting: see `policies.precedence`."""


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
    if action.work_s is action.timeout_s is action.deadline_at is None:
        return action  # Most name no time at all.
    _not_negative("work_s", action.work_s)
    if action.work_s is not None and action.work_s > MOST_WORK_S:
        raise BadInput("work_s", f"{action.work_s!r} is too long", f"give {MOST_WORK_S:g} at most")
    _not_negative("timeout_s", action.timeout_s)
    _not_negative("deadline_at", action.deadline_at)
    return action


def _not_negative(field: str, value: float | None) -> None:
    if value is not None and not (0 <= value < math.inf):
        raise BadInput(field, f"{value!r} is not a time", "give a number of seconds, 0 or more")
