"""What every kind of devices promises, processes and the fake alike."""

import asyncio
import os
from collections.abc import AsyncIterator
from signal import SIGKILL
from typing import Protocol

import pytest
from busy_machine import PATIENCE_S

from artangram.core.errors import BadInput
from artangram.core.ids import ServiceId
from artangram.services import CpuDevices, ReplicaLost, Service, cpu_devices
from artangram.services.cuda import CudaDevices
from artangram.services.devices import Answered, Deployment, Kind, PredictFailed, ServiceReplica
from artangram.services.fake import FakeDevices, FakeReplica
from artangram.services.gpus import Gpu
from artangram.services.processes import ProcessDevices, a_spawner
from artangram.services.replicas import ProcessReplica
from integration.services import toys

OBEDIENT = "integration.services.toys:obedient"
CORE = min(os.sched_getaffinity(0))


class Lab(Protocol):
    """A kind, and how to kill what lives on it."""

    kind: Kind

    def kill(self, replica: ServiceReplica) -> None: ...


class FakeLab:
    def __init__(self) -> None:
        self.kind = FakeDevices(2, models={OBEDIENT: toys.obedient([]).predict})

    def kill(self, replica: ServiceReplica) -> None:
        assert isinstance(replica, FakeReplica)
        replica.crash()


class ProcessLab:
    def __init__(self, kind: ProcessDevices) -> None:
        self.kind = kind

    def kill(self, replica: ServiceReplica) -> None:
        assert isinstance(replica, ProcessReplica)
        os.kill(replica.pid, SIGKILL)


@pytest.fixture(params=["fake", "forked", "cold", "cuda, on a cpu"])
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    if request.param == "fake":
        yield FakeLab()
        return
    if "cuda" in request.param:
        spawner = await a_spawner(())
        gpus = [Gpu(index, f"GPU-{index}", 200, "none") for index in range(2)]
        cuda = CudaDevices(spawner, gpus, memory_mb=200, device="cpu")
        yield ProcessLab(cuda)
        await cuda.aclose()
        return
    devices = cpu_devices((CORE,), count=2, memory_mb=200)
    kind = await CpuDevices.opened(devices, preload=(), is_cold=request.param == "cold")
    yield ProcessLab(kind)
    await kind.aclose()


def a_deployment(loader: str = OBEDIENT) -> Deployment:
    return Deployment(service=Service(id=ServiceId("toy"), loader=loader), files=(), limit_mb=100)


async def restored(lab: Lab, degree: int = 1) -> list[ServiceReplica]:
    return await lab.kind.restore(a_deployment(), first=0, degree=degree)


async def test_a_service_that_was_tried_out_answers_in_order(lab: Lab):
    measured = await lab.kind.try_out(a_deployment(), first=0)
    assert measured.used_mb >= 1
    replicas = await restored(lab)
    answers = await replicas[0].predict([b"1", b"2", b"3"])
    assert answers == [Answered(b"1"), Answered(b"2"), Answered(b"3")]


async def test_a_payload_that_fails_fails_alone(lab: Lab):
    [replica] = await restored(lab)
    first, second = await replica.predict([b'{"do": "raise"}', b"2"])
    assert isinstance(first, PredictFailed)
    assert "as you wished" in first.problem
    assert second == Answered(b"2")


async def test_what_is_not_json_fails_alone(lab: Lab):
    [replica] = await restored(lab)
    first, second = await replica.predict([b"{", b"2"])
    assert isinstance(first, PredictFailed)
    assert second == Answered(b"2")


async def test_every_device_of_a_higher_degree_answers(lab: Lab):
    replicas = await restored(lab, degree=2)
    for replica in replicas:
        assert await replica.predict([b"7"]) == [Answered(b"7")]


async def test_a_loader_that_is_not_there_is_refused(lab: Lab):
    with pytest.raises(BadInput, match="cannot be imported"):
        await lab.kind.try_out(a_deployment("no.such.module:load"), first=0)


async def test_an_ended_replica_answers_nobody_and_was_not_lost(lab: Lab):
    [replica] = await restored(lab)
    await replica.end()
    await replica.end()
    assert replica.lost.cancelled()
    with pytest.raises(ReplicaLost):
        await replica.predict([b"1"])


async def test_a_replica_that_dies_says_so(lab: Lab):
    [replica] = await restored(lab)
    lab.kill(replica)
    async with asyncio.timeout(PATIENCE_S):
        assert "signal 9" in await replica.lost
    with pytest.raises(ReplicaLost, match="signal 9"):
        await replica.predict([b"1"])


async def test_whoever_waits_when_it_dies_is_told(lab: Lab):
    [replica] = await restored(lab)
    asking = asyncio.create_task(replica.predict([b"1"]))
    await asyncio.sleep(0)
    lab.kill(replica)
    with pytest.raises(ReplicaLost, match="signal 9"):
        async with asyncio.timeout(PATIENCE_S):
            await asking
