"""One policy of `artangram bench services`: its client, opened once, and the times of its calls."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import mean, median

from msgspec import Struct

from artangram.core.ids import NodeId
from artangram.core.scheduling.action import ActionRecord, Outcome
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.core.scheduling.lease import Devices
from artangram.managers.call import ServiceCall
from artangram.managers.cpu import CpuManager
from artangram.managers.gpu import GpuManager
from artangram.observe.journalmemory import MemoryJournal
from artangram.orchestrator.calling import request_of
from artangram.orchestrator.driver import WallClock
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.recovery import Setup
from artangram.services.cpu import CpuDevices, cpu_devices
from artangram.services.host import GPU, ServiceHost
from artangram.services.measuring import device_use
from artangram.services.residency import ResidentService
from artangram.services.service import Service
from artangram_bench.services_plan import Arrival, a_body

OURS, STATIC, COLD = "elastic", "static:1", "load-per-call"
NODE = NodeId("gpu-0")
MEMORY_MB = 250
"""Of a device: one service and what running it takes, not two."""
LOOK_EVERY_S = 2.0
"""Counting the pages of ten processes takes a good part of a second."""


class Row(Struct, frozen=True, kw_only=True):
    """One policy; ACT = wait + line + overhead + run."""

    policy: str
    devices: int
    calls: int
    act_mean_s: float
    act_p99_s: float
    wait_mean_s: float
    """In the scheduler's queue."""
    line_mean_s: float
    """In the line of a copy, behind the batches before."""
    overhead_mean_s: float
    """Restore and dispatch."""
    run_mean_s: float
    restores: int
    restore_s: float
    """Median over the services, when each was deployed."""
    most_device_mb: float | None
    """The most that the processes of one device were seen to use together, in the rehearsal."""
    failed: int


class _WatchedHost(ServiceHost):
    """Remembers when calls found their service resident."""

    def watch(self, clock: WallClock) -> None:
        self.clock = clock
        self.ready_at: list[float] = []

    @asynccontextmanager
    async def using(self, devices: Devices) -> AsyncIterator[ResidentService]:
        async with super().using(devices) as residency:
            self.ready_at.append(self.clock.now())
            yield residency


class Side:
    """A policy with its own devices, and the results of its calls."""

    def __init__(self, policy: str, client: Embedded, host: _WatchedHost) -> None:
        self.policy = policy
        self.client = client
        self.host = host
        self.rounds: list[list[ActionRecord]] = []
        self.num_restores = 0
        self.most_device_mb: float | None = None

    async def warm(self, judges: list[Service]) -> None:
        """Static deployments are loaded after this, and so is all that ours can hold."""
        body = a_body(random.Random(0))
        for judge in judges:
            await self.call(Arrival(0.0, judge.id, body))

    async def rehearse(self, plan: list[Arrival]) -> None:
        """A round that does not count: looking at processes takes time from their calls."""
        watch = asyncio.create_task(self._watch_devices())
        await self._made(plan)
        watch.cancel()
        await asyncio.wait({watch})
        self.host.ready_at.clear()

    async def run(self, plan: list[Arrival]) -> None:
        """A round: its calls when they are due."""
        before = self.host.num_restores
        self.rounds.append(await self._made(plan))
        self.num_restores += self.host.num_restores - before

    async def _made(self, plan: list[Arrival]) -> list[ActionRecord]:
        began = asyncio.get_running_loop().time()
        return await asyncio.gather(*(self._later(call, began) for call in plan))

    async def call(self, arrival: Arrival) -> ActionRecord:
        call = ServiceCall(service=arrival.service, body=arrival.body)
        request = request_of(call, {}, kind=f"service/{arrival.service}")
        return (await self.client.call(request)).record

    async def _later(self, arrival: Arrival, began: float) -> ActionRecord:
        await asyncio.sleep(began + arrival.at_s - asyncio.get_running_loop().time())
        return await self.call(arrival)

    async def _watch_devices(self) -> None:
        """Look at the processes until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for use in await device_use(self.host):
                self.most_device_mb = max(self.most_device_mb or 0.0, use.used_mb)

    def row(self) -> Row:
        records = [record for each in self.rounds for record in each]
        acts = sorted(record.act_s for record in records)
        ran = [record.began_at for record in records if record.began_at is not None]
        line_s = mean(ran) - mean(self.host.ready_at)
        return Row(
            policy=self.policy,
            devices=self.host.kind.num_devices,
            calls=len(records),
            act_mean_s=mean(acts),
            act_p99_s=acts[min(len(acts) - 1, int(0.99 * len(acts)))],
            wait_mean_s=mean(record.wait_s for record in records),
            line_mean_s=line_s,
            overhead_mean_s=mean(record.overhead_s for record in records) - line_s,
            run_mean_s=mean(record.run_s for record in records),
            restores=self.num_restores,
            restore_s=median(each.restore_s for each in self.host.deployed.values()),
            most_device_mb=self.most_device_mb,
            failed=sum(record.outcome is not Outcome.SUCCEEDED for record in records),
        )


@asynccontextmanager
async def opened(policy: str, num_devices: int, judges: list[Service]) -> AsyncIterator[Side]:
    """An orchestrator with nothing but devices and the judges."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    layout = cpu_devices(cores, count=num_devices, memory_mb=MEMORY_MB)
    kind = await CpuDevices.opened(layout, is_cold=policy == COLD)
    directory = None if policy == COLD else kind.directory
    host = _WatchedHost(NODE, kind, resource=GPU, directory=directory)
    clock = WallClock()
    host.watch(clock)
    try:
        specs = {judge.id: await host.deploy(judge) for judge in judges}
        cluster = ClusterSpec(pools={GPU: host.gpu_spec()}, services=specs)
        orchestrator = Orchestrator(
            Setup(cluster=cluster, policy=policy),
            manager=CpuManager({}),
            journal=MemoryJournal(),
            clock=clock,
            carriers={ServiceCall: GpuManager({NODE: host})},
        )
        host.on_service_lost = orchestrator.service_lost
        await orchestrator.begin()
        try:
            yield Side(policy, Embedded(orchestrator), host)
        finally:
            await orchestrator.aclose()
    finally:
        await host.aclose()


async def call_s(judge: Service) -> float:
    """How long a call takes when nothing else happens: the best of some."""
    num_devices = len(os.sched_getaffinity(0))  # A core each, as in the runs.
    async with opened(OURS, num_devices, [judge]) as side:
        arrival = Arrival(0.0, judge.id, a_body(random.Random(0)))
        records = [await side.call(arrival) for _ in range(8)]
    return min(record.run_s for record in records)
