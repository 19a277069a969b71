"""Devices that hold nothing: a service is a Python function, and time is what the test says.

For tests of what is above: batching, losses, the order of evictions. It keeps the contract of
`devices.Kind`, and the conformance suite proves it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from artangram.core.errors import BadInput, InfraFailed
from artangram.services.devices import Answer, Deployment, Measured, ReplicaLost, ServiceReplica
from artangram.services.loading import answers

Model = Callable[[list[Any]], list[Any]]


class FakeReplica:
    """See `devices.ServiceReplica`."""

    def __init__(self, devices: "FakeDevices", predict: Model, spot: str) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.batches: list[int] = []
        self._devices = devices
        self._predict = predict
        self._spot = spot
        self._dead = asyncio.Event()
        self._reason = ""

    async def predict(self, items: list[bytes]) -> list[Answer]:
        if self._reason:
            raise ReplicaLost(self._reason)
        self.batches.append(len(items))
        try:
            async with asyncio.timeout(self._devices.predict_s):
                await self._dead.wait()
        except TimeoutError:
            return answers(self._predict, items)
        raise ReplicaLost(self._reason)

    def crash(self, reason: str = "its process was killed by signal 9") -> None:
        """Die, as a process does."""
        self._reason = reason
        self._dead.set()
        if not self.lost.done():
            self.lost.set_result(reason)

    async def end(self) -> None:
        self.lost.cancel()
        self._reason = self._reason or "it was ended"
        self._dead.set()
        await asyncio.sleep(self._devices.end_s)
        if self._spot in self._devices.living:
            self._devices.living.remove(self._spot)
            self._devices.log.append(f"end {self._spot}")


class FakeDevices:
    """See `devices.Kind`. `log` tells in which order things came and went."""

    def __init__(
        self, num_devices: int = 4, *, memory_mb: int = 100, models: dict[str, Model] | None = None
    ) -> None:
        self.num_devices = num_devices
        self.memory_mb = memory_mb
        self.models = models or {}
        self.restore_s = 0.1
        self.predict_s = 0.01
        self.end_s = 0.001
        self.used_mb = 1
        self.batch_cost: float | None = None
        self.failures = 0
        """Have this number of restores fail from now on."""
        self.log: list[str] = []
        self.living: list[str] = []
        self.tried: list[tuple[int, int]] = []
        """Where services were tried out, and with how much memory."""
        self.replicas: list[FakeReplica] = []

    async def try_out(self, deployment: Deployment, *, first: int) -> Measured:
        name = deployment.service.loader
        if name not in self.models:
            raise BadInput("loader", f"{name} cannot be imported", "correct the name")
        self.tried.append((first, deployment.limit_mb))
        await asyncio.sleep(self.restore_s)
        return Measured(load_s=self.restore_s, used_mb=self.used_mb, batch_cost=self.batch_cost)

    async def restore(
        self, deployment: Deployment, *, first: int, degree: int
    ) -> list[ServiceReplica]:
        await asyncio.sleep(self.restore_s)
        if self.failures:
            self.failures -= 1
            raise InfraFailed("it did not load")
        service = deployment.service
        started = []
        for index in range(degree):
            spot = f"{service.id}@{first + index}"
            self.log.append(f"restore {spot}")
            self.living.append(spot)
            started.append(FakeReplica(self, self.models[service.loader], spot))
        self.replicas += started
        return list(started)

    async def aclose(self) -> None:
        for replica in self.replicas:
            await replica.end()


def echo(payloads: list[Any]) -> list[Any]:
    """A model that answers what it was asked; raises on `{"raise": text}`."""
    for payload in payloads:
        if isinstance(payload, dict) and "raise" in payload:
            raise ValueError(payload["raise"])
    return [msgspec.to_builtins(payload) for payload in payloads]
