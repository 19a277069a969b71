"""Which GPUs of this machine we may use, and the environment that shows a process some of them.

- Asked of `nvidia-smi`, which touches no CUDA: this process forks a zygote, and a fork of a process
  that has touched it would be broken.
- `CUDA_VISIBLE_DEVICES` of our own environment is obeyed, as a batch system sets it: numbers or the
  beginnings of UUIDs, up to the first that is unknown. Slices of a GPU (MIG) are not for us.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence

from msgspec import Struct

VISIBLE = "CUDA_VISIBLE_DEVICES"
_ASK = ("nvidia-smi", "--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits")


class Gpu(Struct, frozen=True):
    """One GPU, as `nvidia-smi` numbers it: by its place on the bus."""

    index: int
    uuid: str
    memory_mb: int
    name: str


def usable_gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """Those of this machine that `environ` lets us see, in its order."""
    try:
        said = subprocess.run(_ASK, capture_output=True, text=True, check=True).stdout
        present = [_gpu(line) for line in said.splitlines()]
    except (OSError, ValueError, subprocess.CalledProcessError):
        return []
    named = environ.get(VISIBLE)
    return present if named is None else _named(named, present)


def seeing(gpus: Sequence[Gpu]) -> dict[str, str]:
    """What the environment of a process says that sees these and no others."""
    return {
        VISIBLE: ",".join(str(gpu.index) for gpu in gpus),
        # CUDA's own order puts the fastest first; the numbers are of the bus.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def _gpu(line: str) -> Gpu:
    index, uuid, memory_mb, name = (part.strip() for part in line.split(",", 3))
    return Gpu(int(index), uuid, int(memory_mb), name)


def _named(text: str, present: list[Gpu]) -> list[Gpu]:
    found: list[Gpu] = []
    for name in (part.strip() for part in text.split(",")):
        match = [gpu for gpu in present if name in (str(gpu.index), gpu.uuid)]
        if not match and name.startswith("GPU-"):
            match = [gpu for gpu in present if gpu.uuid.startswith(name)]
        if len(match) != 1 or match[0] in found:
            break  # As CUDA does: what comes after is not seen.
        found += match
    return found
