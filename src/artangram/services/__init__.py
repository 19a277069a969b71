"""Model services, evict on execution: deployed once, resident on demand, gone in milliseconds.

A `ServiceHost` holds the services of one node on devices of one kind. `deploy` tries a service out
and gives the scheduler its `ServiceSpec`; `using` makes an allocation of devices true.
"""

from artangram.services.cpu import CpuDevice, CpuDevices, cpu_devices, cpu_host
from artangram.services.devices import Kind, Replica, ReplicaLost
from artangram.services.host import Deployed, ServiceHost
from artangram.services.service import Service, loader_name

__all__ = [
    "CpuDevice",
    "CpuDevices",
    "Deployed",
    "Kind",
    "Replica",
    "ReplicaLost",
    "Service",
    "ServiceHost",
    "cpu_devices",
    "cpu_host",
    "loader_name",
]
