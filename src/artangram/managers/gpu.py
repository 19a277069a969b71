"""Makes leases of devices real: frees what goes, restores what comes, then asks the service.

A call begins when its batch begins: neither a restore nor the batch before counts as its run time,
for estimates and time limits alike.
"""

from collections.abc import Callable, Mapping

from artangram.core.errors import InfraFailed
from artangram.core.ids import NodeId
from artangram.core.scheduling.lease import Devices, Lease
from artangram.managers.call import Call, CallResult, ServiceCall
from artangram.managers.calls import CallProgress
from artangram.services.host import ServiceHost


class GpuManager:
    """See `calls.Carrier`."""

    def __init__(self, hosts: Mapping[NodeId, ServiceHost]) -> None:
        self.hosts = dict(hosts)

    def __repr__(self) -> str:
        return f"<GpuManager: {list(self.hosts.values())}>"

    async def carry_out(self, lease: Lease, call: Call, *, progress: CallProgress) -> CallResult:
        assert isinstance(call, ServiceCall), f"{call} is not for a model service"
        devices, *loans = devices_of(lease)
        for loan in loans:
            await self._host(loan).free(loan)
        async with self._host(devices).using(devices) as residency:
            return CallResult(body=await residency.ask(call.body, on_begun=progress.began))

    def on_service_lost(self, tell: Callable[[Devices], None]) -> None:
        """From now on `tell` hears of every service that died on its devices."""
        for host in self.hosts.values():
            host.on_service_lost = tell

    async def aclose(self) -> None:
        for host in self.hosts.values():
            await host.aclose()

    def _host(self, devices: Devices) -> ServiceHost:
        host = self.hosts.get(devices.node)
        if host is None:
            raise InfraFailed(f"{devices.node} has no devices in this process")
        return host


def devices_of(lease: Lease) -> list[Devices]:
    """The devices of `lease`: those of its service first, then bare ones it has beside."""
    return [each for each in lease.allocations if isinstance(each, Devices)]
