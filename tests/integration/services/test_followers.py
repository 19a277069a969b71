"""Processes that drop a model and load the next: only where that was promised, and kept."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from process_support import is_alive

from artangram.core.scheduling.lease import Devices
from artangram.services import ReplicaLost, Service, ServiceHost, cpu_devices, cpu_host
from artangram.services.cpu import CpuDevices
from artangram.services.linux import used_mb
from artangram.services.wire import MOST_LEFT_MB
from integration.services.test_faults import CORES, NODE, a_service, ask, at, until

PID = b'{"do": "pid"}'
MUCH = int(2 * MOST_LEFT_MB)


@pytest.fixture
async def host() -> AsyncIterator[ServiceHost]:
    host = await cpu_host(NODE, cpu_devices(CORES, count=2, memory_mb=600), preload=())
    yield host
    await host.aclose()


def following(name: str, *, loader: str = "obedient", **fields: Any) -> Service:
    return a_service(name, loader=loader, leaves_nothing=True, **fields)


async def pids(host: ServiceHost, one: Service, other: Service, *, do: bytes = b"1") -> list[int]:
    """The processes of two services, one after the other on one device; the first is asked more."""
    for service in (one, other):
        await host.deploy(service)
    found = [int(await ask(host, at(one.id), PID))]
    await ask(host, at(one.id, restored=False), do)
    await host.free(evicting(one))
    found.append(int(await ask(host, at(other.id), PID)))
    return found


def evicting(service: Service) -> Devices:
    return replace(at(service.id), evicted=(service.id,))


async def test_another_service_of_the_loader_takes_the_process(host: ServiceHost) -> None:
    one, other = following("one", options={"scale": 2}), following("other", options={"scale": 3})
    first, second = await pids(host, one, other)
    assert first == second
    assert await ask(host, at("other", restored=False), b"5") == b"15"
    assert await ask(host, at("one", 1), b"5") == b"10"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (a_service("one"), following("other")),
        (following("one"), a_service("other")),
        (following("one"), following("other", loader="as_obedient")),
    ],
)
async def test_who_did_not_promise_it_has_a_process_of_its_own(
    host: ServiceHost, one: Service, other: Service
) -> None:
    first, second = await pids(host, one, other)
    assert first != second
    assert is_alive(first) is one.leaves_nothing


async def test_cold_devices_start_every_replica_from_nothing() -> None:
    layout = cpu_devices(CORES, count=2, memory_mb=600)
    kind = await CpuDevices.opened(layout, preload=(), is_cold=True)
    host = ServiceHost(NODE, kind)
    try:
        first, second = await pids(host, following("one"), following("other"))
        assert first != second
        assert not is_alive(first)
    finally:
        await host.aclose()


async def test_a_model_that_left_much_behind_takes_its_process_along(host: ServiceHost) -> None:
    leave = b'{"do": "leave", "mb": %d}' % MUCH
    first, second = await pids(host, following("one"), following("other"), do=leave)
    assert first != second
    assert not is_alive(first)


async def test_what_a_model_took_is_free_when_it_was_evicted(host: ServiceHost) -> None:
    hoard = b'{"do": "hoard", "mb": %d}' % MUCH
    one = following("one", runtime_mb=2 * MUCH)
    first, second = await pids(host, one, following("other"), do=hoard)
    assert first == second
    assert used_mb(first, weights="/dev/shm") < MUCH


async def test_who_follows_is_limited_as_if_he_came_first(host: ServiceHost) -> None:
    small, large = following("small", runtime_mb=50), following("large", runtime_mb=400)
    first, second = await pids(host, small, large)
    assert first == second
    assert await ask(host, at("large", restored=False), b'{"do": "hoard", "mb": 300}') == b"1"
    await host.free(evicting(large))
    assert int(await ask(host, at("small"), PID)) == first
    with pytest.raises(ReplicaLost, match="out of memory"):
        await ask(host, at("small", restored=False), b'{"do": "hoard", "mb": 300}')


async def test_a_model_that_is_busy_when_it_has_to_go_takes_its_process_along(
    host: ServiceHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("artangram.services.residency.DRAIN_S", 0.1)
    one = following("one")
    await host.deploy(one)
    pid = int(await ask(host, at("one"), PID))
    hanging = asyncio.create_task(ask(host, at("one", restored=False), b'{"do": "hang"}'))
    await asyncio.sleep(0.05)
    await host.free(evicting(one))
    assert not is_alive(pid)
    with pytest.raises(ReplicaLost):
        await hanging


async def test_a_process_that_waits_may_die(host: ServiceHost) -> None:
    one, other = following("one"), following("other")
    await host.deploy(one)
    pid = int(await ask(host, at("one"), PID))
    await host.free(evicting(one))
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))
    await asyncio.sleep(0.1)  # Until the host has heard of it.
    assert (await pids(host, other, one))[0] != pid


async def test_an_end_that_comes_late_ends_nobody_else(host: ServiceHost) -> None:
    one = following("one")
    for service in (one, following("other")):
        await host.deploy(service)
    pid = int(await ask(host, at("one"), PID))
    [(_, [replica])] = host.replicas()
    await host.free(evicting(one))
    assert int(await ask(host, at("other"), PID)) == pid
    await replica.end()
    assert int(await ask(host, at("other", restored=False), PID)) == pid


async def test_nothing_is_left_when_the_host_closes(tmp_path: Path) -> None:
    host = await cpu_host(NODE, cpu_devices(CORES, count=1, memory_mb=600), preload=())
    one = following("one")
    await host.deploy(one)
    pid = int(await ask(host, at("one"), PID))
    await host.free(evicting(one))
    assert is_alive(pid)
    await host.aclose()
    assert not is_alive(pid)
