"""Static deployments: every service has devices of its own, all the time.

- Devices are split among services in the order of their names; each gets one deployment of a fixed
  degree, then further replicas in rounds while devices last and `replicas` allows.
- Deployments are loaded when the cluster begins and after a loss; they are never evicted, and no
  two share a device.
- First come, first served per service; a deployment serves every call at its own degree.
"""

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, ServiceId
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.core.scheduling.policies.base import LaneContext, Ticket
from artangram.core.scheduling.policies.gpulane import GpuLane, fixed_degree, service_of, used_at
from artangram.core.scheduling.policies.line import SortedTickets
from artangram.core.scheduling.pools.buddy import Buddy
from artangram.core.scheduling.pools.gpu import GpuPool
from artangram.core.scheduling.pools.gpunode import Residency


class StaticLane(GpuLane):
    """One queue and fixed devices per service."""

    def __init__(
        self,
        pool: GpuPool,
        context: LaneContext,
        *,
        degree: int = 4,
        replicas: int = 1,
        now: float = 0.0,
    ) -> None:
        """Degree 4 is how the paper's peers deploy; a service that cannot takes the next it can."""
        super().__init__(pool, context)
        self._degree = degree
        self._replicas = replicas
        self._lines: dict[ServiceId, SortedTickets] = {
            name: SortedTickets() for name in pool.services()
        }
        self._is_complete = False
        self._deploy(now)
        for name in pool.services():
            for residency in pool.residents(name):
                residency.ready_at = now
        self._unserved = {name for name in pool.services() if not pool.residents(name)}

    def deploy(self, service: ServiceId, spec: ServiceSpec) -> None:
        """Static means that devices were split before: a later service gets none."""
        super().deploy(service, spec)
        self._lines[service] = SortedTickets()
        self._unserved.add(service)

    def check(self, ticket: Ticket) -> None:
        name = self.pool.resource
        if ticket.form.resource != name:
            raise BadInput(
                f"needs.{name}",
                "all devices belong to static deployments",
                f"make {name} the elastic resource, or use another policy",
            )
        if ticket.form.service in self._unserved:
            raise BadInput(
                "service",
                f"{ticket.form.service!r} has no static deployment: {name} is too small for all",
                "add devices, or use another policy",
            )

    def push(self, ticket: Ticket, now: float) -> None:
        ticket.key = ticket.submitted_at
        self._lines[service_of(ticket)].add(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        self._lines[service_of(ticket)].remove(ticket)

    def num_waiting(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def ahead(self, ticket: Ticket) -> int:
        return self._lines[service_of(ticket)].place(ticket)

    def dispatch(self, now: float) -> None:
        if not self._is_complete:
            self._deploy(now)
        for service, line in self._lines.items():
            while line and (open_ones := self._open(service)):
                ticket = line.head
                line.remove(ticket)
                if self.context.seize_secondary(ticket, now):
                    self.start(ticket, min(open_ones, key=lambda r: (r.busy, r.used_at)), now)

    def node_lost(self, node: NodeId) -> None:
        super().node_lost(node)
        self._is_complete = False

    def node_joined(self, node: NodeId) -> None:
        super().node_joined(node)
        self._is_complete = False

    def service_lost(self, node: NodeId, *, first: int, degree: int, service: ServiceId) -> None:
        super().service_lost(node, first=first, degree=degree, service=service)
        self._is_complete = False

    def _release(self, residency: Residency, now: float) -> None:
        super()._release(residency, now)
        if residency.is_lost:
            self._is_complete = False  # Its devices are free for another deployment only now.

    def overdue(self, now: float) -> Ticket | None:
        """No ticket: nothing is lent that another action could need."""
        return None

    def lends(self, units: int, now: float) -> bool:
        """Never: idle devices of a deployment still hold it."""
        return False

    def _reason(self, ticket: Ticket) -> tuple[str, str]:
        service = service_of(ticket)
        if self.pool.residents(service):
            return f"every deployment of {service} is busy", "one of them is idle"
        return f"{service} has lost its devices", "there are devices for another deployment"

    def _open(self, service: ServiceId) -> list[Residency]:
        """The deployments that take another action now."""
        pool = self.pool
        return [r for r in pool.residents(service) if pool.is_startable(r) or pool.is_joinable(r)]

    def _deploy(self, now: float) -> None:
        """Give every service its missing deployments, in rounds, while devices last."""
        room = self._room()
        self._is_complete = True
        for wanted in range(1, self._replicas + 1):
            for service in self.pool.services():
                is_possible = bool(self.pool.degrees(service))
                if is_possible and len(self.pool.residents(service)) < wanted:
                    self._place(service, room, now)

    def _room(self) -> dict[NodeId, Buddy]:
        """The devices without a deployment."""
        room = {node.id: Buddy(node.buddy.devices) for node in self.pool.nodes()}
        for node in self.pool.nodes():
            for resident in node.residents:
                room[node.id].take(resident.first, resident.degree)
        return room

    def _place(self, service: ServiceId, room: dict[NodeId, Buddy], now: float) -> None:
        degree = fixed_degree(self.pool.degrees(service), self._degree)
        free = [
            c
            for c in self.pool.chunks(service, degree, worth=used_at)
            if room[c.node].is_free(c.first, c.degree)
        ]
        if not free:
            return
        chunk = min(free, key=lambda c: room[c.node].block_size(c.first, c.degree))
        room[chunk.node].take(chunk.first, chunk.degree)
        self.pool.restore(service, chunk, now)
