"""A baseline: every trajectory calls the API itself and retries when it is refused.

A refused call (429) does not count against the window. It is tried again after a back-off that
doubles, `RETRIES` times at most; then the call has failed. So has one that is not answered within
`TIMEOUT_S`, tries and all. There is no order: a try that finds room in the window gets through.
A call of two APIs is refused if either refuses it; one that needs cores waits for them. These are
the documented habits of API clients.
"""

from heapq import heappop, heappush

from artangram.core.scheduling.lease import Allocation
from artangram.core.scheduling.policies.base import Lane, LaneContext, State, Ticket, WaitReason
from artangram.core.scheduling.pools.quota import QuotaPool

RETRIES = 3
BACKOFF_S = 1.0
"""Before the first retry."""
TIMEOUT_S = 600.0
"""From the first try to the answer. Clients that count anew for each try would wait longer."""


class UnmanagedLane(Lane):
    """No queue at all: only back-offs that run out."""

    def __init__(self, pool: QuotaPool, context: LaneContext) -> None:
        self.wake_at: float | None = None
        self._pool = pool
        self._context = context
        #: Next try, order of submission, tries so far.
        self._tries: list[tuple[float, int, int, Ticket]] = []
        self._waiting = 0

    def push(self, ticket: Ticket, now: float) -> None:
        ticket.key = ticket.submitted_at
        self._waiting += 1
        self._context.limit(ticket, ticket.submitted_at + TIMEOUT_S)
        heappush(self._tries, (now, ticket.seq, 0, ticket))

    def withdraw(self, ticket: Ticket) -> None:
        self._waiting -= 1

    def num_waiting(self) -> int:
        return self._waiting

    def overdue(self, now: float) -> Ticket | None:
        return None

    def dispatch(self, now: float) -> None:
        while self._tries and self._tries[0][0] <= now:
            _, _, tries, ticket = heappop(self._tries)
            if ticket.lane is self and ticket.state is State.WAITING:
                self._try(ticket, tries, now)
        self.wake_at = self._tries[0][0] if self._tries else None

    def _try(self, ticket: Ticket, tries: int, now: float) -> None:
        units, name = ticket.form.amounts[0], self._pool.resource
        refusing = self._context.refusing(ticket, now) if self._pool.fits(units, now) else name
        if refusing is None:
            self._waiting -= 1
            if self._context.seize_secondary(ticket, now):
                allocation = self._pool.take(units, now)
                prepare_s = self._pool.overhead_s
                self._context.start(ticket, allocation, workers=units, prepare_s=prepare_s, now=now)
        elif tries < RETRIES:
            heappush(self._tries, (now + BACKOFF_S * 2**tries, ticket.seq, tries + 1, ticket))
        else:
            self._waiting -= 1
            self._context.give_up(ticket, f"refused {tries + 1} times, last by {refusing}", now)

    def give_back(self, ticket: Ticket, now: float) -> None:
        self._pool.give_back(ticket.units, now)

    def lends(self, units: int, now: float) -> bool:
        return self._pool.fits(units, now)

    def lends_at(self, ticket: Ticket, units: int, now: float) -> float | None:
        return self._pool.fits_at(units, now)

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        return self._pool.take(units, now)

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        self._pool.give_back(allocation.units, now)

    def throttled(self, until: float) -> None:
        self._pool.close(until)

    def hindrance(self, ticket: Ticket, now: float) -> WaitReason:
        units = ticket.form.amounts[0]
        return WaitReason(
            resource=self._pool.resource,
            needed=units,
            free=self._pool.available(now),
            ahead=0,
            because="the API refused it and it backs off",
            starts_when="its next try finds room in the window",
        )
