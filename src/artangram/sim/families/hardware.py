"""Pools that several families share."""

from artangram.core.errors import BadInput
from artangram.core.scheduling.cluster import GpuSpec, QuotaSpec, ServiceSpec
from artangram.sim.families.draw import GPU

NODE_DEVICES = 8
DEVICE_MEMORY_MB = 80_000
HOST_MEMORY_MB = 3_000_000
RUNTIME_MB = 8_000
"""What a service needs on each device for activations and cache, beside its weights."""
DISPATCH_S = 0.02


def gpu_pool(gpus: int, *, restore_gb_per_s: float) -> GpuSpec:
    """Equal nodes: of eight devices, or all of them in one when they are few, or of four."""
    devices = NODE_DEVICES
    if gpus % devices:
        devices = gpus if gpus < 2 * NODE_DEVICES else 4
    if gpus % devices:
        fix = "give a multiple of 4, or fewer than 16"
        raise BadInput("gpus", f"{gpus} do not make equal nodes", fix)
    return GpuSpec(
        nodes=gpus // devices,
        devices=devices,
        memory_mb=DEVICE_MEMORY_MB,
        host_memory_mb=HOST_MEMORY_MB,
        restore_mb_per_s=restore_gb_per_s * 1000,
        overhead_s=DISPATCH_S,
    )


def model_service(weights_gb: float, degrees: tuple[int, ...], *, on: GpuSpec) -> ServiceSpec:
    """A service at those of `degrees` that a node has devices for."""
    possible = tuple(degree for degree in degrees if degree <= on.devices)
    if not possible:
        problem = f"a model that needs {degrees[0]} does not fit on {on.devices}"
        raise BadInput("gpus", problem, f"give {degrees[0]} at least")
    return ServiceSpec(
        pool=GPU, weights_mb=round(weights_gb * 1000), degrees=possible, runtime_mb=RUNTIME_MB
    )


def api_quota(calls_per_minute: int, *, concurrency: int) -> QuotaSpec:
    return QuotaSpec(
        concurrency=concurrency, limit=calls_per_minute, window_s=60.0, overhead_s=DISPATCH_S
    )
