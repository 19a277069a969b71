"""Model services, evict on execution: deployed once, resident on demand, gone in milliseconds.

A `ServiceHost` holds the services of one node on devices of one kind. `deploy` tries a service out
and gives the scheduler its `ServiceSpec`; `using` makes an allocation of devices true.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from artangram.services.cpu import CpuDevice, CpuDevices, cpu_devices, cpu_host
    from artangram.services.cuda import cuda_host
    from artangram.services.devices import Kind, ReplicaLost, ServiceReplica
    from artangram.services.host import HostedService, ServiceHost
    from artangram.services.service import Service, loader_name
    from artangram.services.vllm import vllm_host

__all__ = [
    "CpuDevice",
    "CpuDevices",
    "HostedService",
    "Kind",
    "ReplicaLost",
    "Service",
    "ServiceHost",
    "ServiceReplica",
    "cpu_devices",
    "cpu_host",
    "cuda_host",
    "loader_name",
    "vllm_host",
]

_HOMES = {
    "cpu": ("CpuDevice", "CpuDevices", "cpu_devices", "cpu_host"),
    "cuda": ("cuda_host",),
    "devices": ("Kind", "ServiceReplica", "ReplicaLost"),
    "host": ("HostedService", "ServiceHost"),
    "service": ("Service", "loader_name"),
    "vllm": ("vllm_host",),
}


def __getattr__(name: str) -> Any:
    """Import only what is asked for: a replica starts with as little as it can."""
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"artangram.services.{module}"), name)
    raise AttributeError(f"module 'artangram.services' has no attribute {name!r}")
