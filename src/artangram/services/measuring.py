"""What copies on devices of cores really use, as the kernel counts it: a check on the books.

A copy cannot allocate more than its service may, but it can map more: shared memory is not counted
against its limit. So whether devices hold what they were given is measured.
"""

import asyncio
import contextlib
from collections import defaultdict

from msgspec import Struct

from artangram.core.ids import ServiceId
from artangram.scratchdir import SHARED_MEMORY
from artangram.services.host import ServiceHost
from artangram.services.linux import used_mb
from artangram.services.replicas import ProcessReplica


class DeviceUse(Struct, frozen=True, kw_only=True):
    """One device, and all that is resident there."""

    device: int
    services: tuple[ServiceId, ...]
    used_mb: float
    memory_mb: int

    @property
    def is_over(self) -> bool:
        return self.used_mb > self.memory_mb

    def __str__(self) -> str:
        said = "over its" if self.is_over else "of"
        names = ", ".join(self.services)
        return f"device {self.device} ({names}): {self.used_mb:.0f} MB {said} {self.memory_mb} MB"


async def device_use(host: ServiceHost) -> list[DeviceUse]:
    """The devices that hold something, in order. Counting the pages of a copy takes a while."""
    there: dict[int, list[tuple[ServiceId, int]]] = defaultdict(list)
    for devices, replicas in host.replicas():
        for index, replica in enumerate(replicas):
            if isinstance(replica, ProcessReplica):
                there[devices.first + index].append((devices.service, replica.pid))
    return [
        DeviceUse(
            device=device,
            services=tuple(service for service, _ in found),
            used_mb=await asyncio.to_thread(_together_mb, [pid for _, pid in found]),
            memory_mb=host.kind.memory_mb,
        )
        for device, found in sorted(there.items())
    ]


def _together_mb(pids: list[int]) -> float:
    """With the weights that each has mapped."""
    total_mb = 0.0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # It has just gone.
            total_mb += used_mb(pid, weights=str(SHARED_MEMORY))
    return total_mb
