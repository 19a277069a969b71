"""What is common to the kinds of devices whose replicas are processes of this node.

A kind says only which processes make up a residency; see `cpu` and `cuda`.
"""

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path

import msgspec
from msgspec import UNSET, structs

from artangram.aio import uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.scratchdir import ScratchDir
from artangram.services import wire
from artangram.services.devices import Deployment, Measured, ReplicaLost, ServiceReplica
from artangram.services.replicas import ProcessReplica, ReplicaSpawner

TORCH = ("torch", "safetensors.torch")
"""What a zygote imports ahead, where it is installed."""


async def a_spawner(preload: tuple[str, ...] = TORCH, *, is_cold: bool = False) -> ReplicaSpawner:
    """A spawner with a directory. `is_cold` starts every replica in an interpreter of its own."""
    scratch = await asyncio.to_thread(ScratchDir.opened)
    return ReplicaSpawner(scratch, preload=preload, is_cold=is_cold)


class ProcessDevices(ABC):
    """See `devices.Kind`."""

    def __init__(self, spawner: ReplicaSpawner, *, num_devices: int, memory_mb: int) -> None:
        self.spawner = spawner
        self.num_devices = num_devices
        self.memory_mb = memory_mb

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.num_devices} of {self.memory_mb} MB>"

    @property
    def directory(self) -> Path:
        """Where host copies belong: it goes with the devices, however they end."""
        return self.spawner.directory

    @abstractmethod
    def specs(self, deployment: Deployment, first: int, degree: int) -> list[wire.ReplicaSpec]:
        """The processes of a residency."""

    async def try_out(self, deployment: Deployment, *, first: int) -> Measured:
        """The first of the processes that the least degree has."""
        spec = self.specs(deployment, first, min(deployment.service.degrees))[0]
        # What a process had before would be measured, too.
        spec = structs.replace(spec, may_follow=False)
        example = deployment.service.example
        if example is not UNSET:
            spec = structs.replace(spec, example=msgspec.json.encode(example))
        try:
            replica, loaded = await self.spawner.spawn(spec)
        except ReplicaLost as error:
            fix = "call it by itself to see why, or give it more memory"
            raise BadInput("loader", str(error), fix) from None
        await uncancelled(replica.end())
        if loaded.is_forkable:
            self.spawner.preload(deployment.service.loader.partition(":")[0])
        return Measured(load_s=loaded.load_s, used_mb=loaded.used_mb, batch_cost=loaded.batch_cost)

    async def restore(
        self, deployment: Deployment, *, first: int, degree: int
    ) -> list[ServiceReplica]:
        specs = self.specs(deployment, first, degree)
        started = [asyncio.create_task(self._started(deployment, spec)) for spec in specs]
        try:
            return list(await asyncio.gather(*started))
        except BaseException:
            await uncancelled(_undo(started))
            raise

    async def aclose(self) -> None:
        await self.spawner.aclose()

    async def _started(self, deployment: Deployment, spec: wire.ReplicaSpec) -> ProcessReplica:
        try:
            replica, _ = await self.spawner.spawn(spec)
        except BadInput as error:  # It loaded when it was deployed: something here has changed.
            raise InfraFailed(f"{deployment.service.id} did not load again: {error}") from error
        return replica


def a_spec(deployment: Deployment) -> wire.ReplicaSpec:
    """A process that runs anywhere."""
    service = deployment.service
    return wire.ReplicaSpec(
        loader=service.loader,
        options=msgspec.json.encode(service.options),
        files=deployment.files,
        limit_mb=deployment.limit_mb,
        batch=service.batch,
    )


async def _undo(specs: "list[asyncio.Task[ProcessReplica]]") -> None:
    """End the replicas that started before another one failed."""
    for spec in specs:
        spec.cancel()
    await asyncio.wait(specs)
    started = [spec.result() for spec in specs if not spec.cancelled() and not spec.exception()]
    await asyncio.gather(*(replica.end() for replica in started))
