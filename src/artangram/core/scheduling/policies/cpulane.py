"""What lanes in front of a CPU node share: cores that one action has alone, and ranked queues.

A lane adds the idea: who starts when, and how wide.
"""

from artangram.core.scheduling.lease import Allocation, Cores
from artangram.core.scheduling.policies.base import Lane, LaneContext, Ticket
from artangram.core.scheduling.policies.queue import FairUsage, Queue
from artangram.core.scheduling.pools.cpu import CpuNode

SLACK_CAP_S = 3600.0
"""Nothing is passed for longer than this by work that came later. Ten minutes would already cost
3 % of mean ACT: long tests that keep their place delay many short commands."""


class CpuLane(Lane):
    """The cores of one node: taken, lent and given back."""

    def __init__(self, node: CpuNode, context: LaneContext) -> None:
        self.wake_at: float | None = None
        self._node = node
        self._context = context

    def give_back(self, ticket: Ticket, now: float) -> None:
        assert isinstance(ticket.allocation, Cores)
        self._node.give_back(ticket.allocation.cores)

    def lends(self, units: int, now: float) -> bool:
        return units <= self._node.free

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        return Cores(self._node.resource, self._node.id, self._node.take(units))

    def take_back(self, allocation: Allocation, now: float) -> None:
        assert isinstance(allocation, Cores)
        self._node.give_back(allocation.cores)

    def _start_on(self, ticket: Ticket, units: int, now: float, *, workers: int) -> None:
        """Run `ticket`, whose further resources are seized, on `units` free cores."""
        node = self._node
        cores = Cores(node.resource, node.id, node.take(units))
        self._context.start(ticket, cores, workers=workers, prepare_s=ticket.prepare_s, now=now)


class RankedLane(CpuLane):
    """Rigid tickets and elastic ones wait in two queues that one key merges.

    The key is a virtual deadline: submission plus a slack in proportion to the least area of the
    action. Short work passes long work, but only for so long.
    """

    def __init__(self, node: CpuNode, context: LaneContext, served: FairUsage) -> None:
        super().__init__(node, context)
        self._served = served
        self._rigid = Queue(self, served)
        self._elastic = Queue(self, served)

    def withdraw(self, ticket: Ticket) -> None:
        self._queue_of(ticket).forget()

    def num_waiting(self) -> int:
        return len(self._rigid) + len(self._elastic)

    def overdue(self, now: float) -> Ticket | None:
        heads = (self._rigid.peek(), self._elastic.peek())
        late = [ticket for ticket in heads if ticket is not None and ticket.key <= now]
        return min(late, key=lambda ticket: (ticket.key, ticket.seq), default=None)

    def _enqueue(self, ticket: Ticket, *, area: float, alpha: float) -> None:
        ticket.key = ticket.submitted_at + min(alpha * area, SLACK_CAP_S)
        self._queue_of(ticket).push(ticket)

    def _queue_of(self, ticket: Ticket) -> Queue:
        return self._elastic if ticket.form.is_elastic else self._rigid

    def _ahead(self, ticket: Ticket) -> int:
        """How many waiting tickets go before `ticket`."""
        return sum(
            self._served.goes_first(other, ticket)
            for queue in (self._rigid, self._elastic)
            for other in queue.tickets()
        )
