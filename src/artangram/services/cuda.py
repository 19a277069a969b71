"""Devices that are GPUs: the same replicas as on cores, with the model moved to its devices.

- A residency of degree d is one replica that sees d GPUs and no others; how it spreads over them
  (tensor parallel) is its loader's business, which learns d from ARTANGRAM_UNITS. It is one
  process, so nothing of it needs a port or a group of NCCL.
- The zygote never touches CUDA: a fork of a process that has would be broken. Modules that ask
  torch at import whether there is a GPU are answered by NVML, which leaves a process whole.
- A replica may take from each of its GPUs its share of the weights and what running was measured or
  said to need, by torch's own limit; beyond it torch says that it is out of memory, and the replica
  is ended. What CUDA itself takes in every process is counted as resident.
- A restore is a fork, a CUDA context, and a copy from shared memory that is not pinned: to pin it
  would take every new process about as long as the copy.

Never run: no GPU was at hand when it was written against torch 2.13. The conformance suite runs
it with the device named `cpu`, which covers all but what torch does on CUDA.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, Resource
from artangram.sandbox.capabilities import Feature
from artangram.services import wire
from artangram.services.devices import Deployment, Measured
from artangram.services.gpus import VISIBLE, Gpu, seeing, usable_gpus
from artangram.services.host import GPU, ServiceHost
from artangram.services.processes import TORCH, ProcessDevices, a_spawner, a_spec
from artangram.services.replicas import ReplicaSpawner
from artangram.services.service import weights_mb

UNITS = "ARTANGRAM_UNITS"
CONTEXT_MB = 600
"""What the context of a process takes on a GPU beside what torch counts: believed, not measured."""

_CORES_INSTEAD = "write `devices: 1` or more to make devices of cores"
_TORCH = (sys.executable, "-c", "import torch; print(torch.cuda.device_count())")


class CudaDevices(ProcessDevices):
    """See `devices.Kind`. Open it with `opened`."""

    def __init__(
        self, spawner: ReplicaSpawner, gpus: Sequence[Gpu], *, memory_mb: int, device: str = "cuda"
    ) -> None:
        super().__init__(spawner, num_devices=len(gpus), memory_mb=memory_mb)
        self._gpus = gpus
        self._device = device
        self._context_mb = CONTEXT_MB if device == "cuda" else 0

    @classmethod
    async def opened(cls, *, preload: tuple[str, ...] = TORCH) -> "CudaDevices":
        """All GPUs we may use. `BadInput` if the machine has none, or torch cannot use them."""
        gpus = await asyncio.to_thread(_checked_gpus)
        return cls(await a_spawner(preload), gpus, memory_mb=min(gpu.memory_mb for gpu in gpus))

    def specs(self, deployment: Deployment, first: int, degree: int) -> list[wire.ReplicaSpec]:
        environ = seeing(self._gpus[first : first + degree]) | {UNITS: str(degree)}
        whole = deployment.weights_mb
        limit_mb = deployment.limit_mb - whole + -(-whole // degree) - self._context_mb
        spec = structs.replace(a_spec(deployment), limit_mb=max(1, limit_mb))
        return [structs.replace(spec, environ=environ, device=self._device)]

    async def try_out(self, deployment: Deployment, *, first: int) -> Measured:
        """One process told what it used on a GPU; what the copy uses is that of all its GPUs."""
        measured = await super().try_out(deployment, first=first)
        degree = min(deployment.service.degrees)
        stored_mb = weights_mb(deployment.service.weights)
        elsewhere_mb = (stored_mb or measured.used_mb * degree) * (degree - 1) // degree
        used_mb = measured.used_mb + elsewhere_mb
        return structs.replace(measured, used_mb=used_mb, resident_mb=self._context_mb)


def _checked_gpus() -> list[Gpu]:
    gpus = usable_gpus()
    if not gpus:
        fix = f"install the driver of the GPUs, see CUDA_VISIBLE_DEVICES, or {_CORES_INSTEAD}"
        raise BadInput("devices", "this machine has no GPU that nvidia-smi knows", fix)
    found = torch_finds()
    if found < len(gpus):
        fix = f"install a torch built for their CUDA, or {_CORES_INSTEAD}"
        raise BadInput("devices", f"torch finds {found} of {len(gpus)} GPUs", fix)
    return gpus


def torch_finds() -> int:
    """How many GPUs; in a process of its own, for this one must never touch CUDA."""
    said = subprocess.run(_TORCH, capture_output=True, text=True, check=False)
    return int(said.stdout) if said.returncode == 0 else 0


async def cuda_host(node: NodeId, *, resource: Resource = GPU) -> ServiceHost:
    """A host of model services on the GPUs of this machine."""
    kind = await CudaDevices.opened()
    return ServiceHost(node, kind, resource=resource, directory=kind.directory)


def devices_outlook() -> Feature:
    """The GPUs that `devices: {kind: cuda}` would use, or why it finds none."""
    gpus = usable_gpus()
    if not gpus:
        return Feature(
            name="GPUs for services",
            available=False,
            detail="nvidia-smi knows none that we may use; `devices: 2` makes devices of cores",
            how=f"install the driver, and see {VISIBLE}",
        )
    found = torch_finds()
    kinds = ", ".join(sorted({f"{gpu.name} with {gpu.memory_mb} MB" for gpu in gpus}))
    numbers = ",".join(str(gpu.index) for gpu in gpus)
    enough = found >= len(gpus)
    return Feature(
        name="GPUs for services",
        available=enough,
        detail=f"{len(gpus)} ({numbers}): {kinds}; torch finds {found}",
        how="" if enough else "install a torch built for their CUDA",
    )
