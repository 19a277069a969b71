"""Real processes that die, hang, run out of memory or never load: nobody waits for ever."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from busy_machine import PATIENCE_S
from process_support import environ, is_alive

from artangram.core.errors import BadInput, CallFailed
from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.lease import Devices
from artangram.services import ReplicaLost, Service, ServiceHost, cpu_devices, cpu_host
from artangram.services.host import FIRST_PAUSE_S

NODE = NodeId("gpu-0")
CORES = tuple(sorted(os.sched_getaffinity(0)))
TOYS = "integration.services.toys"


def at(service: str = "toy", first: int = 0, *, degree: int = 1, restored: bool = True) -> Devices:
    return Devices(Resource("gpu"), NODE, first, degree, ServiceId(service), restored=restored)


def a_service(name: str = "toy", *, loader: str = "obedient", **fields: Any) -> Service:
    return Service(id=ServiceId(name), loader=f"{TOYS}:{loader}", **fields)


class Lost:
    """Hears of losses."""

    def __init__(self) -> None:
        self.places: asyncio.Queue[Devices] = asyncio.Queue()

    async def next(self) -> Devices:
        async with asyncio.timeout(PATIENCE_S):
            return await self.places.get()


@pytest.fixture
def lost() -> Lost:
    return Lost()


@pytest.fixture
async def host(lost: Lost) -> AsyncIterator[ServiceHost]:
    devices = cpu_devices(CORES, count=2, memory_mb=300)
    host = await cpu_host(NODE, devices, preload=(), on_service_lost=lost.places.put_nowait)
    yield host
    await host.aclose()
    assert not directory_of(host).exists()


def directory_of(host: ServiceHost) -> Path:
    directory: Path = host.kind.directory  # type: ignore[attr-defined]
    return directory


async def ask(host: ServiceHost, devices: Devices, body: bytes) -> bytes:
    async with asyncio.timeout(PATIENCE_S), host.using(devices) as residency:
        return await residency.ask(body)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def exists(directory: bytes) -> bool:
    return Path(directory.decode()).exists()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the kernel sets no event
            await asyncio.sleep(0.01)


async def test_a_process_killed_in_the_middle_of_a_call(host: ServiceHost, lost: Lost):
    await host.deploy(a_service())
    pid = int(await ask(host, at(), b'{"do": "pid"}'))
    call = asyncio.create_task(ask(host, at(restored=False), b'{"do": "hang"}'))
    await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ReplicaLost, match="signal 9"):
        await call
    assert await lost.next() == at()
    assert await ask(host, at(), b"4") == b"4"


async def test_a_call_that_kills_its_process_is_the_only_one_that_fails_twice(host: ServiceHost):
    await host.deploy(a_service())
    with pytest.raises(ReplicaLost, match="signal 9"):
        await ask(host, at(), b'{"do": "die"}')
    clock = asyncio.get_running_loop().time
    began = clock()
    assert await ask(host, at(), b"4") == b"4"
    assert clock() - began >= FIRST_PAUSE_S


async def test_a_hang_that_everybody_gave_up_is_ended(host: ServiceHost, lost: Lost):
    await host.deploy(a_service())
    pid = int(await ask(host, at(), b'{"do": "pid"}'))
    call = asyncio.create_task(ask(host, at(restored=False), b'{"do": "hang"}'))
    await asyncio.sleep(0.05)
    call.cancel()
    assert await lost.next() == at()
    await until(lambda: not is_alive(pid))
    assert await ask(host, at(), b"4") == b"4"


async def test_a_hang_longer_than_a_service_may_is_ended(host: ServiceHost):
    await host.deploy(a_service(longest_predict_s=0.3))
    with pytest.raises(ReplicaLost, match="hung"):
        await ask(host, at(), b'{"do": "hang"}')


async def test_who_takes_more_memory_than_declared_is_ended(host: ServiceHost, lost: Lost):
    await host.deploy(a_service(runtime_mb=50))
    with pytest.raises(ReplicaLost, match="out of memory"):
        await ask(host, at(), b'{"do": "hoard", "mb": 200}')
    assert await lost.next() == at()


async def test_what_is_within_the_limit_is_granted(host: ServiceHost):
    await host.deploy(a_service(runtime_mb=250))
    assert await ask(host, at(), b'{"do": "hoard", "mb": 200}') == b"1"


async def test_a_payload_that_raises_fails_its_call_only(host: ServiceHost):
    await host.deploy(a_service())
    async with host.using(at()) as residency:
        bad = asyncio.create_task(residency.ask(b'{"do": "raise"}'))
        good = asyncio.create_task(residency.ask(b"4"))
        assert await good == b"4"
        with pytest.raises(CallFailed, match="as you wished"):
            await bad


@pytest.mark.parametrize(
    ("service", "field", "text"),
    [
        (a_service(loader="torn"), "loader", "these weights are torn"),
        (a_service(loader="killed"), "loader", "signal 9"),
        (a_service(loader="missing"), "loader", "no function missing"),
        (a_service(loader="useless"), "loader", "does not predict"),
        (a_service(options={"color": 1}), "options", "color"),
        (a_service(loader="greedy", options={"mb": 2000}), "loader", "out of memory"),
        (a_service(example={"do": "raise"}), "example", "as you wished"),
        (a_service(loader="short", example=1), "example", "answers"),
        (Service(id=ServiceId("toy"), loader="no.such:load"), "loader", "cannot be imported"),
    ],
)
async def test_what_cannot_work_is_refused_when_it_is_deployed(
    host: ServiceHost, service: Service, field: str, text: str
):
    with pytest.raises(BadInput) as caught:
        await host.deploy(service)
    assert caught.value.field == field
    assert text in str(caught.value)
    assert ServiceId("toy") not in host.deployed


def children_of(pid: int) -> set[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {int(child) for child in found.split()}


async def the_spare(pid: int) -> int:
    """The process that waits beside the one replica `pid`."""
    zygote = parent_of(pid)
    await until(lambda: len(children_of(zygote)) == 2)
    [spare] = children_of(zygote) - {pid}
    return spare


async def test_a_restore_takes_the_process_that_waits(host: ServiceHost):
    await host.deploy(a_service())
    spare = await the_spare(int(await ask(host, at(), b'{"do": "pid"}')))
    assert int(await ask(host, at(first=1), b'{"do": "pid"}')) == spare


async def test_a_spare_that_dies_is_missed_by_nobody(host: ServiceHost, lost: Lost):
    await host.deploy(a_service())
    spare = await the_spare(int(await ask(host, at(), b'{"do": "pid"}')))
    os.kill(spare, signal.SIGKILL)
    await until(lambda: not is_alive(spare))
    await asyncio.sleep(0.1)  # Until the host has heard of it.
    assert int(await ask(host, at(first=1), b'{"do": "pid"}')) != spare
    assert lost.places.empty()


async def test_a_spare_is_renewed_for_what_it_has_not_imported(host: ServiceHost, tmp_path: Path):
    """Else the first restore, which is measured, would import what all later ones inherit."""
    notes = tmp_path / "notes"
    await host.deploy(a_service(loader="noting", options={"path": str(notes)}))
    await ask(host, at(), b"1")
    assert notes.read_text().split() == ["imported", "inherited", "inherited"]


async def test_the_zygote_may_die(host: ServiceHost, lost: Lost):
    await host.deploy(a_service())
    pid = int(await ask(host, at(), b'{"do": "pid"}'))
    zygote = parent_of(pid)
    os.kill(zygote, signal.SIGKILL)
    assert await lost.next() == at()
    await until(lambda: not is_alive(pid))
    assert await ask(host, at(), b"4") == b"4"


OWNER = """
import asyncio
from integration.services.test_faults import *

async def main():
    host = await cpu_host(NODE, cpu_devices(CORES, count=2, memory_mb=300), preload=())
    await host.deploy(a_service())
    pid = int(await ask(host, at(), b'{"do": "pid"}'))
    print(directory_of(host), pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_when_the_host_is_killed_nothing_of_it_is_left():
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OWNER,
        stdout=asyncio.subprocess.PIPE,
        env=environ(),
    )
    assert owner.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        directory, pid = (await owner.stdout.readline()).split()
    assert exists(directory)
    os.kill(owner.pid, signal.SIGKILL)
    await owner.communicate()
    await until(lambda: not is_alive(int(pid)) and not exists(directory))
