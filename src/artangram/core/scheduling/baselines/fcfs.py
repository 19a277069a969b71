"""Baselines: first come, first served, at one size.

`fcfs` gives every action its least amount; `fixed:N` gives an elastic action the largest
admissible amount of at most N. The first that does not fit blocks all behind it.
"""

from collections import OrderedDict

from artangram.core.scheduling.policies.base import CpuLane, LaneContext, Ticket, WaitReason
from artangram.core.scheduling.pools.cpu import CpuNode


class FcfsLane(CpuLane):
    """One line in front of a CPU node."""

    def __init__(self, node: CpuNode, context: LaneContext, *, size: int = 1) -> None:
        super().__init__(node, context)
        self._size = size
        #: A cancelled ticket leaves at once, wherever it stands.
        self._line: OrderedDict[Ticket, None] = OrderedDict()

    def push(self, ticket: Ticket, now: float) -> None:
        ticket.key = ticket.submitted_at
        self._line[ticket] = None

    def withdraw(self, ticket: Ticket) -> None:
        del self._line[ticket]

    def num_waiting(self) -> int:
        return len(self._line)

    def overdue(self, now: float) -> Ticket | None:
        return next(iter(self._line), None)

    def dispatch(self, now: float) -> None:
        while (ticket := next(iter(self._line), None)) is not None:
            units = self._units(ticket)
            if units > self._node.free:
                return
            del self._line[ticket]
            if self._context.seize_secondary(ticket, now):
                self._start_on(ticket, units, now, workers=units)

    def _units(self, ticket: Ticket) -> int:
        amounts = ticket.form.amounts
        fitting = [amount for amount in amounts if amount <= self._size]
        return fitting[-1] if fitting and ticket.form.is_elastic else amounts[0]

    def hindrance(self, ticket: Ticket, now: float) -> WaitReason:
        ahead, units = list(self._line).index(ticket), self._units(ticket)
        return WaitReason(
            resource=self._node.resource,
            needed=units,
            free=self._node.free,
            ahead=ahead,
            because=f"{ahead} actions came before it and {self._node.free} cores are free",
            starts_when=f"those have started and {units} cores of {self._node.id} are free",
        )
