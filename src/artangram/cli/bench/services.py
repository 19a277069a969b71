"""Many model services on few devices, live: what does evicting on execution cost and save?

- Every service is all-MiniLM-L6-v2 with weights of its own: the packaged ones and a little noise,
  as a family of fine-tunes would be. A device holds one of them.
- Calls come in bursts, one service each, as when a batch of trajectories reaches its judge; the
  same calls at the same times for every policy, one policy after the other.
- `static` has a device for every service and never loads during the run. Ours has `--devices`.
  `load-per-call` has as many and starts every call from nothing: a new interpreter that imports
  torch and reads the weights from storage, which the page cache makes fast.
- Devices have one thread each and share this machine's cores; so a policy with more devices has
  more memory, not more compute.
"""

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
from msgspec import Struct

from artangram.cli.bench.result import Origin
from artangram.cli.output import Output
from artangram.core.cluster import ClusterSpec
from artangram.core.ids import NodeId, ServiceId
from artangram.core.records import ActionRecord, Outcome
from artangram.managers.call import ServiceCall
from artangram.managers.cpu import CpuManager
from artangram.managers.gpu import GpuManager
from artangram.observe.journalmemory import MemoryJournal
from artangram.orchestrator.calling import CallOptions, request_of
from artangram.orchestrator.clock import WallClock
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.recovery import Setup
from artangram.services.cpu import CpuDevices, cpu_devices
from artangram.services.host import GPU, ServiceHost
from artangram.services.measuring import device_use
from artangram.services.service import Service, weights_mb
from artangram.services.shipped.similarity import FILES, packaged, similarity

OURS, STATIC, COLD = "elastic", "static:1", "load-per-call"
NODE = NodeId("gpu-0")
MEMORY_MB = 250
"""Of a device: one service and what running it takes, not two."""
PAIRS = 8
"""Texts and references in one call."""
CALLS = (8, 24)
"""In a burst, from and to."""
LOAD = 0.4
"""Of the cores, by calls; the rest is room for bursts to overlap."""
LOOK_EVERY_S = 5.0
"""Counting the pages of ten processes takes a good part of a second."""
_WORDS = "the a judge reads long answers and short proofs about rain trains code maps in old towns"

ACT_AT_MOST, SHARE_AT_MOST = 1.0, 0.3
BETTER_AT_LEAST, FASTER_AT_LEAST, OVERHEAD_AT_MOST = 20.0, 10.0, 0.1


class Arrival(Struct, frozen=True):
    """A call of the workload."""

    at_s: float
    service: ServiceId
    body: bytes


class Row(Struct, frozen=True, kw_only=True):
    """One policy."""

    policy: str
    devices: int
    calls: int
    act_mean_s: float
    act_p99_s: float
    wait_mean_s: float
    overhead_mean_s: float
    run_mean_s: float
    restores: int
    restore_s: float
    """Median over the services, when each was deployed."""
    most_device_mb: float
    """The most that the processes of one device were seen to use together."""
    failed: int


class ServiceFigures(Struct, frozen=True, kw_only=True):
    services: int
    weights_mb: int
    device_mb: int
    cores: int
    call_s: float
    """One call alone, its service resident."""
    rows: list[Row]
    act_to_static: float
    """Mean ACT of ours over that of static."""
    device_share: float
    better_than_cold: float | None
    restore_faster: float | None
    """Cold load over restore."""
    overhead_share: float
    """Of ours: restore and dispatch over run."""


