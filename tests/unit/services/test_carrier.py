"""Calls of services through the call manager: how they end, and what counts as run time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from artangram.core.ids import ActionId, NodeId, Resource, ServiceId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.lease import Devices, Lease
from artangram.managers.agent import RunResult
from artangram.managers.call import CallResult, ServiceCall
from artangram.managers.calls import CallManager, RunningCall
from artangram.managers.gpu import GpuManager
from artangram.services import Service, ServiceHost
from artangram.services.fake import FakeDevices, echo

pytestmark = pytest.mark.looptime

NODE = NodeId("gpu-0")
TOY = ServiceId("toy")


def devices(*, restored: bool = True, evicted: tuple[ServiceId, ...] = ()) -> Devices:
    return Devices(Resource("gpu"), NODE, 0, 1, TOY, restored=restored, evicted=evicted)


class World:
    """A manager over fake devices; remembers every end."""

    def __init__(self) -> None:
        self.kind = FakeDevices(models={"fake:echo": echo})
        self.host = ServiceHost(NODE, self.kind)
        self.gpu = GpuManager({NODE: self.host})
        self.ended: asyncio.Queue[RunResult] = asyncio.Queue()
        self.calls = CallManager(
            {ServiceCall: self.gpu},
            now=lambda: asyncio.get_running_loop().time(),
            on_ended=self.ended.put_nowait,
        )

    def start(
        self, name: str, *allocations: Devices, body: bytes = b"1", timeout_s: float | None = None
    ) -> RunningCall:
        lease = Lease(action_id=ActionId(name), allocations=allocations or (devices(),))
        call = ServiceCall(service=TOY, body=body)
        return self.calls.start(lease, call, timeout_s=timeout_s)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.kind.restore_s = 0  # No virtual time in a fixture.
    await world.host.deploy(Service(id=TOY, loader="fake:echo", runtime_mb=20))
    world.kind.restore_s = 3.0
    world.kind.predict_s = 1.0
    yield world
    await world.calls.aclose()
    await world.gpu.aclose()
    assert world.kind.living == []


async def test_a_call_is_answered(world: World):
    world.start("x", body=b'{"q": 1}')
    ended = await world.ended.get()
    assert ended.outcome is Outcome.SUCCEEDED
    assert ended.answer == CallResult(body=b'{"q":1}')


async def test_a_call_begins_when_its_service_is_resident(world: World):
    start = asyncio.get_running_loop().time()
    world.start("x")
    ended = await world.ended.get()
    assert ended.began_at == pytest.approx(start + world.kind.restore_s, abs=0.1)


async def test_a_restore_does_not_eat_the_time_of_a_call(world: World):
    world.start("x", timeout_s=2.0)
    assert (await world.ended.get()).outcome is Outcome.SUCCEEDED


async def test_a_call_begins_when_its_batch_does(world: World):
    """Neither is the batch before it part of its run, nor does it eat its time."""
    start = asyncio.get_running_loop().time()
    world.start("x")
    await asyncio.sleep(3.5)
    world.start("y", devices(restored=False), timeout_s=1.2)
    first, second = await world.ended.get(), await world.ended.get()
    assert first.began_at == pytest.approx(start + 3.0, abs=0.1)
    assert second.began_at == pytest.approx(start + 4.0, abs=0.1)
    assert second.outcome is Outcome.SUCCEEDED


async def test_a_call_that_takes_too_long_times_out(world: World):
    world.start("x", timeout_s=0.5)
    assert (await world.ended.get()).outcome is Outcome.TIMED_OUT


async def test_what_the_model_raised_is_the_failure_of_the_call(world: World):
    world.start("x", body=b'{"raise": "not like this"}')
    ended = await world.ended.get()
    assert ended.outcome is Outcome.FAILED
    assert "not like this" in ended.reason


async def test_a_crash_is_infrastructure_and_is_told_first(world: World):
    lost: list[Devices] = []
    world.gpu.on_service_lost(lost.append)
    world.start("x")
    await asyncio.sleep(3.5)
    world.kind.replicas[-1].crash("it burned")
    ended = await world.ended.get()
    assert ended.outcome is Outcome.INFRA_FAILED
    assert "it burned" in ended.reason
    assert lost == [devices()]


async def test_a_stopped_call_takes_nothing_from_its_neighbour(world: World):
    call = world.start("x")
    world.start("y", devices(restored=False))
    await asyncio.sleep(3.5)
    call.cancel()
    ends = [await world.ended.get(), await world.ended.get()]
    assert {end.run.action_id: end.outcome for end in ends} == {
        "x": Outcome.CANCELLED,
        "y": Outcome.SUCCEEDED,
    }


async def test_a_node_that_is_not_here_is_infrastructure(world: World):
    elsewhere = Devices(Resource("gpu"), NodeId("gpu-9"), 0, 1, TOY, restored=True)
    world.start("x", elsewhere)
    assert (await world.ended.get()).outcome is Outcome.INFRA_FAILED


async def test_bare_devices_beside_are_freed_first(world: World):
    world.start("x")
    await world.ended.get()
    bare = Devices(Resource("gpu"), NODE, 0, 1, ServiceId(""), evicted=(TOY,))
    there = Devices(Resource("gpu"), NODE, 1, 1, TOY, restored=True)
    world.kind.log.clear()
    world.start("y", there, bare)
    await world.ended.get()
    assert world.kind.log == ["end toy@0", "restore toy@1"]
