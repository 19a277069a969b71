"""Why is it waiting? An answer per resource, and what would let the action start."""

from bisect import bisect_left

from msgspec import Struct

from artangram.core.ids import ActionId, Resource
from artangram.core.scheduling.policies.base import Lane, State, Ticket, WaitReason
from artangram.core.scheduling.policies.jobunits import limited


class Explanation(Struct, frozen=True, kw_only=True):
    """The state of an action in words."""

    action_id: ActionId
    state: str
    summary: str
    hindrances: tuple[WaitReason, ...] = ()


def explanation(ticket: Ticket, hindrances: list[WaitReason]) -> Explanation:
    """The answer to a question about `ticket`."""
    if ticket.state is State.RUNNING and ticket.units == 0:
        summary = (
            "was preempted for work that is expected to end sooner, or of a job that used less for"
            " its share, and runs on when cores are free"
        )
    elif ticket.state is State.RUNNING:
        summary = f"runs on {ticket.units} units since {ticket.started_at:.3f} s"
    elif hindrances:
        summary = "; ".join(f"{h.resource}: {h.because}" for h in hindrances)
    else:
        summary = "it can start and is about to"
    return Explanation(
        action_id=ticket.action.id,
        state=ticket.state.value,
        summary=summary,
        hindrances=tuple(hindrances),
    )


def unanswered(ticket: Ticket) -> WaitReason:
    """The node of `ticket` is suspect."""
    return WaitReason(
        resource=ticket.form.resource,
        needed=ticket.form.amounts[0],
        free=0,
        ahead=0,
        because=f"{ticket.node} does not answer at the moment",
        starts_when=f"{ticket.node} answers again; if it is lost, the action starts elsewhere",
    )


def lendable(lane: Lane, units: int, now: float) -> int:
    """The most below `units` that `lane` lends now: quotas are too large to try every number."""
    return bisect_left(range(1, units), True, key=lambda fewer: not lane.lends(fewer, now))


def of_side(
    ticket: Ticket, lane: Lane | None, resource: Resource, units: int, *, ahead: int, now: float
) -> list[WaitReason]:
    """What keeps `ticket`, which may have no node, from a secondary resource, if anything does."""
    if lane is None:
        return []
    job = ticket.job
    if not lane.allows(job, units):
        (most, what), free = lane.bound_of(job), lendable(lane, units, now)
        return [limited(resource, units, job, most=most, what=what, free=free, ahead=ahead)]
    if not lane.lends_to(ticket, units, now):
        return [lacking(resource, units, free=lendable(lane, units, now), ahead=ahead)]
    return []


def lacking(resource: Resource, units: int, *, free: int, ahead: int) -> WaitReason:
    """A secondary resource is missing."""
    return WaitReason(
        resource=resource,
        needed=units,
        free=free,
        ahead=ahead,
        because=f"{units} of {resource} are not free at the same time as the rest",
        starts_when=f"{units} of {resource} are given back",
    )


def claimed(resource: Resource, units: int) -> WaitReason:
    """What it needs is free, and claimed by an overdue action."""
    return WaitReason(
        resource=resource,
        needed=units,
        free=0,
        ahead=1,
        because="an overdue action has a claim on what it needs",
        starts_when="that one has started",
    )
