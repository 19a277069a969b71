"""Everything at once, and everything goes wrong: each action ends once, nothing is over-committed.

Commands, functions, services and an API share one real house while workers and services are
killed, the API fails and sends callers away, and callers give up.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

import artangram
import callees
from artangram.core.errors import CallFailed, InfraFailed
from artangram.managers.call import ServiceCall
from artangram.managers.gpu import GpuManager
from artangram.orchestrator.client import House
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.records import ActionResult
from artangram.orchestrator.workshop import Offers
from artangram.sandbox.fake import FakeProvider
from artangram.services.service import Service

DEVICE_MB, RUNTIME_MB, WEIGHTS_MB = 450, 380, 30
"""A device holds two of the three services."""
NUM_EACH = 40


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


def offers(url: str, weights: Path) -> Offers:
    services = tuple(
        Service(
            id=f"times-{n}",
            loader="callees:scale",
            options={"factor": n},
            weights=(str(weights),),
            runtime_mb=RUNTIME_MB,
        )
        for n in (2, 3, 5)
    )
    return Offers(
        workers=3,
        devices=2,
        device_memory_mb=DEVICE_MB,
        services=services,
        apis={"search": artangram.ApiSpec(base_url=url, concurrency=3, patience=10_000)},
    )


async def one_of_each(house: House, number: int, rng: random.Random) -> None:
    """Four actions that know what they must be answered."""
    factor = rng.choice((2, 3, 5))
    assert await house.function(callees.add)(number, 1) == number + 1
    assert await house.call(f"times-{factor}", number) == factor * number
    assert await house.call(f"times-{factor}", number, needs={"cpu": 1}) == factor * number
    answer = await house.api("search").get("/find", params={"q": number})
    assert answer.json() == number


async def a_trajectory(house: House, number: int, rng: random.Random, ends: Counter[str]) -> None:
    async with house.trajectory(memory_mb=16) as t:
        await t.run(["sleep", "0.01"])
        try:
            async with asyncio.timeout(rng.choice((0.05, 60.0, 60.0))):
                await one_of_each(house, number, rng)
            ends["answered"] += 1
        except TimeoutError:
            ends["gave up"] += 1
        except (CallFailed, InfraFailed) as error:
            ends[type(error).__name__] += 1


def children_of(parent: int) -> list[int]:
    """All processes below `parent`."""
    found = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(pid) for pid in task.read_text().split()]
    return found + [below for pid in found for below in children_of(pid)]


async def killing(rng: random.Random, leave: set[int]) -> None:
    """Kill a process of the house now and then; `leave` are those that bear the others."""
    while True:
        await asyncio.sleep(0.1)
        leaves = [pid for pid in children_of(os.getpid()) if not children_of(pid)]
        victims = [pid for pid in leaves if pid not in leave]
        if victims:
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


def counted_ends(orchestrator: Orchestrator) -> Counter[str]:
    """How often each action is delivered from now on."""
    delivered, deliver = Counter[str](), orchestrator.deliver

    def counting(result: ActionResult) -> None:
        delivered[result.action_id] += 1
        deliver(result)

    orchestrator.deliver = counting  # type: ignore[method-assign]
    return delivered


async def test_everything_ends_once_whatever_happens(tmp_path: Path) -> None:
    rng, ends = random.Random(1), Counter[str]()
    weights = tmp_path / "weights"
    weights.write_bytes(bytes(WEIGHTS_MB << 20))
    async with (
        serving(Shaky(rng).find) as url,
        running(cores=2, provider=FakeProvider(), offers=offers(url, weights)) as (
            orchestrator,
            workshop,
        ),
    ):
        delivered = counted_ends(orchestrator)
        house = House(Embedded(orchestrator, workshop=workshop))
        await house.function(callees.add)(1, 1)
        bearers = {pid for pid in children_of(os.getpid()) if children_of(pid)}
        manager = workshop.carriers[ServiceCall]
        assert isinstance(manager, GpuManager)
        troubles = [
            asyncio.create_task(killing(rng, bearers)),
            asyncio.create_task(watching(manager)),
        ]
        async with asyncio.timeout(120):
            await asyncio.gather(*(a_trajectory(house, n, rng, ends) for n in range(NUM_EACH)))
        for trouble in troubles:
            assert not trouble.done(), trouble.exception()
            trouble.cancel()
        status = await house.status()
        assert (status.queued, status.running, status.trajectories) == (0, 0, 0)
        # The house still works, on workers and services that are all new.
        assert await house.function(callees.add)(1, 2) == 3
    assert sum(ends.values()) == NUM_EACH
    assert set(delivered.values()) == {1}
    assert len(delivered) == orchestrator.ledger.num_ended
    assert ends["answered"] > NUM_EACH / 4, ends
