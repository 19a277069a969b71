"""What kinds of devices share whose replicas are processes of this node.

A kind says only which processes make up a residency; see `cpu` and `cuda`.
"""

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path

import msgspec
from msgspec import UNSET, structs

from artangram.aio import uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.home import Home
from artangram.services import wire
from artangram.services.cradles import Cradle, FreshCradle, ZygoteCradle
from artangram.services.devices import Deployment, Measured, Replica, ReplicaLost
from artangram.services.nursery import Nursery, ProcessReplica

TORCH = ("torch", "safetensors.torch")
"""What a zygote imports ahead, where it is installed."""


async def a_nursery(preload: tuple[str, ...] = TORCH, *, is_cold: bool = False) -> Nursery:
    """One that listens. `is_cold` starts every replica as an interpreter of its own."""
    home = await asyncio.to_thread(Home.opened)
    cradle: Cradle = FreshCradle() if is_cold else ZygoteCradle(home.directory, preload=preload)
    nursery = Nursery(home, cradle)
    await nursery.open()
    return nursery


class ProcessDevices(ABC):
    """See `devices.Kind`."""

    def __init__(self, nursery: Nursery, *, num_devices: int, memory_mb: int) -> None:
        self.nursery = nursery
        self.num_devices = num_devices
        self.memory_mb = memory_mb

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.num_devices} of {self.memory_mb} MB>"

    @property
    def directory(self) -> Path:
        """Where host copies belong: it goes with the devices, however they end."""
        return self.nursery.directory

    @abstractmethod
    def births(self, deployment: Deployment, first: int, degree: int) -> list[wire.Birth]:
        """The processes of a residency."""

    async def try_out(self, deployment: Deployment, *, first: int) -> Measured:
        """The first of the processes that the least degree has."""
        birth = self.births(deployment, first, min(deployment.service.degrees))[0]
        # What a process had before would be measured, too.
        birth = structs.replace(birth, may_follow=False)
        example = deployment.service.example
        if example is not UNSET:
            birth = structs.replace(birth, example=msgspec.json.encode(example))
        try:
            replica, loaded = await self.nursery.bear(birth)
        except ReplicaLost as error:
            fix = "call it by itself to see why, or give it more memory"
            raise BadInput("loader", str(error), fix) from None
        await uncancelled(replica.end())
        if loaded.is_forkable:
            self.nursery.preload(deployment.service.loader.partition(":")[0])
        return Measured(load_s=loaded.load_s, used_mb=loaded.used_mb, batch_cost=loaded.batch_cost)

    async def restore(self, deployment: Deployment, *, first: int, degree: int) -> list[Replica]:
        births = self.births(deployment, first, degree)
        born = [asyncio.create_task(self._born(deployment, birth)) for birth in births]
        try:
            return list(await asyncio.gather(*born))
        except BaseException:
            await uncancelled(_undo(born))
            raise

    async def aclose(self) -> None:
        await self.nursery.aclose()

    async def _born(self, deployment: Deployment, birth: wire.Birth) -> ProcessReplica:
        try:
            replica, _ = await self.nursery.bear(birth)
        except BadInput as error:  # It loaded when it was deployed: something here has changed.
            raise InfraFailed(f"{deployment.service.id} did not load again: {error}") from error
        return replica


def a_birth(deployment: Deployment) -> wire.Birth:
    """A process that runs anywhere."""
    service = deployment.service
    return wire.Birth(
        loader=service.loader,
        options=msgspec.json.encode(service.options),
        files=deployment.files,
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
