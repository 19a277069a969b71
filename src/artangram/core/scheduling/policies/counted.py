"""What lanes over plainly countable pools share: a queue, and starts in its order."""

from typing import Protocol

from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.lease import Allocation
from artangram.core.scheduling.policies.base import LaneContext, Ticket, WaitReason
from artangram.core.scheduling.policies.jobunits import limited
from artangram.core.scheduling.policies.queue import FairUsage, Queue
from artangram.core.scheduling.pools.slots import Slots


class CountedPool(Protocol):
    """A pool that is asked, then taken from."""

    resource: Resource
    overhead_s: float

    def fits(self, units: int, now: float) -> bool: ...

    def take(self, units: int, now: float) -> Allocation: ...

    def give_back(self, units: int, now: float) -> None: ...

    def available(self, now: float) -> int: ...

    def slots(self) -> Slots | None: ...


class CountedLane:
    """First come, first served inside a job; no ticket overtakes one that does not fit yet."""

    def __init__(self, pool: CountedPool, context: LaneContext, served: FairUsage) -> None:
        self.wake_at: float | None = None
        self._pool = pool
        self._context = context
        self._served = served
        self._queue = Queue(self, served)

    def push(self, ticket: Ticket, now: float) -> None:
        ticket.key = ticket.submitted_at
        self._queue.push(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        self._queue.forget()

    def num_waiting(self) -> int:
        return len(self._queue)

    def overdue(self, now: float) -> Ticket | None:
        return self._first()

    def dispatch(self, now: float) -> None:
        while (ticket := self._first()) is not None:
            units = ticket.form.amounts[0]
            if not self.lends_to(ticket, units, now):
                return
            self._queue.pop(ticket)
            if self._context.seize_secondary(ticket, now):
                self._served.charge(ticket, self._worth(ticket, units))
                self._start(ticket, units, now)

    def _first(self) -> Ticket | None:
        """Of those that the limits of their jobs let start."""
        return self._queue.peek(self._pool.slots())

    def _start(self, ticket: Ticket, units: int, now: float) -> None:
        allocation = self.lend(ticket, units, now)
        self._context.start(
            ticket,
            allocation,
            workers=units,
            prepare_s=self._pool.overhead_s + self._prepare_s(allocation),
            now=now,
        )

    def _worth(self, ticket: Ticket, units: int) -> float:
        """What its job is charged for when it starts."""
        return units

    def _prepare_s(self, allocation: Allocation) -> float:
        return 0.0

    def give_back(self, ticket: Ticket, now: float) -> None:
        assert ticket.allocation is not None, f"{ticket} has nothing to give back"
        self.take_back(ticket, ticket.allocation, now)

    def allows(self, job: JobId, units: int) -> bool:
        return self._served.units.allows(job, units, self._pool.slots())

    def bound_of(self, job: JobId) -> tuple[int | None, str]:
        return self._served.units.bounds.of(job)

    def reconfigure(self) -> None:
        self._served.units.bounds.reconfigure()

    def lends(self, units: int, now: float) -> bool:
        return self._pool.fits(units, now)

    def lends_to(self, ticket: Ticket, units: int, now: float) -> bool:
        return self.lends(units, now)

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        self._served.units.take(ticket.job, units)
        return self._taken(ticket, units, now)

    def _taken(self, ticket: Ticket, units: int, now: float) -> Allocation:
        return self._pool.take(units, now)

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        self._served.units.take(ticket.job, -allocation.units)
        self._pool.give_back(allocation.units, now)

    def hindrance(self, ticket: Ticket, now: float) -> WaitReason:
        ahead = sum(self._served.goes_first(other, ticket) for other in self._queue.tickets())
        name, units, free = self._pool.resource, ticket.form.amounts[0], self._pool.available(now)
        if not self.allows(ticket.job, units):
            (most, what), job = self.bound_of(ticket.job), ticket.job
            return limited(name, units, job, most=most, what=what, free=free, ahead=ahead)
        return WaitReason(
            resource=name,
            needed=units,
            free=free,
            ahead=ahead,
            because=self._because(ticket, free, ahead, now),
            starts_when=self._starts_when(ticket, ahead, now),
        )

    def _because(self, ticket: Ticket, free: int, ahead: int, now: float) -> str:
        return f"{free} of {self._pool.resource} can be had now and {ahead} actions go first"

    def _starts_when(self, ticket: Ticket, ahead: int, now: float) -> str:
        return f"{ahead} actions ahead of it have started and {ticket.form.amounts[0]} are free"
