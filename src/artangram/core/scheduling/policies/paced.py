"""Calls of an outside API, paced so that it never has to refuse one: ours, for quotas.

When the rate binds, every order that uses all of it has the same sum of start times, so the order
is first come, first served inside a job.
"""

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
        self.wake_at = None if first is None else self._quota.fits_at(first.form.amounts[0], now)

    def lends_at(self, units: int, now: float) -> float | None:
        return self._quota.fits_at(units, now)

    def throttled(self, until: float) -> None:
        self._quota.close(until)

    def _starts_when(self, ticket: Ticket, ahead: int, now: float) -> str:
        at = self._quota.fits_at(ticket.form.amounts[0], now)
        if now < self._quota.closed_until:
            pause_s = self._quota.closed_until - now
            return f"the API takes calls again in {pause_s:.3f} s; {ahead} actions go first"
        if at is None:
            return f"a call under way ends; {ahead} actions go first"
        return f"the window moves on in {at - now:.3f} s; {ahead} actions go first"
