"""The contract of a kind of devices: how a service comes to be resident, answers and goes.

- A *replica* is one copy of a service in one place. A residency of degree d is one replica on d
  devices or one on each of them; its kind decides.
- `restore` returns when every replica can answer. It raises `InfraFailed` and leaves nothing.
- `end` returns when the memory is free. Ending twice is ending once.
- A replica that dies on its own says why in `lost`, once; what it was asked raises `ReplicaLost`.
"""

import asyncio
from typing import Protocol

from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.services.service import Service


class ReplicaLost(InfraFailed):
    """A replica died, hung or ran out of memory."""


class Answered(Struct, frozen=True, gc=False, tag="answered"):
    """One payload's answer; JSON."""

    body: bytes


class PredictFailed(Struct, frozen=True, gc=False, tag="failed"):
    """The model raised on this payload."""

    problem: str
    is_infra: bool = False
    """It raised `InfraFailed`: something under it is broken, not the payload."""


Answer = Answered | PredictFailed


class Deployment(Struct, frozen=True, kw_only=True):
    """A service with its weights in the node's memory."""

    service: Service
    files: tuple[str, ...]
    """Its weights, where a restore reads them."""
    limit_mb: int
    """What one replica may allocate, weights included; beyond it, it is out of memory."""
    weights_mb: int = 0
    """How much of that is divided among the devices of a higher degree."""


class Measured(Struct, frozen=True, kw_only=True):
    """What loading a service once showed."""

    load_s: float
    used_mb: int
    """Memory it allocated, its weights included."""
    batch_cost: float | None = None
    """What another payload adds to a batch, as a share of one alone; known with an example."""
    restore_s: float | None = None
    """What a restore takes, if the trial was as good as one."""
    resident_mb: int = 0
    """What a copy holds on each of its devices beside weights and work, as long as it is there."""


class ServiceReplica(Protocol):
    """One copy of a service; see the module."""

    lost: asyncio.Future[str]

    async def predict(self, items: list[bytes]) -> list[Answer]:
        """One answer per payload, in order. One batch at a time."""
        ...

    async def end(self) -> None: ...


class Kind(Protocol):
    """The devices of one node, all alike."""

    @property
    def num_devices(self) -> int: ...

    @property
    def memory_mb(self) -> int:
        """Of one device."""
        ...

    async def try_out(self, deployment: Deployment, *, first: int) -> Measured:
        """Load the service once, at its least degree, on the devices from `first` on.

        `BadInput` says what is wrong with it and how to mend it.
        """
        ...

    async def restore(
        self, deployment: Deployment, *, first: int, degree: int
    ) -> list[ServiceReplica]: ...

    async def aclose(self) -> None: ...
