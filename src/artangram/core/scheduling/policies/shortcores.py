"""Why an action waits for cores of a node, in words: its lane's part of `explain`."""

from artangram.core.scheduling.policies.base import Ticket, WaitReason
from artangram.core.scheduling.policies.jobunits import limited
from artangram.core.scheduling.policies.ranking import CoreUse
from artangram.core.scheduling.pools.cpu import CpuNode


def short_of_cores(
    ticket: Ticket, node: CpuNode, use: CoreUse, *, room: int, ahead: int, now: float
) -> WaitReason:
    """Why `ticket` has no cores, when `room` could be had and `ahead` others go first."""
    resource, needed, free, job = node.resource, ticket.form.amounts[0], node.free, ticket.job
    if not use.is_within(job, needed):
        most, what = use.bounds.of(job)
        return limited(resource, needed, job, most=most, what=what, free=free, ahead=ahead)
    is_ahead = use.is_ahead(job, now)
    return WaitReason(
        resource=resource,
        needed=needed,
        free=free,
        ahead=ahead,
        because=_because(ticket, node, room=room, ahead=ahead, is_ahead=is_ahead),
        starts_when=_starts_when(ticket, node, room=room, ahead=ahead, now=now),
    )


def _because(ticket: Ticket, node: CpuNode, *, room: int, ahead: int, is_ahead: bool) -> str:
    """Why `ticket` has no cores, when `room` could be had and `ahead` others go first.

    `is_ahead` says whether another job that waits has used less for its share.
    """
    needed = ticket.form.amounts[0]
    cores = "1 core" if needed == 1 else f"{needed} cores"
    if ahead and is_ahead:
        return (
            f"{ahead} go first; its job has used more of {node.resource} for its share than others"
            " that wait"
        )
    if ahead:
        return f"{ahead} that are expected to end sooner, are overdue or have priority go first"
    if needed > room:
        return f"waits for {cores} on {node.id}; what runs there is expected to end sooner"
    return "running actions that are expected to end sooner are worth the cores more"


def _starts_when(ticket: Ticket, node: CpuNode, *, room: int, ahead: int, now: float) -> str:
    """What would let `ticket` start."""
    if ticket.key <= now:
        return "its cores are free: it is overdue, and only what is so for longer goes before"
    needed, soonest = ticket.form.amounts[0] - room, []
    if needed > 0:
        soonest.append(f"{needed} more of the cores of {node.id} come back")
    if ahead:
        soonest.append(f"those ahead of it ({ahead}) have started")
    first = " and ".join(soonest) or "others end"
    overdue_s = ticket.key - now
    return f"{first}; overdue in {overdue_s:.1f} s: then nothing from its job can overtake it"
