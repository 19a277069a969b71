"""What every lane in front of a GPU pool shares: starting, giving back, loans, losses, `explain`.

A lane adds the queue and the idea. Residencies are the books'; a lane knows which ticket of its own
runs on which, so that an end that comes after its node was lost changes nothing.
"""

from abc import abstractmethod
from collections.abc import Iterator
from math import inf

from artangram.core.ids import NodeId, ServiceId
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.core.scheduling.lease import Allocation, Devices
from artangram.core.scheduling.needs import Amounts
from artangram.core.scheduling.policies.base import Lane, LaneContext, Ticket, WaitReason
from artangram.core.scheduling.pools.buddy import chunk_size
from artangram.core.scheduling.pools.gpu import BARE, Fence, FreeChunk, GpuPool
from artangram.core.scheduling.pools.gpunode import Residency


def service_of(ticket: Ticket) -> ServiceId:
    return BARE if ticket.form.service is None else ticket.form.service


def seconds(ticket: Ticket, degree: int) -> float:
    """Believed run time of `ticket` on `degree` devices."""
    return ticket.work_s if ticket.curve is None else ticket.work_s / ticket.curve.speed(degree)


class GpuLane(Lane):
    """A queue in front of the whole GPU pool."""

    def __init__(self, pool: GpuPool, context: LaneContext) -> None:
        self.pool = pool
        self.context = context
        self.wake_at: float | None = None
        self.num_restores = 0
        #: When each busy residency is believed to be idle again.
        self.ends: dict[Residency, float] = {}
        #: Devices that are kept free for one ticket.
        self.fence: Fence | None = None
        self._degrees: dict[tuple[ServiceId, Amounts], Amounts] = {}
        self._running: dict[int, Residency] = {}
        self._loans: dict[Devices, Residency] = {}

    def deploy(self, service: ServiceId, spec: ServiceSpec) -> None:
        """From now on there is such a service; it is resident nowhere yet."""
        self.pool.deploy(service, spec)

    @abstractmethod
    def ahead(self, ticket: Ticket) -> int:
        """How many waiting tickets go before `ticket`."""

    def check(self, ticket: Ticket) -> None:
        """`BadInput` if `ticket` could never run here."""

    def degrees(self, ticket: Ticket) -> Amounts:
        """The degrees at which `ticket` can run here, ascending."""
        kind = (service_of(ticket), ticket.form.amounts)
        if kind not in self._degrees:
            possible = self.pool.degrees(kind[0])
            self._degrees[kind] = tuple(degree for degree in kind[1] if degree in possible)
        return self._degrees[kind]

    def start(self, ticket: Ticket, spot: Residency | FreeChunk, now: float) -> None:
        """Run `ticket`, whose further resources are seized, at `spot`."""
        service = service_of(ticket)
        is_chunk = isinstance(spot, FreeChunk)
        residency = self.pool.restore(service, spot, now) if isinstance(spot, FreeChunk) else spot
        self.num_restores += is_chunk and service != BARE
        self.pool.take(residency, now)
        prepare_s = max(0.0, residency.ready_at - now) + self.pool.overhead_s
        ends_at = now + prepare_s + seconds(ticket, residency.degree)
        self.ends[residency] = max(ends_at, self.ends.get(residency, now))
        self._running[ticket.seq] = residency
        devices = Devices(
            self.pool.resource,
            residency.node,
            residency.first,
            residency.degree,
            service,
            restored=is_chunk,
            evicted=tuple(r.service for r in spot.evicted) if isinstance(spot, FreeChunk) else (),
        )
        self.context.start(ticket, devices, workers=residency.degree, prepare_s=prepare_s, now=now)

    def give_back(self, ticket: Ticket, now: float) -> None:
        residency = self._running.pop(ticket.seq, None)
        if residency is not None:
            self._release(residency, now)

    def lends(self, units: int, now: float) -> bool:
        return next(self._loans_of(units), None) is not None

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        """Bare devices: what was resident and idle on them makes room."""
        chunk = min(self._loans_of(units), key=lambda c: (c.block, len(c.evicted), c.loss))
        residency = self.pool.restore(BARE, chunk, now)
        self.pool.take(residency, now)
        evicted = tuple(r.service for r in chunk.evicted)
        loan = Devices(
            self.pool.resource, chunk.node, chunk.first, chunk.degree, BARE, evicted=evicted
        )
        self._loans[loan] = residency
        self.ends[residency] = inf
        return loan

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        assert isinstance(allocation, Devices)
        self._release(self._loans.pop(allocation), now)

    def _loans_of(self, units: int) -> Iterator[FreeChunk]:
        """Where `units` devices could be lent now."""
        return self.pool.chunks(BARE, chunk_size(units), worth=used_at, fence=self.fence)

    def node_lost(self, node: NodeId) -> None:
        """A node is gone; `give_back` of what ran there changes nothing any more."""
        if not self.pool.has_node(node):
            return
        self.pool.lose_node(node)
        self._loans = {loan: r for loan, r in self._loans.items() if r.node != node}
        self._running = {seq: r for seq, r in self._running.items() if r.node != node}
        self.ends = {r: at for r, at in self.ends.items() if r.node != node}

    def node_joined(self, node: NodeId) -> None:
        if not self.pool.has_node(node):
            self.pool.join_node(node)

    def service_lost(self, node: NodeId, *, first: int, degree: int, service: ServiceId) -> None:
        """A resident service died; what ran on it is given back by the scheduler."""
        for residency in self.pool.find(node, first=first, degree=degree, service=service):
            self.pool.lose_service(residency)

    def _release(self, residency: Residency, now: float) -> None:
        self.pool.give_back(residency, now)
        if residency.busy == 0:
            self.ends.pop(residency, None)

    def hindrance(self, ticket: Ticket, now: float) -> WaitReason:
        ahead = self.ahead(ticket)
        because, starts_when = f"{ahead} actions go first", "they have started"
        if not ahead:
            because, starts_when = self._reason(ticket)
        return WaitReason(
            resource=self.pool.resource,
            needed=self._needed(ticket),
            free=self.pool.free,
            ahead=ahead,
            because=because,
            starts_when=starts_when,
        )

    def _needed(self, ticket: Ticket) -> int:
        """How many devices `ticket` needs at least."""
        return self.degrees(ticket)[0]

    def _reason(self, ticket: Ticket) -> tuple[str, str]:
        """Why `ticket`, the first of its line, does not start, and what would let it."""
        needed, free = self._needed(ticket), self.pool.free
        if free < needed:
            return f"{needed} devices are needed, {free} are free", "others end"
        if not self.pool.fits(needed):
            return f"{free} devices are free, but no aligned {needed} of them", "neighbours end"
        return "it had better wait for devices that others use", "one of them ends"


def fixed_degree(degrees: Amounts, wanted: int) -> int:
    """The largest of `degrees` up to `wanted`, or else the least above it."""
    return max((degree for degree in degrees if degree <= wanted), default=degrees[0])


def best_fit(pool: GpuPool, service: ServiceId, degree: int) -> Residency | FreeChunk | None:
    """The free chunk from the smallest block; among equals where `service` is, then the stalest."""
    copies = [r for r in pool.residents(service) if r.degree == degree and pool.is_startable(r)]
    copy = min(copies, key=lambda r: (pool.block_size(r), -r.used_at), default=None)
    chunks = pool.chunks(service, degree, worth=used_at)
    chunk = min(chunks, key=lambda c: (c.block, _freshest(c)), default=None)
    if copy is not None and (chunk is None or pool.block_size(copy) <= chunk.block):
        return copy
    return chunk


def _freshest(chunk: FreeChunk) -> float:
    return max((r.used_at for r in chunk.evicted), default=-inf)


def used_at(residency: Residency) -> float:
    """The worth of a residency to lanes that evict the one used longest ago."""
    return residency.used_at
