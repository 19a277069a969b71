"""Everything at once, and everything goes wrong: each action ends once, nothing is over-committed.

Commands in real sandboxes, functions, services and an API share one real cluster while workers,
services and sandboxes are killed, programs take more memory than they may, the API fails and sends
callers away, and callers give up. Memory is measured while that goes on: of the copies on devices
page by page, of sandboxes by their control groups.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import callees
import pytest
from aiohttp import web

import artangram
from artangram.core.errors import CallFailed, InfraFailed
from artangram.managers.call import ServiceCall
from artangram.managers.gpu import GpuManager
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.orchestrator.client import Client
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.records import ActionResult
from artangram.sandbox import IsolationLevel
from artangram.sandbox.namespace.cgroups import ROOT_GROUP, find_hierarchies
from artangram.sandbox.probe import probe
from artangram.services.measuring import device_use
from artangram.services.service import Service

DEVICE_MB, RUNTIME_MB, WEIGHTS_MB = 450, 380, 30
"""A device holds two of the three services."""
NUM_EACH = 30
ENDS_PER_DEATH = 4
NODE_MB, TRAJECTORY_MB = 320, 64
"""Five of the trajectories fit the node at once."""

needs_groups = pytest.mark.skipif(
    probe().level < IsolationLevel.CGROUPS, reason="this machine cannot limit memory of sandboxes"
)


class Shaky:
    """An API that fails one call in five and sends one in five away."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def find(self, request: web.Request) -> web.Response:
        match self._rng.randrange(5):
            case 0:
                raise web.HTTPInternalServerError
            case 1:
                raise web.HTTPTooManyRequests(headers={"Retry-After": "0"})
        return web.json_response(int(request.query["q"]))


@asynccontextmanager
async def serving(find: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/find", find)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


def options(url: str, weights: Path) -> ClusterOptions:
    services = tuple(
        Service(
            id=f"times-{n}",
            loader="callees:weighty",
            options={"factor": n},
            weights=(str(weights),),
            runtime_mb=RUNTIME_MB,
            leaves_nothing=n != 5,  # Two may follow each other in one process.
        )
        for n in (2, 3, 5)
    )
    return ClusterOptions(
        workers=3,
        devices=2,
        device_memory_mb=DEVICE_MB,
        services=services,
        apis={"search": artangram.ApiSpec(base_url=url, concurrency=3, patience=10_000)},
    )


async def one_of_each(client: Client, number: int, rng: random.Random) -> None:
    """Four actions that know what they must be answered."""
    factor = rng.choice((2, 3, 5))
    assert await client.function(callees.add)(number, 1) == number + 1
    assert await client.call(f"times-{factor}", number) == factor * number
    assert await client.call(f"times-{factor}", number, needs={"cpu": 1}) == factor * number
    answer = await client.api("search").get("/find", params={"q": number})
    assert answer.json() == number


async def a_trajectory(client: Client, number: int, rng: random.Random, ends: Counter[str]) -> None:
    async with client.trajectory(memory_mb=TRAJECTORY_MB) as t:
        result = await t.run(hoarding(rng.choice((8, 32, 32, 4 * TRAJECTORY_MB))))
        ends[f"hoarding {result.outcome.value}"] += 1
        try:
            async with asyncio.timeout(rng.choice((0.05, 60.0, 60.0))):
                await one_of_each(client, number, rng)
            ends["answered"] += 1
        except TimeoutError:
            ends["gave up"] += 1
        except (CallFailed, InfraFailed) as error:
            ends[type(error).__name__] += 1


def hoarding(mb: int) -> list[str]:
    """A program that holds so much memory for a moment."""
    code = f"import time; hoard = bytearray({mb} << 20); time.sleep(0.05)"
    return ["/usr/bin/python3", "-I", "-S", "-c", code]


def children_of(parent: int) -> list[int]:
    """All processes below `parent`."""
    found: list[int] = []
    with suppress(OSError):  # It may end while we look.
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(pid) for pid in task.read_text().split()]
    return found + [below for pid in found for below in children_of(pid)]


async def killing(rng: random.Random, leave: set[int], delivered: Counter[str]) -> None:
    """Kill a process of the cluster for every few ends; `leave` are those that spawn the others."""
    killed = 0
    while True:
        await asyncio.sleep(0.02)
        leaves = [pid for pid in children_of(os.getpid()) if not children_of(pid)]
        victims = [pid for pid in leaves if pid not in leave]
        # By ends and not by time: a busy machine is to see as many deaths as an idle one.
        if victims and len(delivered) >= (killed + 1) * ENDS_PER_DEATH:
            killed += 1
            with suppress(ProcessLookupError):
                os.kill(rng.choice(victims), signal.SIGKILL)


