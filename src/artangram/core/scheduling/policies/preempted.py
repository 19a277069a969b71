"""Elastic actions that stand aside: started, and without cores while shorter work has them.

A kernel that shares cores lets a short command run beside a long one. Here the long one gives its
cores up for as long as the short one takes, which delays it by that much and no more.
"""

from operator import attrgetter

from artangram.core.scheduling.policies.base import Ticket

_order = attrgetter("key", "seq")


class Preempted:
    """Those of one node, in order of their virtual deadlines."""

    __slots__ = ("tickets",)

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    @property
    def first(self) -> Ticket | None:
        return self.tickets[0] if self.tickets else None

    def to_resume(self, room: int, now: float) -> Ticket | None:
        """Who runs on next: the first, or till that one is overdue the first that fits `room`."""
        first = self.first
        if first is None or first.form.amounts[0] <= room or first.key <= now:
            return first
        return next((t for t in self.tickets if t.form.amounts[0] <= room), first)

    def add(self, ticket: Ticket) -> None:
        self.tickets.append(ticket)
        self.tickets.sort(key=_order)


def passes(ticket: Ticket | None, other: Ticket) -> bool:
    """May `ticket` have the cores of `other`, which is elastic and has started?

    If it is rigid, shorter, and goes first by the virtual deadlines: nobody stands aside for what
    came after its own. Nor when half of its time limit is over: the other half is for its work.
    """
    if ticket is None or ticket.form.is_elastic or ticket.work_s >= other.work_left_s:
        return False
    limit_s = other.action.timeout_s
    firm_at = other.key if limit_s is None else min(other.key, other.started_at + limit_s / 2)
    return ticket.key < firm_at
