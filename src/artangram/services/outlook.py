"""What model services would run on here: for `artangram doctor`."""

from artangram.sandbox.protocol import Feature
from artangram.services.cuda import torch_finds
from artangram.services.gpus import VISIBLE, usable_gpus


def devices_outlook() -> Feature:
    """The GPUs that `devices: {kind: cuda}` would use, or why there are none."""
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
