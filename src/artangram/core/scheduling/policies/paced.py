"""Calls of an outside API, paced so that it never has to refuse one: ours, for quotas.

When the rate binds, every order that uses all of it has the same sum of start times, so the order
is first come, first served inside a job. Where tokens are limited, jobs share tokens.
"""

from artangram.core.scheduling.lease import Allocation, Calls
from artangram.core.scheduling.policies.base import LaneContext, Ticket
from artangram.core.scheduling.policies.counted import CountedLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.pools.quota import QuotaPool


class PacedLane(CountedLane):
    """The one queue of all jobs in front of one API."""

    def __init__(self, pool: QuotaPool, context: LaneContext, served: FairUsage) -> None:
        super().__init__(pool, context, served)
        self._quota = pool

    def dispatch(self, now: float) -> None:
        super().dispatch(now)
        first = self._first()
        self.wake_at = None if first is None else self._fits_at(first, now)

    def lends_to(self, ticket: Ticket, units: int, now: float) -> bool:
        return self._quota.fits(units, now, self._tokens(ticket))

    def lends_at(self, ticket: Ticket, units: int, now: float) -> float | None:
        return self._quota.fits_at(units, now, self._tokens(ticket))

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        super().take_back(ticket, allocation, now)
        used = ticket.tokens_used
        if used is not None and self._quota.counts_tokens:
            assert isinstance(allocation, Calls), f"{allocation} is no call"
            self._quota.settle(allocation, used, started_at=ticket.started_at, now=now)
            if used:  # One that was turned away says nothing of its kind.
                self._quota.learn(ticket.action.kind, used)
            if used > allocation.tokens:
                self._served.charge(ticket, used - allocation.tokens)

    def throttled(self, until: float) -> None:
        self._quota.close(until)

    def _taken(self, ticket: Ticket, units: int, now: float) -> Allocation:
        return self._quota.take(units, now, self._tokens(ticket))

    def _worth(self, ticket: Ticket, units: int) -> float:
        return self._tokens(ticket) or units

    def _tokens(self, ticket: Ticket) -> int:
        return self._quota.tokens_of(ticket.action.kind, ticket.action.tokens)

    def _fits_at(self, ticket: Ticket, now: float) -> float | None:
        return self.lends_at(ticket, ticket.form.amounts[0], now)

    def _because(self, ticket: Ticket, free: int, ahead: int, now: float) -> str:
        tokens, left = self._tokens(ticket), self._quota.tokens_left(now)
        if tokens <= left:
            return super()._because(ticket, free, ahead, now)
        name = self._quota.resource
        return f"it takes {tokens} tokens, {left} of {name} are left and {ahead} actions go first"

    def _starts_when(self, ticket: Ticket, ahead: int, now: float) -> str:
        at = self._fits_at(ticket, now)
        if now < self._quota.closed_until:
            pause_s = self._quota.closed_until - now
            return f"the API takes calls again in {pause_s:.3f} s; {ahead} actions go first"
        if at is None:
            return f"a call under way ends; {ahead} actions go first"
        return f"the window moves on in {at - now:.3f} s; {ahead} actions go first"
