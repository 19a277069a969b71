"""The books of a GPU pool: which devices are busy, and which services are resident where.

- One chunk of devices is busy with one service at a time; a busy residency is never evicted.
- Evicting only frees memory: weights never change, so the way back is a restore, from the node's
  host copy or, without one, from storage.
- What to evict and where to restore is the lane's to weigh; `chunks` lists the choices.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.cluster import GpuSpec, ServiceSpec, node_ids
from artangram.core.scheduling.needs import Amounts
from artangram.core.scheduling.pools.buddy import Buddy, is_power_of_two
from artangram.core.scheduling.pools.gpunode import GpuNode, Residency, Worth

BARE = ServiceId("")
"""Devices without a service: all of their memory is taken and nothing stays behind."""


class Fence(NamedTuple):
    """Devices kept free for one ticket."""

    node: NodeId
    first: int
    size: int

    def shuts_out(self, node: NodeId, first: int, size: int) -> bool:
        """Does that chunk reach into the fence?"""
        is_near = first < self.first + self.size and self.first < first + size
        return is_near and node == self.node


class FreeChunk(NamedTuple):
    """A free chunk where a service could be restored."""

    node: NodeId
    first: int
    degree: int
    block: int
    """Size of the free block the chunk is cut from; the less, the better it fits."""
    restore_s: float
    evicted: tuple[Residency, ...]
    loss: float
    """What the evicted residencies are worth together."""


class GpuPool:
    """Nodes of devices, and the services that live on them."""

    __slots__ = ("_nodes", "_of_service", "_services", "free", "num_devices", "resource", "spec")

    def __init__(
        self, resource: Resource, spec: GpuSpec, services: Mapping[ServiceId, ServiceSpec]
    ) -> None:
        self.resource = resource
        self.spec = spec
        ours = (name for name in sorted(services) if services[name].pool == resource)
        self._services = {name: services[name] for name in ours}
        # Bare devices restore nothing: no weights, all of the memory.
        self._services[BARE] = ServiceSpec(
            pool=resource,
            weights_mb=0,
            runtime_mb=spec.memory_mb,
            degrees=tuple(1 << n for n in range(spec.devices.bit_length())),
        )
        self._of_service: dict[ServiceId, list[Residency]] = {name: [] for name in self._services}
        self._nodes: dict[NodeId, GpuNode] = {}
        self.num_devices = 0
        self.free = 0
        for node in node_ids(resource, spec.nodes):
            self.join_node(node)

    def __repr__(self) -> str:
        resident = sum(len(found) for found in self._of_service.values())
        free = f"{self.free} of {self.num_devices} devices free"
        return f"<GpuPool {self.resource}: {free}, {resident} resident>"

    @property
    def overhead_s(self) -> float:
        """What every action pays for dispatch."""
        return self.spec.overhead_s

    def has_node(self, node: NodeId) -> bool:
        return node in self._nodes

    def nodes(self) -> list[GpuNode]:
        return list(self._nodes.values())

    def services(self) -> list[ServiceId]:
        """Every service that lives in this pool, by name."""
        return [name for name in self._services if name != BARE]

    def deploy(self, service: ServiceId, spec: ServiceSpec) -> None:
        """From now on `service` may be resident here."""
        self._services[service] = spec
        self._of_service[service] = []

    def service(self, service: ServiceId) -> ServiceSpec:
        return self._services[service]

    def degrees(self, service: ServiceId) -> Amounts:
        """The degrees at which `service` can be resident on a node of this kind."""
        spec = self._services[service]
        largest = Buddy(self.spec.devices).largest
        return tuple(
            degree
            for degree in sorted(spec.degrees)
            if is_power_of_two(degree)
            and degree <= largest
            and spec.device_mb(degree) <= self.spec.memory_mb
        )

    def residents(self, service: ServiceId) -> list[Residency]:
        """Where `service` is resident, oldest first."""
        return self._of_service[service]

    def is_here(self, residency: Residency) -> bool:
        """Is it still resident, neither evicted nor lost?"""
        return residency in self._of_service[residency.service]

    def fits(self, size: int) -> bool:
        """Is some chunk of `size` devices free? Idle residents always make room."""
        return any(node.buddy.fits(size) for node in self._nodes.values())

    def is_startable(self, residency: Residency) -> bool:
        """Is it idle, and are its devices free?"""
        return residency.busy == 0 and self.block_size(residency) > 0

    def block_size(self, residency: Residency) -> int:
        """Size of the free block around its devices; zero when they are not free."""
        buddy = self._nodes[residency.node].buddy
        return buddy.block_size(residency.first, residency.degree)

    def is_joinable(self, residency: Residency) -> bool:
        """Is it busy, but serves another action beside?"""
        return 0 < residency.busy < self._services[residency.service].batch

    def restore_s(self, service: ServiceId, degree: int, node: NodeId | None = None) -> float:
        """How long a restore takes on `node`; from a host copy when no node is named."""
        spec = self._services[service]
        shard_mb = spec.weights_mb / degree
        if node is not None and not self._nodes[node].host.holds(service):
            return shard_mb / self.spec.cold_mb_per_s
        return shard_mb / self.spec.restore_mb_per_s if spec.restore_s is None else spec.restore_s

    def chunks(
        self, service: ServiceId, degree: int, *, worth: Worth, fence: Fence | None = None
    ) -> Iterator[FreeChunk]:
        """Every free chunk outside `fence` where `service` could be restored, node by node."""
        spec = self._services[service]
        memory_mb = spec.shard_mb(degree)
        here = {(r.node, r.first) for r in self._of_service[service] if r.degree == degree}
        for node in self._nodes.values():
            if node.buddy.free < degree:
                continue
            restore_s = self.restore_s(service, degree, node.id)
            for first, block in node.buddy.positions(degree):
                if fence is not None and fence.shuts_out(node.id, first, degree):
                    continue
                if (node.id, first) in here:
                    continue
                evicted, loss = node.evictions(
                    first, degree, memory_mb=memory_mb, runtime_mb=spec.runtime_mb, worth=worth
                )
                yield FreeChunk(node.id, first, degree, block, restore_s, tuple(evicted), loss)

    def restore(self, service: ServiceId, chunk: FreeChunk, now: float) -> Residency:
        """Evict what `chunk` says and make `service` resident there, ready after the restore."""
        for resident in chunk.evicted:
            self.evict(resident)
        node = self._nodes[chunk.node]
        spec = self._services[service]
        residency = Residency(service, node=chunk.node, first=chunk.first, degree=chunk.degree)
        residency.memory_mb = spec.shard_mb(chunk.degree)
        residency.runtime_mb = spec.runtime_mb
        residency.ready_at = now + chunk.restore_s
        residency.used_at = now
        node.host.use(service, spec.weights_mb)
        residency.restore_s = self.restore_s(service, chunk.degree, chunk.node)
        node.add(residency)
        self._of_service[service].append(residency)
        return residency

    def take(self, residency: Residency, now: float) -> None:
        """One more action runs on `residency`."""
        assert not residency.is_lost, f"{residency} is gone"
        if residency.busy == 0:
            self._nodes[residency.node].buddy.take(residency.first, residency.degree)
            self.free -= residency.degree
        residency.busy += 1
        residency.used_at = now

    def give_back(self, residency: Residency, now: float) -> None:
        """One action on `residency` ended. The service stays, unless it was lost or bare."""
        if residency.is_lost and residency.busy == 0:
            return  # its node went first, and took the devices with it
        residency.busy -= 1
        residency.used_at = now
        assert residency.busy >= 0, f"{residency} got back more than it gave"
        if residency.busy == 0:
            node = self._nodes[residency.node]
            node.buddy.give_back(residency.first, residency.degree)
            self.free += residency.degree
            if residency.is_lost:
                node.remove(residency)
            elif residency.service == BARE:
                self.evict(residency)

    def evict(self, residency: Residency) -> None:
        """Free the memory of an idle residency."""
        assert residency.busy == 0, f"{residency} cannot be evicted"
        self._nodes[residency.node].remove(residency)
        self._of_service[residency.service].remove(residency)

    def join_node(self, node: NodeId) -> None:
        """A node is there, empty but for the host copies its memory holds."""
        assert node not in self._nodes, f"{node} is already here"
        fresh = GpuNode(node, self.spec)
        for name, spec in self._services.items():
            if fresh.host.fits(spec.weights_mb):
                fresh.host.use(name, spec.weights_mb)
        self._nodes[node] = fresh
        self.num_devices += self.spec.devices
        self.free += self.spec.devices

    def lose_node(self, node: NodeId) -> None:
        """A node and everything on it is gone; giving back what ran there changes nothing."""
        gone = self._nodes.pop(node)
        self.num_devices -= self.spec.devices
        self.free -= gone.buddy.free
        for residency in gone.residents:
            residency.busy = 0
            self._forget(residency)

    def lose_service(self, residency: Residency) -> None:
        """A resident service died. What ran on it still has to give back its devices."""
        if residency.busy == 0:
            self.evict(residency)
        else:
            self._forget(residency)

    def find(self, node: NodeId, *, first: int, degree: int, service: ServiceId) -> list[Residency]:
        """The residency at this place; none or one."""
        place = (node, first, degree)
        found = self._of_service.get(service, ())
        return [r for r in found if (r.node, r.first, r.degree) == place]

    def _forget(self, residency: Residency) -> None:
        if not residency.is_lost:
            residency.is_lost = True
            self._of_service[residency.service].remove(residency)
