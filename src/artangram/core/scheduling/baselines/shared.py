"""Baselines: every trajectory has a place on a node whose kernel shares the cores.

With a request and a limit this is a pod of Kubernetes: the request is reserved while the
trajectory lives (`Placement` does that), contending pods get cores in proportion to their requests,
none gets more than its limit. Without a request it is overcommitment: nothing is reserved and the
kernel shares equally. Either way an action starts at once and runs as fast as its share allows.
"""

from artangram.core.scheduling.lease import Allocation, CoreShare
from artangram.core.scheduling.policies.base import Lane, LaneContext, Ticket, WaitReason
from artangram.core.scheduling.pools.cpu import CpuNode


class SharedLane(Lane):
    """A node whose kernel decides how fast each action runs."""

    def __init__(
        self, node: CpuNode, context: LaneContext, *, weight_milli: int, limit_milli: int
    ) -> None:
        self.wake_at: float | None = None
        self._node = node
        self._context = context
        self._weight_milli = weight_milli
        self._limit_milli = min(limit_milli, 1000 * node.cores)
        self._arrived: list[Ticket] = []

    def push(self, ticket: Ticket, now: float) -> None:
        ticket.key = ticket.submitted_at
        self._arrived.append(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        self._arrived.remove(ticket)

    def num_waiting(self) -> int:
        return len(self._arrived)

    def overdue(self, now: float) -> Ticket | None:
        return None

    def dispatch(self, now: float) -> None:
        arrived, self._arrived = self._arrived, []
        for ticket in arrived:
            if self._context.seize_secondary(ticket, now):
                # As many workers as the cores it can see, as `-n auto` would choose.
                cores = max(1, self._limit_milli // 1000)
                fitting = [amount for amount in ticket.form.amounts if amount <= cores]
                workers = fitting[-1] if fitting else ticket.form.amounts[0]
                prepare_s = ticket.prepare_s
                self._context.start(
                    ticket, self._share(), workers=workers, prepare_s=prepare_s, now=now
                )

    def _share(self) -> CoreShare:
        node = self._node
        return CoreShare(node.resource, node.id, self._weight_milli, self._limit_milli)

    def give_back(self, ticket: Ticket, now: float) -> None:
        pass

    def lends(self, units: int, now: float) -> bool:
        return True

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        return self._share()

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        pass

    def hindrance(self, ticket: Ticket, now: float) -> WaitReason:
        return WaitReason(
            resource=self._node.resource,
            needed=1,
            free=self._node.cores,
            ahead=0,
            because="it was only just submitted",
            starts_when="at once",
        )
