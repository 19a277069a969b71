"""The model services of one node: deployed once, resident on demand, evicted by freeing only.

- `deploy` loads a service once, for real: a service that cannot work is refused there. It is tried
  where most memory is not in use; what is idle there goes, and the scheduler hears of it.
- `using` makes an allocation true. What it evicts is gone before what it restores begins; calls
  that come while a service is restored wait for it; one that is cancelled stops no other.
- The scheduler's books lead. Where they know less than there is (a copy that no order evicted),
  idle copies make room, the least recently used first; memory is never over-committed.
- A service that was lost is restored after a pause that doubles with every loss in a row.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.cluster import GpuSpec, ServiceSpec
from artangram.core.scheduling.lease import Devices
from artangram.services.devices import Deployment, Kind, Measured, ServiceReplica
from artangram.services.hostcopies import HostCopies
from artangram.services.residency import ResidentService
from artangram.services.service import Service, check_room, checked, weights_mb
from artangram.services.slots import DeviceRange, ResidentSlot, ResidentSlots

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0

RUNTIME_MARGIN = 1.5
"""Measured working memory times this is what a copy may use: payloads differ in size."""
LEAST_RUNTIME_MB = 128

UNKNOWN_BATCH_COST = 0.1
"""Believed of a service without an example: what a GPU with room to spare has."""

GPU = Resource("gpu")


class HostedService(Struct, frozen=True, kw_only=True):
    """A service of this node, and what its trial showed."""

    deployment: Deployment
    spec: ServiceSpec
    load_s: float
    """What its loader took the first time."""
    restore_s: float
    """What a restore took, from order to ready."""


class ServiceHost:
    """See the module."""

    def __init__(
        self,
        node: NodeId,
        kind: Kind,
        *,
        resource: Resource = GPU,
        directory: Path | None = None,
        on_service_lost: Callable[[Devices], None] = lambda devices: None,
    ) -> None:
        """Host copies are in `directory`, which goes with `kind`; without one, nothing is kept."""
        self.node = node
        self.kind = kind
        self.resource = resource
        self.on_service_lost = on_service_lost
        self.deployed: dict[ServiceId, HostedService] = {}
        self.num_restores = 0
        self._copies = None if directory is None else HostCopies(directory)
        self._slots = ResidentSlots(kind.num_devices, memory_mb=kind.memory_mb)
        self._losses: dict[ServiceId, int] = {}
        self._deploying = asyncio.Lock()
        self._is_closed = False

    def __repr__(self) -> str:
        resident = len(self.residents())
        return f"<ServiceHost {self.node}: {len(self.deployed)} services, {resident} resident>"

    async def deploy(self, service: Service) -> ServiceSpec:
        """Try `service` out and keep its weights; what the scheduler has to know about it.

        The same again changes nothing; another one of the same name is a `BadInput`.
        """
        service = checked(service, num_devices=self.kind.num_devices, memory_mb=self.kind.memory_mb)
        async with self._deploying:  # Two at once of one name must not both find it free.
            known = self.deployed.get(service.id)
            if known is None:
                known = self.deployed[service.id] = await self._deployed(service)
        if known.deployment.service != service:
            problem = f"{service.id!r} is already deployed as something else"
            raise BadInput("id", problem, "use another id")
        return known.spec

    async def _deployed(self, service: Service) -> HostedService:
        files = service.weights
        if self._copies is not None:
            files = await self._copies.keep(files)
        degree = min(service.degrees)
        first, free_mb = self._slots.least_used(degree)
        await self._clear(first, degree)
        trial = Deployment(service=service, files=files, limit_mb=free_mb)
        measured = await self.kind.try_out(trial, first=first)
        spec = self._spec(service, measured)
        deployment = Deployment(
            service=service,
            files=files,
            limit_mb=spec.weights_mb + spec.runtime_mb,
            weights_mb=spec.weights_mb,
        )
        restore_s = measured.restore_s
        if restore_s is None:
            restore_s = await self._timed_restore(deployment, first=first, degree=degree)
        return HostedService(
            deployment=deployment,
            spec=structs.replace(spec, restore_s=restore_s),
            load_s=measured.load_s,
            restore_s=restore_s,
        )

    async def _clear(self, first: int, degree: int) -> None:
        """Evict what is idle there: a trial gets all memory that is left."""
        idle = self._slots.idle_at(first, degree)
        await self._slots.end(idle)
        for slot in idle:
            self.on_service_lost(slot.devices)

    def gpu_spec(self) -> GpuSpec:
        """This node as the scheduler sees it, with restores as fast as they were measured."""
        spec = GpuSpec(nodes=1, devices=self.kind.num_devices, memory_mb=self.kind.memory_mb)
        deployed = self.deployed.values()
        seconds = sum(each.restore_s for each in deployed)
        if not seconds:
            return spec
        rate = sum(each.spec.weights_mb for each in deployed) / seconds
        return GpuSpec(
            nodes=1, devices=spec.devices, memory_mb=spec.memory_mb, restore_mb_per_s=rate
        )

    def residents(self) -> list[Devices]:
        """What is on the devices, or on its way there."""
        return [slot.devices for slot in self._slots if not slot.is_lost]

    def replicas(self) -> list[tuple[Devices, list[ServiceReplica]]]:
        """What has been restored, with its processes; to look at."""
        return [
            (slot.devices, residency.replicas)
            for slot in self._slots
            if (residency := slot.residency) is not None
        ]

    @asynccontextmanager
    async def using(self, devices: Devices) -> AsyncIterator[ResidentService]:
        """The service of `devices`, resident there while the block lasts.

        `InfraFailed` if it cannot be restored or is lost meanwhile.
        """
        slot = self._slot(devices)
        slot.num_users += 1
        try:
            yield await _restored_by(slot)
            self._losses.pop(devices.service, None)
        finally:
            slot.num_users -= 1

    async def free(self, devices: Devices) -> None:
        """Evict what `devices` names; return when its memory is free."""
        await self._slots.end(self._slots.named(devices))

    async def aclose(self) -> None:
        """End everything and give the devices back."""
        self._is_closed = True
        await self._slots.end(list(self._slots))
        await self.kind.aclose()

    def _slot(self, devices: Devices) -> ResidentSlot:
        """Where the service is or will be. Nothing else runs meanwhile: orders keep their order."""
        place = DeviceRange(devices.service, devices.first, devices.degree)
        slot = self._slots.get(place)
        if slot is None or slot.is_lost or devices.restored:
            slot = self._restore(place, devices)
        self._slots.touch(place)
        return slot

    def _restore(self, place: DeviceRange, devices: Devices) -> ResidentSlot:
        deployed = self.deployed.get(devices.service)
        if deployed is None or self._is_closed:
            why = "is closed" if self._is_closed else f"has no service {devices.service!r}"
            raise InfraFailed(f"{self.node} {why}")
        slot = ResidentSlot(devices, deployed.spec)
        going = self._slots.make_room(place, slot)
        slot.restoring = asyncio.create_task(self._restored(slot, deployed, going))
        slot.restoring.add_done_callback(partial(self._on_restored, slot))
        return slot

    async def _restored(
        self, slot: ResidentSlot, deployed: HostedService, going: list[ResidentSlot]
    ) -> ResidentService:
        await self._slots.end(going)
        losses = self._losses.get(slot.devices.service, 0)
        if losses:
            await asyncio.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (losses - 1)))
        self.num_restores += 1
        replicas = await self.kind.restore(
            deployed.deployment, first=slot.devices.first, degree=slot.devices.degree
        )
        service = deployed.deployment.service
        return ResidentService(service, replicas, on_lost=lambda reason: self._lose(slot))

    def _on_restored(self, slot: ResidentSlot, restoring: "asyncio.Task[ResidentService]") -> None:
        if not restoring.cancelled() and restoring.exception() is not None:
            self._lose(slot)

    def _lose(self, slot: ResidentSlot) -> None:
        slot.is_lost = True
        service = slot.devices.service
        self._losses[service] = self._losses.get(service, 0) + 1
        if not self._is_closed:
            self.on_service_lost(slot.devices)

    async def _timed_restore(self, deployment: Deployment, *, first: int, degree: int) -> float:
        clock = asyncio.get_running_loop().time
        began = clock()
        replicas = await self.kind.restore(deployment, first=first, degree=degree)
        restore_s = clock() - began
        await asyncio.gather(*(replica.end() for replica in replicas))
        return restore_s

    def _spec(self, service: Service, measured: Measured) -> ServiceSpec:
        memory_mb = self.kind.memory_mb
        stored_mb = weights_mb(service.weights)
        weights = stored_mb or measured.used_mb
        margin = round(RUNTIME_MARGIN * (measured.used_mb - weights))
        runtime_mb = max(LEAST_RUNTIME_MB, margin)
        if service.runtime_mb is not None:
            runtime_mb = service.runtime_mb
        possible = [degree for degree in service.degrees if degree <= self.kind.num_devices]
        weights += measured.resident_mb * max(possible)
        check_room(weights, max(possible), memory_mb=memory_mb, runtime_mb=runtime_mb)
        return ServiceSpec(
            pool=self.resource,
            weights_mb=weights,
            degrees=service.degrees,
            runtime_mb=runtime_mb,
            batch=service.batch,
            batch_cost=_batch_cost(service, measured),
        )


def _batch_cost(service: Service, measured: Measured) -> float:
    for cost in (service.batch_cost, measured.batch_cost):
        if cost is not None:
            return cost
    return UNKNOWN_BATCH_COST


async def _restored_by(slot: ResidentSlot) -> ResidentService:
    """Wait for a restore. A cancelled caller must not stop it: others may wait for it, too."""
    try:
        return await asyncio.shield(slot.restoring)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if slot.restoring.cancelled() and caller is not None and not caller.cancelling():
            raise InfraFailed(
                f"{slot.devices.service} was evicted while it was being restored"
            ) from None
        raise