def services(
    count: Annotated[int, typer.Option(help="Of services.", min=2)] = 10,
    devices: Annotated[int, typer.Option(help="For ours; each holds one service.", min=1)] = 3,
    bursts: Annotated[int, typer.Option(help="Of calls, one service each.", min=1)] = 60,
    cold_bursts: Annotated[
        int, typer.Option(help="Of them for load-per-call; fewer favour it. 0 leaves it out.")
    ] = 6,
    seed: Annotated[int, typer.Option(help="Same seed, same calls.")] = 0,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Ten judges on devices that hold three: ACT, restores and overhead, policy by policy."""
    output, origin = Output(json), Origin()
    packaged()  # Said now if it is missing, not after minutes.
    with output.progress() as progress, TemporaryDirectory(prefix="artangram-judges-") as folder:
        task = progress.add_task("making judges")
        judges = [_judge(Path(folder), number) for number in range(count)]
        call_s = asyncio.run(_call_s(judges[0]))
        plan = a_plan(random.Random(seed), judges, bursts, call_s=call_s)
        first = a_plan(random.Random(seed), judges, cold_bursts, call_s=call_s)
        runs = [(STATIC, count, plan), (OURS, devices, plan), (COLD, devices, first)]
        rows = []
        for policy, num_devices, calls in runs:
            if calls:
                progress.update(task, description=policy)
                called = {call.service for call in calls} if policy == COLD else None
                there = [judge for judge in judges if called is None or judge.id in called]
                rows.append(asyncio.run(_run(policy, num_devices, there, calls)))
        figures = _figures(rows, judges, call_s)
    _print(output, figures)
    output.json(origin.result("What does evicting services on execution cost and save?", figures))


def _judge(folder: Path, number: int) -> Service:
    """The packaged model with weights that nobody else has."""
    import torch
    from safetensors.torch import load_file, save_file

    home, source = folder / f"judge-{number}", packaged()
    home.mkdir()
    generator = torch.Generator().manual_seed(number)
    tensors = load_file(source / FILES[0])
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator)
            tensors[name] = tensor + 1e-4 * noise * tensor.std(correction=0)
    save_file(tensors, home / FILES[0])
    for file in FILES[1:]:
        shutil.copyfile(source / file, home / file)
    return msgspec.structs.replace(similarity(f"judge-{number}", directory=home), degrees=(1,))


def a_plan(
    rng: random.Random, judges: list[Service], bursts: int, *, call_s: float
) -> list[Arrival]:
    """Bursts one after the other, overlapping as chance has it, that make up `LOAD`."""
    plan, at_s, cores = [], 0.0, len(os.sched_getaffinity(0))
    for _ in range(bursts):
        judge, calls = rng.choice(judges).id, rng.randint(*CALLS)
        work_s = calls * call_s
        when = at_s
        for _ in range(calls):
            plan.append(Arrival(when, judge, _body(rng)))
            # A burst comes about as fast as one core can answer it.
            when += rng.expovariate(1 / call_s)
        at_s += rng.expovariate(LOAD * cores / work_s)
    return sorted(plan, key=lambda arrival: arrival.at_s)


def _body(rng: random.Random) -> bytes:
    words = _WORDS.split()
    pairs = [
        {name: " ".join(rng.choices(words, k=12)) for name in ("text", "reference")}
        for _ in range(PAIRS)
    ]
    return msgspec.json.encode(pairs)


@asynccontextmanager
async def _opened(
    policy: str, num_devices: int, judges: list[Service]
) -> AsyncIterator[tuple[Embedded, ServiceHost]]:
    """An orchestrator with nothing but devices and the judges."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    layout = cpu_devices(cores, count=num_devices, memory_mb=MEMORY_MB)
    kind = await CpuDevices.opened(layout, is_cold=policy == COLD)
    directory = None if policy == COLD else kind.directory
    host = ServiceHost(NODE, kind, resource=GPU, directory=directory)
    try:
        specs = {judge.id: await host.deploy(judge) for judge in judges}
        cluster = ClusterSpec(pools={GPU: host.gpu_spec()}, services=specs)
        orchestrator = Orchestrator(
            Setup(cluster=cluster, policy=policy),
            manager=CpuManager({}),
            journal=MemoryJournal(),
            clock=WallClock(),
            carriers={ServiceCall: GpuManager({NODE: host})},
        )
        host.on_service_lost = orchestrator.service_lost
        await orchestrator.begin()
        try:
            yield Embedded(orchestrator), host
        finally:
            await orchestrator.aclose()
    finally:
        await host.aclose()


async def _call_s(judge: Service) -> float:
    """How long a call takes when nothing else happens: the best of some."""
    num_devices = len(os.sched_getaffinity(0))  # A core each, as in the runs.
    async with _opened(OURS, num_devices, [judge]) as (house, _):
        arrival = Arrival(0.0, judge.id, _body(random.Random(0)))
        records = [await _record(house, arrival) for _ in range(8)]
    return min(record.run_s for record in records)


async def _run(policy: str, num_devices: int, judges: list[Service], plan: list[Arrival]) -> Row:
    async with _opened(policy, num_devices, judges) as (house, host):
        if policy != COLD:
            # Static deployments are loaded by now, and so is all that ours can hold.
            for judge in judges:
                await _record(house, Arrival(0.0, judge.id, plan[0].body))
        before = host.num_restores
        watch = asyncio.create_task(_most_device_mb(host))
        began = asyncio.get_running_loop().time()
        records = await asyncio.gather(*(_later(house, arrival, began) for arrival in plan))
        watch.cancel()
        most_mb = await watch
        restored = [deployed.restore_s for deployed in host.deployed.values()]
        return _row(
            records,
            policy=policy,
            devices=num_devices,
            restores=host.num_restores - before,
            restore_s=median(restored),
            most_device_mb=most_mb,
        )


async def _later(house: Embedded, arrival: Arrival, began: float) -> ActionRecord:
    await asyncio.sleep(began + arrival.at_s - asyncio.get_running_loop().time())
    return await _record(house, arrival)


async def _record(house: Embedded, arrival: Arrival) -> ActionRecord:
    call = ServiceCall(service=arrival.service, body=arrival.body)
    request = request_of(call, CallOptions(), kind=f"service/{arrival.service}")
    return (await house.call(request)).record


async def _most_device_mb(host: ServiceHost) -> float:
    """Look at the processes until cancelled; the most that those of one device used."""
    most = 0.0
    try:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            most = max(most, *(use.used_mb for use in await device_use(host)), 0.0)
    except asyncio.CancelledError:
        return most


def _row(records: list[ActionRecord], **fields: object) -> Row:
    acts = sorted(record.act_s for record in records)
    return msgspec.convert(
        {
            "calls": len(records),
            "act_mean_s": mean(acts),
            "act_p99_s": acts[min(len(acts) - 1, int(0.99 * len(acts)))],
            "wait_mean_s": mean(record.wait_s for record in records),
            "overhead_mean_s": mean(record.overhead_s for record in records),
            "run_mean_s": mean(record.run_s for record in records),
            "failed": sum(record.outcome is not Outcome.SUCCEEDED for record in records),
            **fields,
        },
        Row,
    )


def _figures(rows: list[Row], judges: list[Service], call_s: float) -> ServiceFigures:
    static, ours, *cold = rows
    return ServiceFigures(
        services=len(judges),
        weights_mb=weights_mb(judges[0].weights),
        device_mb=MEMORY_MB,
        cores=len(os.sched_getaffinity(0)),
        call_s=call_s,
        rows=rows,
        act_to_static=ours.act_mean_s / static.act_mean_s,
        device_share=ours.devices / static.devices,
        better_than_cold=cold[0].act_mean_s / ours.act_mean_s if cold else None,
        restore_faster=cold[0].restore_s / ours.restore_s if cold else None,
        overhead_share=ours.overhead_mean_s / ours.run_mean_s,
    )


def _print(output: Output, figures: ServiceFigures) -> None:
    output.table(
        f"{figures.services} services of {figures.weights_mb} MB, devices of {figures.device_mb} "
        f"MB on {figures.cores} cores",
        [
            "policy",
            "devices",
            "ACT s",
            "p99",
            "wait",
            "overhead",
            "run",
            "restores",
            "MB",
            "failed",
        ],
        [_cells(row) for row in figures.rows],
    )
    say = output.console.print
    say(
        f"Mean ACT {figures.act_to_static:.2f}x that of {STATIC} (goal at most {ACT_AT_MOST:g}) "
        f"with {figures.device_share:.0%} of its devices (goal {SHARE_AT_MOST:.0%}); overhead "
        f"{figures.overhead_share:.1%} of execution (goal {OVERHEAD_AT_MOST:.0%})."
    )
    if figures.better_than_cold is not None and figures.restore_faster is not None:
        say(
            f"{figures.better_than_cold:.0f}x better than {COLD} (goal {BETTER_AT_LEAST:g}x); a "
            f"restore is {figures.restore_faster:.0f}x faster than a cold load (goal "
            f"{FASTER_AT_LEAST:g}x)."
        )


def _cells(row: Row) -> list[str]:
    return [
        row.policy,
        str(row.devices),
        f"{row.act_mean_s:.2f}",
        f"{row.act_p99_s:.1f}",
        f"{row.wait_mean_s:.2f}",
        f"{row.overhead_mean_s:.3f}",
        f"{row.run_mean_s:.2f}",
        str(row.restores),
        f"{row.most_device_mb:.0f}",
        str(row.failed),
    ]