async def watching(manager: GpuManager) -> None:
    """The host's own books: all weights and the one that runs fit each device, at every look."""
    (host,) = manager.hosts.values()
    while True:
        await asyncio.sleep(0.01)
        weights = Counter[int]()
        for devices in host.residents():
            spec = host.deployed[devices.service].spec
            for device in range(devices.first, devices.first + devices.degree):
                weights[device] += spec.shard_mb(devices.degree)
        assert all(mb + RUNTIME_MB <= DEVICE_MB for mb in weights.values()), weights


async def measuring_devices(manager: GpuManager, seen: Counter[str]) -> None:
    """The kernel's books of the same."""
    (host,) = manager.hosts.values()
    while True:
        for use in await device_use(host):
            assert not use.is_over, str(use)
            seen["devices"] += use.used_mb > WEIGHTS_MB
        await asyncio.sleep(0.2)


async def measuring_sandboxes(seen: Counter[str]) -> None:
    """No sandbox has more than its trajectory asked for, all together not more than the node."""
    while True:
        used = await asyncio.to_thread(sandboxes_mb)
        assert all(mb <= TRAJECTORY_MB for mb in used), used
        assert sum(used) <= NODE_MB, used
        seen["sandboxes"] += any(mb > 8 for mb in used)
        await asyncio.sleep(0.02)


def sandboxes_mb() -> list[float]:
    """What each group of processes below this one uses, if its memory is counted apart."""
    ours, here = memory_group("self").removesuffix(f"/{ROOT_GROUP}"), find_hierarchies()
    root = here.v1.get("memory", here.v2)
    assert root is not None
    groups = {memory_group(str(pid)) for pid in children_of(os.getpid())}
    name = "memory.usage_in_bytes" if "memory" in here.v1 else "memory.current"
    used = []
    for group in groups:
        below = os.path.relpath(group, ours)
        # Above us is who has ended; he counts nowhere in particular.
        if below not in (".", ROOT_GROUP) and not below.startswith(".."):
            with suppress(OSError):  # It has just been removed.
                used.append(int((root / below / name).read_text()) / (1 << 20))
    return used


def memory_group(pid: str) -> str:
    """Where the memory of a process is counted; at the root if it has just gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return path
            unified = path
        return unified
    return "/"


def counted_ends(orchestrator: Orchestrator) -> Counter[str]:
    """How often each action is delivered from now on."""
    delivered, deliver = Counter[str](), orchestrator.deliver

    def counting(result: ActionResult) -> None:
        delivered[result.action_id] += 1
        deliver(result)

    orchestrator.deliver = counting  # type: ignore[method-assign]
    return delivered


@needs_groups
async def test_everything_ends_once_whatever_happens(tmp_path: Path) -> None:
    rng, ends, seen = random.Random(1), Counter[str](), Counter[str]()
    weights = tmp_path / "weights"
    weights.write_bytes(bytes(WEIGHTS_MB << 20))
    async with (
        serving(Shaky(rng).find) as url,
        running(cores=2, memory_mb=NODE_MB, options=options(url, weights)) as (
            orchestrator,
            backends,
        ),
    ):
        delivered = counted_ends(orchestrator)
        client = Client(Embedded(orchestrator, backends=backends))
        await client.function(callees.add)(1, 1)
        async with client.trajectory(memory_mb=TRAJECTORY_MB) as t:
            await t.run(["true"])
        bearers = {pid for pid in children_of(os.getpid()) if children_of(pid)}
        manager = backends.carriers[ServiceCall]
        assert isinstance(manager, GpuManager)
        troubles = [
            asyncio.create_task(killing(rng, bearers, delivered)),
            asyncio.create_task(watching(manager)),
            asyncio.create_task(measuring_devices(manager, seen)),
            asyncio.create_task(measuring_sandboxes(seen)),
        ]
        async with asyncio.timeout(240):
            await asyncio.gather(*(a_trajectory(client, n, rng, ends) for n in range(NUM_EACH)))
        for trouble in troubles:
            assert not trouble.done(), trouble.exception()
            trouble.cancel()
        status = await client.status()
        assert (status.queued, status.running, status.trajectories) == (0, 0, 0)
        # The cluster still works, on workers and services that are all new.
        assert await client.function(callees.add)(1, 2) == 3
    assert sum(ends.values()) == 2 * NUM_EACH
    assert ends["hoarding failed"] > 0, ends
    assert seen["devices"] > 0, seen
    assert seen["sandboxes"] > 0, seen
    assert set(delivered.values()) == {1}
    assert len(delivered) == orchestrator.ledger.num_ended
    assert ends["answered"] > NUM_EACH / 4, ends
