"""HTTP engines keep the same promises, whether they sleep or are ended; over real HTTP."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from busy_machine import PATIENCE_S
from msgspec import structs
from process_support import is_alive

from artangram.core.errors import BadInput
from artangram.core.ids import ServiceId
from artangram.services import ReplicaLost, Service
from artangram.services.devices import Answered, Deployment, PredictFailed
from artangram.services.gpus import Gpu
from artangram.services.vllm import LOADER, VllmDevices
from conformance.services.sleepy import Sleepy

SERVING = Path(__file__).parent / "serving.py"


@pytest.fixture
async def servers() -> AsyncIterator[list[Sleepy]]:
    both = [Sleepy(), Sleepy()]
    for server in both:
        await server.open()
    yield both
    for server in both:
        await server.close()


@pytest.fixture
async def devices() -> AsyncIterator[VllmDevices]:
    devices = VllmDevices(num_devices=5, memory_mb=1000)  # Two places of two, and one over.
    yield devices
    await devices.aclose()


def a_deployment(servers: list[Sleepy], **changes: object) -> Deployment:
    options = {"urls": [server.url for server in servers], "weights_mb": 500} | changes
    service = Service(id=ServiceId("llm"), loader=LOADER, options=options, degrees=(2,))
    return Deployment(service=service, files=(), limit_mb=1000)


async def test_a_tried_out_service_sleeps_everywhere(devices: VllmDevices, servers: list[Sleepy]):
    measured = await devices.try_out(a_deployment(servers), first=0)
    assert measured.used_mb == 500
    assert [server.is_asleep for server in servers] == [True, True]


async def test_the_server_of_the_devices_wakes_answers_and_sleeps(
    devices: VllmDevices, servers: list[Sleepy]
):
    await devices.try_out(a_deployment(servers), first=0)
    [replica] = await devices.restore(a_deployment(servers), first=2, degree=2)
    assert [server.is_asleep for server in servers] == [True, False]
    assert await replica.predict([b"1", b"2"]) == [Answered(b"1"), Answered(b"2")]
    await replica.end()
    await replica.end()
    assert servers[1].is_asleep
    assert replica.lost.cancelled()
    with pytest.raises(ReplicaLost):
        await replica.predict([b"1"])


async def test_a_refused_payload_fails_alone(devices: VllmDevices, servers: list[Sleepy]):
    [replica] = await devices.restore(a_deployment(servers), first=0, degree=2)
    assert await replica.predict([b"{", b"2"]) == [
        PredictFailed("400: as you wished"),
        Answered(b"2"),
    ]


async def test_a_server_that_fails_is_infrastructure(devices: VllmDevices, servers: list[Sleepy]):
    [replica] = await devices.restore(a_deployment(servers), first=0, degree=2)
    servers[0].is_asleep = True
    assert await replica.predict([b"1"]) == [PredictFailed("500: asleep", is_infra=True)]


async def test_a_server_that_is_gone_is_lost(devices: VllmDevices, servers: list[Sleepy]):
    [replica] = await devices.restore(a_deployment(servers), first=0, degree=2)
    await servers[0].close()
    with pytest.raises(ReplicaLost, match="cannot be reached"):
        await replica.predict([b"1"])
    assert "cannot be reached" in replica.lost.result()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"urls": []}, "options"),
        ({"argv": ["vllm"]}, "options"),
        ({"urls": ["http://127.0.0.1:9"]}, "options.urls"),
        ({"urls": ["http://127.0.0.1:9"] * 2}, "options.urls"),
        ({"weights_mb": "many"}, "options"),
        ({"color": 1}, "options"),
    ],
)
async def test_what_cannot_work_is_refused(
    devices: VllmDevices, servers: list[Sleepy], changes: dict[str, object], field: str
):
    with pytest.raises(BadInput) as caught:
        await devices.try_out(a_deployment(servers, **changes), first=0)
    assert caught.value.field == field


async def test_a_server_has_one_degree(devices: VllmDevices, servers: list[Sleepy]):
    deployment = a_deployment(servers)
    several = structs.replace(deployment.service, degrees=(1, 2))
    with pytest.raises(BadInput, match="built for"):
        await devices.try_out(structs.replace(deployment, service=several), first=0)


def started_by(*words: str, **changes: object) -> Deployment:
    """A service whose server is started anew for every restore."""
    argv = [sys.executable, str(SERVING), "{port}", *words]
    options = {"argv": argv, "weights_mb": 500} | changes
    service = Service(id=ServiceId("llm"), loader=LOADER, options=options, example=1)
    return Deployment(service=service, files=(), limit_mb=1000)


async def test_an_eviction_ends_a_started_server_and_all_it_started(
    devices: VllmDevices, tmp_path: Path
):
    child = tmp_path / "child"
    [replica] = await devices.restore(started_by("--child", str(child)), first=0, degree=1)
    assert await replica.predict([b"1", b"2"]) == [Answered(b"1"), Answered(b"2")]
    assert is_alive(int(child.read_text()))
    await replica.end()
    await replica.end()
    assert replica.lost.cancelled()
    assert not is_alive(int(child.read_text()))
    with pytest.raises(ReplicaLost):
        await replica.predict([b"1"])


async def test_a_trial_starts_a_server_once_and_leaves_none(devices: VllmDevices, tmp_path: Path):
    child = tmp_path / "child"
    measured = await devices.try_out(started_by("--child", str(child)), first=0)
    assert measured.restore_s is not None
    assert 0 < measured.restore_s == measured.load_s
    assert not is_alive(int(child.read_text()))


async def test_a_started_server_that_dies_is_lost_with_its_last_words(
    devices: VllmDevices, tmp_path: Path
):
    child = tmp_path / "child"
    [replica] = await devices.restore(started_by("--child", str(child)), first=0, degree=1)
    with contextlib.suppress(ReplicaLost):
        await replica.predict([b'"die"'])
    async with asyncio.timeout(PATIENCE_S):
        reason = await replica.lost
    assert "ended with 7: as you wished" in reason
    assert not is_alive(int(child.read_text()))
    with pytest.raises(ReplicaLost, match="as you wished"):
        await replica.predict([b"1"])
    await replica.end()


@pytest.mark.parametrize(
    ("deployment", "field", "says"),
    [
        (started_by("--fail"), "options.argv", "no such model"),
        (started_by("--silent", starts_within_s=2.0), "options.argv", "not ready within 2 s"),
        (started_by(argv=["/no/such/program"]), "options.argv", "no/such/program"),
        (started_by(path="/nowhere"), "example", "404"),
    ],
)
async def test_a_command_that_cannot_work_is_refused_with_what_it_said(
    devices: VllmDevices, deployment: Deployment, field: str, says: str
):
    with pytest.raises(BadInput, match=says) as caught:
        await devices.try_out(deployment, first=0)
    assert caught.value.field == field


async def test_a_started_server_is_told_its_devices_and_sees_no_others():
    gpus = [Gpu(index, f"GPU-{index}", 1000, "none") for index in (4, 5, 6, 7)]
    devices = VllmDevices(num_devices=4, memory_mb=1000, gpus=gpus)
    deployment = started_by("{units}", "{devices}", '{"not": "ours"}', environ={"AT": "{devices}"})
    try:
        [replica] = await devices.restore(deployment, first=2, degree=2)
        [answer] = await replica.predict([b'"tell"'])
        await replica.end()
    finally:
        await devices.aclose()
    assert isinstance(answer, Answered)
    assert msgspec.json.decode(answer.body) == {
        "words": ["2", "2,3", '{"not": "ours"}'],
        "seen": "6,7",
        "at": "2,3",
    }
