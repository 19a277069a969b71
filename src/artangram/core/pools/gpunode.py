"""The books of one GPU node: its free devices, their memory, what is resident, and host copies.

- A *residency* is a service of one degree on one aligned run of devices. Another degree or position
  is another residency: it has other shards.
- Several services may be resident on the same devices while their memory fits.
"""

from collections.abc import Callable

from artangram.core.cluster import GpuSpec
from artangram.core.ids import NodeId, ServiceId
from artangram.core.pools.buddy import Buddy


class Residency:
    """A service on an aligned run of devices of one node."""

    __slots__ = (
        "busy",
        "degree",
        "first",
        "is_lost",
        "memory_mb",
        "node",
        "ready_at",
        "restore_s",
        "service",
        "used_at",
    )

    def __init__(self, service: ServiceId, *, node: NodeId, first: int, degree: int) -> None:
        self.service = service
        self.node = node
        self.first = first
        self.degree = degree
        #: On each of its devices.
        self.memory_mb = 0
        #: How many actions run on it.
        self.busy = 0
        #: What bringing it here took, and so about what losing it would cost.
        self.restore_s = 0.0
        self.ready_at = 0.0
        self.used_at = 0.0
        self.is_lost = False

    def __repr__(self) -> str:
        last = self.first + self.degree - 1
        return f"<Residency {self.service} on {self.node}:{self.first}-{last}, {self.busy} busy>"

    def overlaps(self, first: int, size: int) -> bool:
        return self.first < first + size and first < self.first + self.degree


Worth = Callable[[Residency], float]
"""How bad it would be to evict a residency."""


class HostCopies:
    """Copies of weights in one node's memory; the one used longest ago makes room for a new one."""

    __slots__ = ("_copies", "capacity_mb", "used_mb")

    def __init__(self, capacity_mb: int) -> None:
        #: Zero means enough for all.
        self.capacity_mb = capacity_mb
        self.used_mb = 0
        self._copies: dict[ServiceId, int] = {}

    def holds(self, service: ServiceId) -> bool:
        return not self.capacity_mb or service in self._copies

    def fits(self, size_mb: int) -> bool:
        """Is there room for a copy without dropping another?"""
        return self.used_mb + size_mb <= self.capacity_mb

    def use(self, service: ServiceId, size_mb: int) -> None:
        """`service` was read: keep a copy if the node's memory can hold one at all."""
        if size_mb > self.capacity_mb:
            return
        self.used_mb += size_mb - self._copies.pop(service, 0)
        self._copies[service] = size_mb
        while self.used_mb > self.capacity_mb:
            self.used_mb -= self._copies.pop(next(iter(self._copies)))


class GpuNode:
    """The devices of one node, their memory, and the host copies beside them."""

    __slots__ = ("buddy", "host", "id", "memory_free_mb", "residents")

    def __init__(self, node: NodeId, spec: GpuSpec) -> None:
        self.id = node
        self.buddy = Buddy(spec.devices)
        self.memory_free_mb = [spec.memory_mb] * spec.devices
        self.host = HostCopies(spec.host_memory_mb)
        self.residents: list[Residency] = []

    def add(self, residency: Residency) -> None:
        self.residents.append(residency)
        self._occupy(residency, residency.memory_mb)

    def remove(self, residency: Residency) -> None:
        self.residents.remove(residency)
        self._occupy(residency, -residency.memory_mb)

    def evictions(
        self, first: int, size: int, *, memory_mb: int, worth: Worth
    ) -> tuple[list[Residency], float]:
        """The least valuable residents of a free chunk that make room on every device of it."""
        missing = [memory_mb - self.memory_free_mb[d] for d in range(first, first + size)]
        if max(missing) <= 0:
            return [], 0.0
        nearby = [(worth(r), r) for r in self.residents if r.overlaps(first, size)]
        nearby.sort(key=lambda item: (item[0], item[1].used_at, item[1].service, item[1].first))
        chosen = []
        for value, resident in nearby:
            spot = _overlap(resident, first, size)
            if any(missing[d] > 0 for d in spot):
                chosen.append((value, resident))
                for d in spot:
                    missing[d] -= resident.memory_mb
        kept = _spared(chosen, missing, first=first, size=size)
        return [r for _, r in kept], sum(value for value, _ in kept)

    def _occupy(self, residency: Residency, memory_mb: int) -> None:
        for device in range(residency.first, residency.first + residency.degree):
            self.memory_free_mb[device] -= memory_mb
            assert self.memory_free_mb[device] >= 0, f"{self.id}:{device} is short of memory"


def _overlap(residency: Residency, first: int, size: int) -> range:
    """The devices of the chunk that `residency` is on, counted from the chunk's first."""
    start = max(residency.first, first)
    end = min(residency.first + residency.degree, first + size)
    return range(start - first, end - first)


def _spared(
    chosen: list[tuple[float, Residency]], missing: list[int], *, first: int, size: int
) -> list[tuple[float, Residency]]:
    """`chosen` without those that a later, larger eviction made needless; dearest spared first."""
    kept = []
    for value, resident in reversed(chosen):
        spot = _overlap(resident, first, size)
        if all(missing[d] + resident.memory_mb <= 0 for d in spot):
            for d in spot:
                missing[d] += resident.memory_mb
        else:
            kept.append((value, resident))
    return kept[::-1]
