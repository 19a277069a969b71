"""Devices made of cores: a device is a set of cores and a memory budget; real models run on them.

- A residency of degree d is d replicas, one on each device, that answer a batch together: data
  parallel. They map one copy of the weights, so each device holds its share of them.
- A replica runs on the cores of its device, with as many threads, and may allocate no more than
  its service declared or was measured to need.
- A replica is a fork of a zygote that has imported torch, or, `cold`, an interpreter of its own.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct

from artangram.aio import uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import NodeId, Resource
from artangram.core.lease import Devices
from artangram.services import wire
from artangram.services.cradles import Cradle, FreshCradle, ZygoteCradle
from artangram.services.devices import Deployment, Measured, Replica, ReplicaLost
from artangram.services.host import GPU, ServiceHost
from artangram.services.nursery import Nursery, ProcessReplica, new_directory

TORCH = ("torch", "safetensors.torch")
"""What a zygote imports ahead, where it is installed."""


class CpuDevice(Struct, frozen=True, kw_only=True):
    """Cores that run one service at a time, and memory for those that are resident."""

    cores: tuple[int, ...]
    memory_mb: int


class CpuDevices:
    """See `devices.Kind`. Open it with `opened`."""

    def __init__(self, devices: tuple[CpuDevice, ...], nursery: Nursery) -> None:
        self.devices = devices
        self.nursery = nursery

    def __repr__(self) -> str:
        return f"<CpuDevices: {len(self.devices)} of {self.memory_mb} MB>"

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
        directory = await asyncio.to_thread(new_directory)
        cradle: Cradle = FreshCradle() if is_cold else ZygoteCradle(directory, preload=preload)
        nursery = Nursery(directory, cradle)
        await nursery.open()
        return cls(devices, nursery)

    @property
    def directory(self) -> Path:
        """Where host copies belong: it goes with the devices, however they end."""
        return self.nursery.directory

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @property
    def memory_mb(self) -> int:
        return self.devices[0].memory_mb

    async def try_out(self, deployment: Deployment) -> Measured:
        birth = self._birth(deployment, 0)
        example = deployment.service.example
        if example is not UNSET:
            birth = msgspec.structs.replace(birth, example=msgspec.json.encode(example))
        try:
            replica, loaded = await self.nursery.bear(birth)
        except ReplicaLost as error:
            fix = "call it by itself to see why, or give it more memory"
            raise BadInput("loader", str(error), fix) from None
        await uncancelled(replica.end())
        if loaded.is_forkable:
            self.nursery.cradle.preload(deployment.service.loader.partition(":")[0])
        return Measured(load_s=loaded.load_s, used_mb=loaded.used_mb)

    async def restore(self, deployment: Deployment, *, first: int, degree: int) -> list[Replica]:
        births = [
            asyncio.create_task(self._born(deployment, first + index)) for index in range(degree)
        ]
        try:
            return list(await asyncio.gather(*births))
        except BaseException:
            await uncancelled(_undo(births))
            raise

    async def aclose(self) -> None:
        await self.nursery.aclose()

    async def _born(self, deployment: Deployment, device: int) -> ProcessReplica:
        try:
            replica, _ = await self.nursery.bear(self._birth(deployment, device))
        except BadInput as error:  # It loaded when it was deployed: something here has changed.
            raise InfraFailed(f"{deployment.service.id} did not load again: {error}") from error
        return replica

    def _birth(self, deployment: Deployment, device: int) -> wire.Birth:
        service = deployment.service
        return wire.Birth(
            number=0,
            host="",
            loader=service.loader,
            options=msgspec.json.encode(service.options),
            files=deployment.files,
            cores=self.devices[device].cores,
            limit_mb=deployment.limit_mb,
            batch=service.batch,
        )


async def _undo(births: "list[asyncio.Task[ProcessReplica]]") -> None:
    """End what was born before something else failed."""
    for birth in births:
        birth.cancel()
    await asyncio.wait(births)
    born = [birth.result() for birth in births if not birth.cancelled() and not birth.exception()]
    await asyncio.gather(*(replica.end() for replica in born))


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
    """`cores` as `count` devices; where there are fewer cores than devices they are shared."""
    if count < 1 or not cores:
        raise BadInput("devices", f"{count} of {len(cores)} cores", "give at least one of each")
    size = max(1, len(cores) // count)
    starts = [index * size % (len(cores) - size + 1) for index in range(count)]
    return tuple(
        CpuDevice(cores=cores[start : start + size], memory_mb=memory_mb) for start in starts
    )


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
