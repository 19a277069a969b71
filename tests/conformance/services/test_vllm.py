"""Servers that sleep instead of ending keep the same promises, over real HTTP."""

from collections.abc import AsyncIterator

import pytest

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import ServiceId
from artangram.services import ReplicaLost, Service
from artangram.services.devices import Answered, Deployment, Failed
from artangram.services.vllm import LOADER, VllmDevices
from conformance.services.sleepy import Sleepy


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
    devices = VllmDevices(num_devices=4, memory_mb=1000)
    yield devices
    await devices.aclose()


def a_deployment(servers: list[Sleepy], **changes: object) -> Deployment:
    options = {"urls": [server.url for server in servers], "weights_mb": 500} | changes
    service = Service(id=ServiceId("llm"), loader=LOADER, options=options)
    return Deployment(service=service, files=(), limit_mb=1000)


async def test_a_tried_out_service_sleeps_everywhere(devices: VllmDevices, servers: list[Sleepy]):
    measured = await devices.try_out(a_deployment(servers))
    assert measured.used_mb == 500
    assert [server.is_asleep for server in servers] == [True, True]


async def test_the_server_of_the_devices_wakes_answers_and_sleeps(
    devices: VllmDevices, servers: list[Sleepy]
):
    await devices.try_out(a_deployment(servers))
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
    [replica] = await devices.restore(a_deployment(servers), first=0, degree=1)
    assert await replica.predict([b"{", b"2"]) == [Failed("400: as you wished"), Answered(b"2")]


async def test_a_server_that_fails_is_infrastructure(devices: VllmDevices, servers: list[Sleepy]):
    [replica] = await devices.restore(a_deployment(servers), first=0, degree=1)
    servers[0].is_asleep = True
    assert await replica.predict([b"1"]) == [Failed("500: asleep", is_infra=True)]


async def test_a_server_that_is_gone_is_lost(devices: VllmDevices, servers: list[Sleepy]):
    [replica] = await devices.restore(a_deployment(servers), first=0, degree=1)
    await servers[0].close()
    with pytest.raises(ReplicaLost, match="cannot be reached"):
        await replica.predict([b"1"])
    assert "cannot be reached" in replica.lost.result()


async def test_a_place_without_a_server_is_infrastructure(
    devices: VllmDevices, servers: list[Sleepy]
):
    with pytest.raises(InfraFailed, match="no server for device 3"):
        await devices.restore(a_deployment(servers), first=3, degree=1)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"urls": []}, "options.urls"),
        ({"urls": ["http://127.0.0.1:9"]}, "options.urls"),
        ({"weights_mb": "many"}, "options"),
        ({"color": 1}, "options"),
    ],
)
async def test_what_cannot_work_is_refused(
    devices: VllmDevices, changes: dict[str, object], field: str
):
    with pytest.raises(BadInput) as caught:
        await devices.try_out(a_deployment([], **changes))
    assert caught.value.field == field
