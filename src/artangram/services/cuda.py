"""Devices that are GPUs: the same replicas as on cores, with the model moved to its devices.

- A residency of degree d is one replica that sees d GPUs and no others; how it spreads over them
  (tensor parallel) is its loader's business, which learns d from ARTANGRAM_UNITS.
- The zygote never touches CUDA: a fork of a process that has would be broken.
- A replica may take from its GPUs what its service was measured or said to need, by torch's own
  limit; beyond it torch says that it is out of memory, and the replica is ended.

Never run: no GPU was at hand when it was written against torch 2.13. The conformance suite runs
it with the device named `cpu`, which covers all but what torch does on CUDA.
"""

import asyncio
import subprocess
import sys

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, Resource
from artangram.services import wire
from artangram.services.devices import Deployment
from artangram.services.host import GPU, ServiceHost
from artangram.services.nursery import Nursery
from artangram.services.processes import TORCH, ProcessDevices, a_birth, a_nursery

UNITS = "ARTANGRAM_UNITS"

_CORES_INSTEAD = "write `devices: 1` or more to make devices of cores"
_TORCH = (sys.executable, "-c", "import torch; print(torch.cuda.device_count())")
_ASK = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


class CudaDevices(ProcessDevices):
    """See `devices.Kind`. Open it with `opened`."""

    def __init__(
        self, nursery: Nursery, *, num_devices: int, memory_mb: int, device: str = "cuda"
    ) -> None:
        super().__init__(nursery, num_devices=num_devices, memory_mb=memory_mb)
        self._device = device

    @classmethod
    async def opened(cls, *, preload: tuple[str, ...] = TORCH) -> "CudaDevices":
        """All GPUs of this node. `BadInput` if it has none, or torch cannot use them."""
        sizes = await asyncio.to_thread(gpu_memory_mb)
        await asyncio.to_thread(_check_torch, len(sizes))
        return cls(await a_nursery(preload), num_devices=len(sizes), memory_mb=min(sizes))

    def births(self, deployment: Deployment, first: int, degree: int) -> list[wire.Birth]:
        visible = ",".join(str(index) for index in range(first, first + degree))
        environ = {"CUDA_VISIBLE_DEVICES": visible, UNITS: str(degree)}
        birth = a_birth(deployment)
        return [structs.replace(birth, environ=environ, device=self._device)]


def gpu_memory_mb() -> list[int]:
    """Of each GPU of this node."""
    try:
        said = subprocess.run(_ASK, capture_output=True, text=True, check=True).stdout
        sizes = [int(line) for line in said.splitlines()]
    except (OSError, ValueError, subprocess.CalledProcessError):
        sizes = []
    if not sizes:
        fix = f"install the driver of the GPUs, or {_CORES_INSTEAD}"
        raise BadInput("devices", "this machine has no GPU that nvidia-smi knows", fix)
    return sizes


def _check_torch(num_devices: int) -> None:
    """In a process of its own: this one must never touch CUDA, for its zygote forks."""
    said = subprocess.run(_TORCH, capture_output=True, text=True, check=False)
    found = int(said.stdout) if said.returncode == 0 else 0
    if found < num_devices:
        fix = f"install a torch built for their CUDA, or {_CORES_INSTEAD}"
        raise BadInput("devices", f"torch finds {found} of {num_devices} GPUs", fix)


async def cuda_host(node: NodeId, *, resource: Resource = GPU) -> ServiceHost:
    """A host of model services on the GPUs of this machine."""
    kind = await CudaDevices.opened()
    return ServiceHost(node, kind, resource=resource, directory=kind.directory)
