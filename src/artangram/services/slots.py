"""What is where on the devices of a node, really: the host's own books.

They follow the scheduler's. Every change is made before anything is awaited, so that orders take
effect in the order they were given; the deeds follow, each after those it depends on.
"""

import asyncio
from collections.abc import Iterator

from msgspec import Struct

from artangram.aio import uncancelled
from artangram.core.errors import InfraFailed
from artangram.core.ids import ServiceId
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.core.scheduling.lease import Devices
from artangram.services.residency import ResidentService


class DeviceRange(Struct, frozen=True):
    """A service on a run of devices."""

    service: ServiceId
    first: int
    degree: int


class ResidentSlot:
    """A service that is resident at a place, or on its way there."""

    def __init__(self, devices: Devices, spec: ServiceSpec) -> None:
        self.devices = devices
        self.shard_mb = spec.shard_mb(devices.degree)
        self.runtime_mb = spec.runtime_mb
        self.restoring: asyncio.Task[ResidentService]
        self.num_users = 0
        self.is_lost = False

    def __repr__(self) -> str:
        at = self.devices
        return f"<Slot {at.service} on {at.first}+{at.degree}: {self.num_users} users>"

    @property
    def is_idle(self) -> bool:
        return self.is_lost or not self.num_users

    @property
    def residency(self) -> ResidentService | None:
        """What is there now; `None` while it is on its way, or lost."""
        task = self.restoring
        if self.is_lost or not task.done() or task.cancelled() or task.exception():
            return None
        return task.result()

    def overlaps(self, first: int, degree: int) -> bool:
        here = self.devices
        return here.first < first + degree and first < here.first + here.degree

    async def end(self) -> None:
        """Free its memory, whether it is there or on its way."""
        self.restoring.cancel()
        await asyncio.wait({self.restoring})
        if not self.restoring.cancelled() and self.restoring.exception() is None:
            await self.restoring.result().end()


class ResidentSlots:
    """All slots of a node, those used longest ago first."""

    def __init__(self, num_devices: int, *, memory_mb: int) -> None:
        self._num_devices = num_devices
        self._memory_mb = memory_mb
        self._slots: dict[DeviceRange, ResidentSlot] = {}

    def __iter__(self) -> Iterator[ResidentSlot]:
        return iter(self._slots.values())

    def get(self, place: DeviceRange) -> ResidentSlot | None:
        return self._slots.get(place)

    def touch(self, place: DeviceRange) -> None:
        """It is used now."""
        self._slots[place] = self._slots.pop(place)

    def named(self, devices: Devices) -> list[ResidentSlot]:
        """The slots that `devices` says must be freed."""
        return [
            slot
            for slot in self
            if slot.devices.service in devices.evicted
            and slot.overlaps(devices.first, devices.degree)
        ]

    def least_used(self, degree: int) -> tuple[int, int]:
        """Where `degree` devices in a row have the most unused memory, and how much."""
        used = [slot for slot in self if not slot.is_idle]

        def free_mb(first: int) -> int:
            return self._memory_mb - max(
                sum(slot.shard_mb + slot.runtime_mb for slot in used if slot.overlaps(device, 1))
                for device in range(first, first + degree)
            )

        firsts = range(0, self._num_devices - degree + 1, degree)
        first = max(firsts, key=lambda first: (free_mb(first), -len(self.idle_at(first, degree))))
        return first, free_mb(first)

    def idle_at(self, first: int, degree: int) -> list[ResidentSlot]:
        """What is resident on these devices and not in use."""
        return [slot for slot in self if slot.is_idle and slot.overlaps(first, degree)]

    def make_room(self, place: DeviceRange, slot: ResidentSlot) -> list[ResidentSlot]:
        """Put `slot` at `place`; the slots that have to end before it may begin.

        `InfraFailed` if what is in use leaves too little memory.
        """
        if place.first + place.degree > self._num_devices:
            raise InfraFailed(f"{place.service}: there are only {self._num_devices} devices")
        going = self.named(slot.devices)
        old = self._slots.get(place)
        if old is not None and old not in going:
            going.append(old)  # The scheduler no longer counts it, or it was lost.
        staying = [each for each in self if each not in going and self._meet(each, slot)]
        while (device := self._short([*staying, slot], slot)) is not None:
            idle = [each for each in staying if each.is_idle and each.overlaps(device, 1)]
            if not idle:
                raise InfraFailed(f"{place.service} has no room: {staying} are in use")
            going.append(idle[0])
            staying.remove(idle[0])
        self._forget(going)
        self._slots[place] = slot
        return going

    async def end(self, slots: list[ResidentSlot]) -> None:
        """Free the memory of `slots`, all of it even if the caller goes away."""
        self._forget(slots)
        if slots:
            await uncancelled(_all_ended(slots))

    def _forget(self, slots: list[ResidentSlot]) -> None:
        for slot in slots:
            place = DeviceRange(slot.devices.service, slot.devices.first, slot.devices.degree)
            if self._slots.get(place) is slot:
                del self._slots[place]

    def _meet(self, one: ResidentSlot, other: ResidentSlot) -> bool:
        return one.overlaps(other.devices.first, other.devices.degree)

    def _short(self, slots: list[ResidentSlot], newcomer: ResidentSlot) -> int | None:
        """A device of the newcomer that cannot hold all weights and the most working memory."""
        first = newcomer.devices.first
        for device in range(first, first + newcomer.devices.degree):
            here = [slot for slot in slots if slot.overlaps(device, 1)]
            weights_mb = sum(slot.shard_mb for slot in here)
            if weights_mb + max(slot.runtime_mb for slot in here) > self._memory_mb:
                return device
        return None


async def _all_ended(slots: list[ResidentSlot]) -> None:
    await asyncio.gather(*(slot.end() for slot in slots))
