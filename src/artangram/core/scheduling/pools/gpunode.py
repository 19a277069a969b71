"""The books of one GPU node: its free devices, their memory, what is resident, and host copies.

- A *residency* is a service of one degree on one aligned run of devices. Another degree or position
  is another residency: it has other shards.
- Several services may be resident on the same devices while their memory fits: the weights of all,
  and the working memory of the one that needs most, since only one of them runs at a time.
"""

from collections.abc import Callable

from artangram.core.ids import NodeId, ServiceId
from artangram.core.scheduling.cluster import GpuSpec
from artangram.core.scheduling.pools.buddy import Buddy


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
        "runtime_mb",
        "service",
        "used_at",
    )

    def __init__(self, service: ServiceId, *, node: NodeId, first: int, degree: int) -> None:
        self.service = service
        self.node = node
        self.first = first
        self.degree = degree
        #: On each of its devices: weights all the time, working memory while it runs.
        self.memory_mb = 0
        self.runtime_mb = 0
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


class HostCopyBook:
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

    __slots__ = ("buddy", "host", "id", "memory_mb", "residents")

    def __init__(self, node: NodeId, spec: GpuSpec) -> None:
        self.id = node
        self.buddy = Buddy(spec.devices)
        self.memory_mb = spec.memory_mb
        self.host = HostCopyBook(spec.host_memory_mb)
        self.residents: list[Residency] = []

    def add(self, residency: Residency) -> None:
        self.residents.append(residency)
        place = range(residency.first, residency.first + residency.degree)
        short = [device for device in place if self.used_mb(device) > self.memory_mb]
        assert not short, f"{self.id} is short of memory on {short}"

    def remove(self, residency: Residency) -> None:
        self.residents.remove(residency)

    def used_mb(self, device: int) -> int:
        """Weights of all residents of a device, and the most working memory of one."""
        here = [r for r in self.residents if r.overlaps(device, 1)]
        return sum(r.memory_mb for r in here) + max((r.runtime_mb for r in here), default=0)

    def evictions(
        self, first: int, size: int, *, memory_mb: int, runtime_mb: int, worth: Worth
    ) -> tuple[list[Residency], float]:
        """The least valuable residents of a free chunk that make room on every device of it."""
        # Beside a newcomer, a resident takes its weights and what working memory it needs more.
        # Counted for each, though one needs it at a time: too careful at worst, never too bold.
        taken = {
            r: r.memory_mb + max(0, r.runtime_mb - runtime_mb)
            for r in self.residents
            if r.overlaps(first, size)
        }
        missing = [memory_mb + runtime_mb - self.memory_mb] * size
        for resident, mb in taken.items():
            for d in _overlap(resident, first, size):
                missing[d] += mb
        if max(missing) <= 0:
            return [], 0.0
        ranked = [(worth(r), r) for r in taken]
        ranked.sort(key=lambda item: (item[0], item[1].used_at, item[1].service, item[1].first))
        chosen = []
        for value, resident in ranked:
            spot = _overlap(resident, first, size)
            if any(missing[d] > 0 for d in spot):
                chosen.append((value, resident))
                for d in spot:
                    missing[d] -= taken[resident]
        kept = []
        for value, resident in reversed(chosen):
            # A later, larger eviction may have made it needless; the dearest are spared first.
            spot = _overlap(resident, first, size)
            if all(missing[d] + taken[resident] <= 0 for d in spot):
                for d in spot:
                    missing[d] += taken[resident]
            else:
                kept.append((value, resident))
        return [r for _, r in reversed(kept)], sum(value for value, _ in kept)


def _overlap(residency: Residency, first: int, size: int) -> range:
    """The devices of the chunk that `residency` is on, counted from the chunk's first."""
    start = max(residency.first, first)
    end = min(residency.first + residency.degree, first + size)
    return range(start - first, end - first)
