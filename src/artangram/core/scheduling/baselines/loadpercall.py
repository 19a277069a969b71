"""Serverless loading: every call brings its model along and leaves nothing behind.

First come, first served at a fixed degree. A call loads from the node's host copy, or cold from
storage where no copy is, and its devices are empty again when it ends. No batches: calls do not
meet on a copy.
"""

from artangram.core.scheduling.baselines.gpufcfs import GpuFcfsLane
from artangram.core.scheduling.policies.base import LaneContext, Ticket
from artangram.core.scheduling.policies.gpulane import service_of, used_at
from artangram.core.scheduling.pools.gpu import FreeChunk, GpuPool
from artangram.core.scheduling.pools.gpunode import Residency


class LoadPerCallLane(GpuFcfsLane):
    """One line of calls, each with a copy of its own."""

    def __init__(self, pool: GpuPool, context: LaneContext, *, degree: int = 4) -> None:
        """Degree 4 is how the paper's peers deploy, and it loads four shards at once."""
        super().__init__(pool, context, degree=degree)

    def _spot(self, ticket: Ticket) -> FreeChunk | None:
        """The best fit, on a node with a host copy if there is one."""
        degree = self._degree_of(ticket)
        chunks = self.pool.chunks(service_of(ticket), degree, worth=used_at)
        return min(chunks, key=lambda c: (c.restore_s, c.block), default=None)

    def _release(self, residency: Residency, now: float) -> None:
        super()._release(residency, now)
        if self.pool.is_here(residency) and residency.busy == 0:
            self.pool.evict(residency)
