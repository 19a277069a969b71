"""First come, first served on GPUs: the first of the line blocks all others.

Every call gets the least degree, or one fixed degree. The chunk is the best fit; among equals the
one where the service is resident; otherwise the residents used longest ago are evicted. A copy
whose batch has room is joined.
"""

from artangram.core.scheduling.policies.base import LaneContext, Ticket
from artangram.core.scheduling.policies.gpulane import GpuLane, best_fit, fixed_degree, service_of
from artangram.core.scheduling.policies.line import SortedTickets
from artangram.core.scheduling.pools.gpu import FreeChunk, GpuPool
from artangram.core.scheduling.pools.gpunode import Residency


class GpuFcfsLane(GpuLane):
    """One line in front of the whole pool."""

    def __init__(self, pool: GpuPool, context: LaneContext, *, degree: int | None = None) -> None:
        """`degree` is asked for where it is admissible; without it every call gets the least."""
        super().__init__(pool, context)
        self._degree = degree
        self._line = SortedTickets()

    def push(self, ticket: Ticket, now: float) -> None:
        ticket.key = ticket.submitted_at
        self._line.add(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        self._line.remove(ticket)

    def num_waiting(self) -> int:
        return len(self._line)

    def ahead(self, ticket: Ticket) -> int:
        return self._line.place(ticket)

    def overdue(self, now: float) -> Ticket | None:
        return self._line.head if self._line else None

    def dispatch(self, now: float) -> None:
        while self._line:
            ticket = self._line.head
            spot = self._spot(ticket)
            if spot is None:
                return
            self._line.remove(ticket)
            if self.context.seize_secondary(ticket, now):
                self.start(ticket, spot, now)

    def _needed(self, ticket: Ticket) -> int:
        return self._degree_of(ticket)

    def _degree_of(self, ticket: Ticket) -> int:
        degrees = self.degrees(ticket)
        return degrees[0] if self._degree is None else fixed_degree(degrees, self._degree)

    def _spot(self, ticket: Ticket) -> Residency | FreeChunk | None:
        service, degree = service_of(ticket), self._degree_of(ticket)
        for copy in self.pool.residents(service):
            if copy.degree == degree and self.pool.is_joinable(copy):
                return copy
        return best_fit(self.pool, service, degree)
