"""Orders of the scheduler against what is on the devices; on virtual time, with the fake kind."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.lease import Devices
from artangram.services import Service, ServiceHost
from artangram.services.fake import FakeDevices, echo
from artangram.services.host import FIRST_PAUSE_S, UNKNOWN_BATCH_COST
from artangram.services.replica import batch_cost

pytestmark = pytest.mark.looptime

NODE = NodeId("gpu-0")
GPU = Resource("gpu")


def at(
    service: str, first: int = 0, *, degree: int = 1, restored: bool = False, evicted: str = ""
) -> Devices:
    names = tuple(ServiceId(name) for name in evicted)
    return Devices(GPU, NODE, first, degree, ServiceId(service), restored=restored, evicted=names)


class World:
    """A host with services a to e, each of 40 MB and 20 MB to run; devices of 100 MB hold two."""

    def __init__(self) -> None:
        self.kind = FakeDevices(models={"fake:echo": echo})
        self.kind.used_mb = 40
        self.lost: list[Devices] = []
        self.host = ServiceHost(NODE, self.kind, on_service_lost=self.lost.append)

    async def deploy(self, *names: str, runtime_mb: int = 20) -> None:
        restore_s, self.kind.restore_s = self.kind.restore_s, 0  # No virtual time in a fixture.
        for name in names:
            await self.host.deploy(a_service(name, runtime_mb=runtime_mb))
        self.kind.restore_s = restore_s
        self.kind.log.clear()
        self.host.num_restores = 0

    async def call(self, devices: Devices, body: bytes = b"1") -> bytes:
        async with self.host.using(devices) as residency:
            return await residency.ask(body)

    def start(self, devices: Devices) -> "asyncio.Task[bytes]":
        return asyncio.create_task(self.call(devices))


def a_service(name: str, *, runtime_mb: int = 20, scale: int = 1) -> Service:
    return Service(
        id=ServiceId(name),
        loader="fake:echo",
        options={"scale": scale},
        degrees=(1, 2),
        runtime_mb=runtime_mb,
    )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.deploy("a", "b", "c", "d", "e")
    yield world
    await world.host.aclose()
    assert world.kind.living == []


async def test_deploying_tells_what_was_measured():
    world = World()
    spec = await world.host.deploy(a_service("z", runtime_mb=7))
    assert (spec.weights_mb, spec.runtime_mb, spec.pool) == (40, 7, GPU)
    rate = world.host.gpu_spec().restore_mb_per_s
    assert rate == pytest.approx(40 / world.kind.restore_s, rel=0.05)
    assert world.kind.living == []


async def test_working_memory_is_measured_with_a_margin_when_unsaid(tmp_path):
    world = World()
    world.kind.memory_mb = 1000
    (tmp_path / "weights").write_bytes(bytes(10 << 20))
    service = Service(id=ServiceId("z"), loader="fake:echo", weights=(str(tmp_path / "weights"),))
    world.kind.used_mb = 110
    spec = await world.host.deploy(service)
    assert (spec.weights_mb, spec.runtime_mb) == (10, 150)


async def test_deploying_the_same_again_changes_nothing(world: World):
    assert await world.host.deploy(a_service("a")) == world.host.deployed[ServiceId("a")].spec


async def test_deploying_something_else_under_a_known_name_is_refused(world: World):
    with pytest.raises(BadInput, match="already deployed"):
        await world.host.deploy(a_service("a", scale=2))


async def test_two_of_one_name_at_once_are_one_service_or_refused():
    world = World()
    same = (world.host.deploy(a_service("z")) for _ in range(2))
    assert len(set(await asyncio.gather(*same))) == 1
    assert world.kind.log == ["restore z@0", "end z@0"]
    different = (world.host.deploy(a_service("y", scale=scale)) for scale in (1, 2))
    first, second = await asyncio.gather(*different, return_exceptions=True)
    assert first == world.host.deployed[ServiceId("y")].spec
    assert isinstance(second, BadInput)


async def test_a_service_that_fits_no_device_once_measured_is_refused(world: World):
    world.kind.used_mb = 300
    with pytest.raises(BadInput, match="larger devices"):
        await world.host.deploy(a_service("z"))


async def test_a_service_is_tried_out_where_nobody_is(world: World):
    world.kind.predict_s = 5.0
    busy = [world.start(at("a", first, restored=True)) for first in (0, 1, 3)]
    await asyncio.sleep(1)
    world.kind.restore_s = 0
    await world.host.deploy(a_service("z"))
    assert world.kind.tried[-1] == (2, world.kind.memory_mb)
    assert await asyncio.gather(*busy) == [b"1"] * 3
    assert world.lost == []


async def test_what_is_idle_makes_room_for_a_trial_and_the_scheduler_hears_of_it(world: World):
    for first in range(4):
        await world.call(at("a", first, restored=True))
        await world.call(at("b", first, restored=True))
    world.kind.predict_s = 5.0
    busy = [world.start(at("b", first)) for first in (0, 1, 3)]
    await asyncio.sleep(1)
    await world.host.deploy(a_service("z"))
    assert world.kind.tried[-1] == (2, world.kind.memory_mb)
    assert [(lost.service, lost.first) for lost in world.lost] == [("a", 2), ("b", 2)]
    assert "a@2" not in world.kind.living
    assert "a@0" in world.kind.living
    await asyncio.gather(*busy)


async def test_a_trial_beside_what_is_in_use_gets_the_rest(world: World):
    world.kind.predict_s = 5.0
    busy = [world.start(at("a", first, restored=True)) for first in range(4)]
    await asyncio.sleep(1)
    await world.host.deploy(a_service("z"))
    assert world.kind.tried[-1] == (0, world.kind.memory_mb - 40 - 20)
    await asyncio.gather(*busy)


async def test_what_goes_is_gone_before_what_comes_begins(world: World):
    await world.call(at("a", restored=True))
    await world.call(at("b", restored=True, evicted="a"))
    assert world.kind.log == ["restore a@0", "end a@0", "restore b@0"]


async def test_only_the_named_copy_on_these_devices_goes(world: World):
    await world.call(at("a", 0, restored=True))
    await world.call(at("a", 1, restored=True))
    await world.call(at("b", 0, restored=True, evicted="a"))
    assert world.kind.living == ["a@1", "b@0"]


async def test_calls_that_come_while_it_is_restored_wait_for_that(world: World):
    calls = [world.start(at("a", restored=True)), world.start(at("a")), world.start(at("a"))]
    await asyncio.gather(*calls)
    assert world.kind.log == ["restore a@0"]


async def test_who_gives_up_does_not_stop_the_restore(world: World):
    first, second = world.start(at("a", restored=True)), world.start(at("a"))
    await asyncio.sleep(0.05)
    first.cancel()
    assert await second == b"1"
    assert world.kind.log == ["restore a@0"]


async def test_what_the_books_believe_to_be_there_is_restored_if_it_is_not(world: World):
    assert await world.call(at("a")) == b"1"


async def test_a_restore_of_what_is_there_brings_a_new_copy(world: World):
    await world.call(at("a", restored=True))
    await world.call(at("a", restored=True))
    assert world.kind.log == ["restore a@0", "end a@0", "restore a@0"]


async def test_idle_copies_the_books_forgot_make_room_the_stalest_first(world: World):
    await world.call(at("a", restored=True))
    await world.call(at("b", restored=True))
    await world.call(at("a"))
    await world.call(at("c", restored=True))
    assert sorted(world.kind.living) == ["a@0", "c@0"]


async def test_a_copy_in_use_never_makes_room(world: World):
    world.kind.predict_s = 5.0
    calls = [world.start(at("a", restored=True)), world.start(at("b", restored=True))]
    await asyncio.sleep(1)
    with pytest.raises(InfraFailed, match="no room"):
        await world.call(at("c", restored=True))
    assert await asyncio.gather(*calls) == [b"1", b"1"]


async def test_a_wide_copy_needs_room_on_all_its_devices(world: World):
    await world.call(at("a", 0, restored=True))
    await world.call(at("b", 1, restored=True))
    await world.call(at("c", 1, restored=True))
    await world.call(at("d", 0, degree=2, restored=True))
    assert sorted(world.kind.living) == ["a@0", "c@1", "d@0", "d@1"]


async def test_an_eviction_overtakes_a_restore_that_everybody_gave_up(world: World):
    first = world.start(at("a", restored=True))
    await asyncio.sleep(0.05)
    first.cancel()
    await asyncio.sleep(0)
    await world.call(at("b", restored=True, evicted="a"))
    assert world.kind.living == ["b@0"]


async def test_an_eviction_whose_call_never_ran_is_made_up_for(world: World):
    for name in "ab":
        await world.call(at(name, restored=True))
    never = world.start(at("c", restored=True, evicted="a"))
    never.cancel()
    await asyncio.wait({never})
    assert await world.call(at("c")) == b"1"
    assert sorted(world.kind.living) == ["b@0", "c@0"]


async def test_bare_devices_are_freed(world: World):
    await world.call(at("a", restored=True))
    await world.host.free(at("", evicted="a"))
    assert world.kind.living == []


async def test_a_loss_is_told_with_its_devices_and_the_next_call_brings_it_back(world: World):
    where = at("a", restored=True)
    await world.call(where)
    world.kind.replicas[-1].crash()
    await asyncio.sleep(0.1)
    assert world.lost == [where]
    assert world.host.residents() == []
    assert await world.call(at("a")) == b"1"


async def test_a_restore_that_fails_is_a_loss_for_all_who_wait(world: World):
    world.kind.failures = 1
    calls = [world.start(at("a", restored=True)), world.start(at("a"))]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in done] == [InfraFailed, InfraFailed]
    assert len(world.lost) == 1


async def test_every_further_loss_in_a_row_doubles_the_pause(world: World):
    world.kind.failures = 3
    clock, took = asyncio.get_running_loop().time, []
    for _ in range(4):
        began = clock()
        await asyncio.gather(world.call(at("a", restored=True)), return_exceptions=True)
        took.append(clock() - began)
    pauses = [0, FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    predicted = [0, 0, 0, world.kind.predict_s]
    expected = [
        world.kind.restore_s + pause + more for pause, more in zip(pauses, predicted, strict=True)
    ]
    assert took == pytest.approx(expected, abs=0.01)


async def test_a_call_that_succeeds_ends_the_row(world: World):
    world.kind.failures = 1
    await asyncio.gather(world.call(at("a", restored=True)), return_exceptions=True)
    await world.call(at("a", restored=True))
    began = asyncio.get_running_loop().time()
    await world.call(at("a", restored=True))
    assert asyncio.get_running_loop().time() - began < world.kind.restore_s + FIRST_PAUSE_S


async def test_a_service_nobody_deployed_is_infrastructure_that_is_missing(world: World):
    with pytest.raises(InfraFailed, match="no service 'q'"):
        await world.call(at("q", restored=True))


async def test_a_closed_host_takes_nothing_and_tells_no_loss(world: World):
    world.kind.predict_s = 1.0
    call = world.start(at("a", restored=True))
    await asyncio.sleep(0.5)
    await world.host.aclose()
    assert await call == b"1"
    with pytest.raises(InfraFailed, match="is closed"):
        await world.call(at("a", restored=True))
    assert world.lost == []


async def test_whoever_waits_for_a_restore_that_is_called_off_is_told(world: World):
    waiting = world.start(at("a", restored=True))
    await asyncio.sleep(0.05)
    await world.call(at("b", restored=True, evicted="a"))
    with pytest.raises(InfraFailed, match="evicted while it was being restored"):
        await waiting


@pytest.mark.parametrize(
    ("stated", "measured", "believed"),
    [(0.5, 0.9, 0.5), (0.0, 0.9, 0.0), (None, 0.9, 0.9), (None, 0.0, 0.0)],
)
async def test_what_a_batch_costs_is_measured_unless_stated(
    world: World, stated: float | None, measured: float, believed: float
):
    world.kind.batch_cost = measured
    service = structs.replace(a_service("x"), batch_cost=stated)
    assert (await world.host.deploy(service)).batch_cost == believed


async def test_without_an_example_a_batch_is_believed_to_cost_little(world: World):
    assert (await world.host.deploy(a_service("x"))).batch_cost == UNKNOWN_BATCH_COST


@pytest.mark.parametrize(
    ("together_s", "cost"), [(2.0, 0.0), (1.0, 0.0), (9.0, 0.5), (16.0, 1.0), (40.0, 1.0)]
)
def test_a_batch_costs_from_nothing_to_as_much_again(together_s: float, cost: float):
    assert batch_cost(2.0, together_s, size=8) == pytest.approx(cost)
