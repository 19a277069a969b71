"""Devices made of cores: a device is a set of cores and a memory budget; real models run on them.

- A residency of degree d is d replicas, one on each device, that answer a batch together: data
  parallel. They map one copy of the weights, so each device holds its share of them.
- A replica runs on the cores of its device, with as many threads as the device has, and may
  allocate no more than its service declared or was measured to need.
"""

import os
from collections.abc import Callable

from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.lease import Devices
from artangram.services import wire
from artangram.services.devices import Deployment
from artangram.services.host import GPU, ServiceHost
from artangram.services.processes import TORCH, ProcessDevices, a_spawner, a_spec
from artangram.services.replicas import ReplicaSpawner


class CpuDevice(Struct, frozen=True, kw_only=True):
    """Cores that run one service at a time, and memory for those that are resident."""

    cores: tuple[int, ...]
    threads: int
    """How many of the cores it uses at a time: all, unless they are those of other devices, too."""
    memory_mb: int


class CpuDevices(ProcessDevices):
    """See `devices.Kind`. Open it with `opened`."""

    def __init__(
        self, devices: tuple[CpuDevice, ...], spawner: ReplicaSpawner, *, is_cold: bool = False
    ) -> None:
        super().__init__(spawner, num_devices=len(devices), memory_mb=devices[0].memory_mb)
        self.devices = devices
        self._is_cold = is_cold

    @classmethod
    async def opened(
        cls,
        devices: tuple[CpuDevice, ...],
        *,
        preload: tuple[str, ...] = TORCH,
        is_cold: bool = False,
    ) -> "CpuDevices":
        """Devices that are ready to be used; `is_cold` starts every replica from nothing."""
        _check(devices)
        return cls(devices, await a_spawner(preload, is_cold=is_cold), is_cold=is_cold)

    def specs(self, deployment: Deployment, first: int, degree: int) -> list[wire.ReplicaSpec]:
        follows = deployment.service.leaves_nothing and not self._is_cold
        spec = structs.replace(a_spec(deployment), may_follow=follows)
        there = self.devices[first : first + degree]
        return [
            structs.replace(spec, cores=device.cores, threads=device.threads) for device in there
        ]


def _check(devices: tuple[CpuDevice, ...]) -> None:
    if not devices:
        raise BadInput("devices", "are empty", "give at least one")
    if len({device.memory_mb for device in devices}) > 1:
        raise BadInput("devices", "differ in memory", "give all the same memory_mb")
    usable = os.sched_getaffinity(0)
    for index, device in enumerate(devices):
        if not device.cores or not usable.issuperset(device.cores):
            problem = f"{device.cores} are not cores of this machine"
            raise BadInput(f"devices[{index}].cores", problem, f"use some of {sorted(usable)}")


def cpu_devices(cores: tuple[int, ...], *, count: int, memory_mb: int) -> tuple[CpuDevice, ...]:
    """`cores` as `count` devices.

    Where there are fewer cores than devices each device has one thread, which runs on any core:
    two busy devices on one core would leave another idle.
    """
    if count < 1 or not cores:
        raise BadInput("devices", f"{count} of {len(cores)} cores", "give at least one of each")
    if len(cores) < count:
        return (CpuDevice(cores=cores, threads=1, memory_mb=memory_mb),) * count
    size = len(cores) // count
    shares = [cores[index * size : (index + 1) * size] for index in range(count)]
    return tuple(CpuDevice(cores=share, threads=size, memory_mb=memory_mb) for share in shares)


async def cpu_host(
    node: NodeId,
    devices: tuple[CpuDevice, ...],
    *,
    resource: Resource = GPU,
    preload: tuple[str, ...] = TORCH,
    on_service_lost: Callable[[Devices], None] = lambda devices: None,
) -> ServiceHost:
    """A host of model services on cores of this machine."""
    kind = await CpuDevices.opened(devices, preload=preload)
    return ServiceHost(
        node,
        kind,
        resource=resource,
        directory=kind.directory,
        on_service_lost=on_service_lost,
    )
