"""The life of calls through the orchestrator, on virtual time: services, functions and APIs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from artangram.apis.limits import TurnedAway
from artangram.core.errors import BadInput, CallFailed, InfraFailed
from artangram.core.ids import Resource, ServiceId
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    QuotaSpec,
    ServiceSpec,
)
from artangram.core.scheduling.lease import Devices, Lease
from artangram.managers.call import ApiCall, Call, CallResult, FunctionCall, ServiceCall
from artangram.managers.calls import CallProgress
from artangram.observe.journal import Entry
from artangram.observe.journalfile import open_journal
from artangram.observe.journalmemory import MemoryJournal
from artangram.orchestrator.recovery import Setup
from artangram.testing.fakes import FakeCluster, fake_cluster

pytestmark = pytest.mark.looptime

GPU = Resource("gpu")
Answer = Callable[[Lease, Call], Awaitable[CallResult]]


class Carrying:
    """Carries calls out as a test says; restores take as long as the lease expects."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.leases: list[Lease] = []
        self.most = self.now = 0

    async def carry_out(self, lease: Lease, call: Call, *, progress: CallProgress) -> CallResult:
        self.leases.append(lease)
        await asyncio.sleep(lease.prepare_s)
        progress.began()
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._answer(lease, call)
        finally:
            self.now -= 1

    async def aclose(self) -> None:
        return


async def doubled(lease: Lease, call: Call) -> CallResult:
    assert isinstance(call, ServiceCall)
    await asyncio.sleep(1.0)
    return CallResult(body=msgspec.json.encode(2 * msgspec.json.decode(call.body)))


async def echoed(lease: Lease, call: Call) -> CallResult:
    assert isinstance(call, ApiCall)
    await asyncio.sleep(1.0)
    return CallResult(body=call.path.encode(), status=200, headers={"x": "y"})


def a_mixed_setup() -> Setup:
    """One device for two services that do not fit together, an API, functions, two cores."""
    service = ServiceSpec(pool=GPU, weights_mb=1000)
    cluster = ClusterSpec(
        pools={
            Resource("cpu"): CpuSpec(nodes=1, cores=2, memory_mb=1024),
            GPU: GpuSpec(nodes=1, devices=1, memory_mb=1500, restore_mb_per_s=1000.0),
            Resource("search"): QuotaSpec(concurrency=2, limit=3, window_s=10.0),
            Resource("functions"): FunctionsSpec(ceiling=4),
        },
        services={ServiceId("judge"): service, ServiceId("teacher"): service},
    )
    return Setup(cluster=cluster)


def carriers(service: Answer = doubled, api: Answer = echoed) -> dict[type, Carrying]:
    return {ServiceCall: Carrying(service), ApiCall: Carrying(api), FunctionCall: Carrying(doubled)}


async def test_a_service_answers_and_is_restored_once() -> None:
    carrying = carriers()
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        assert await client.call("judge", 21) == 42
        assert await client.call("judge", 4) == 8
        restored = [lease.allocations[0] for lease in carrying[ServiceCall].leases]
        assert [a.restored for a in restored if isinstance(a, Devices)] == [True, False]


async def test_two_services_take_turns_on_one_device() -> None:
    carrying = carriers()
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        answers = await asyncio.gather(*(client.call(s, 1) for s in ("judge", "teacher", "judge")))
        assert answers == [2, 2, 2]
        assert carrying[ServiceCall].most == 1
        evicted = [
            a.evicted
            for lease in carrying[ServiceCall].leases
            for a in lease.allocations
            if isinstance(a, Devices) and a.evicted
        ]
        assert evicted, "the second service had to make room"


async def test_an_unknown_service_or_api_is_refused_with_what_there_is() -> None:
    async with fake_cluster(a_mixed_setup(), carriers=carriers()) as client:
        with pytest.raises(BadInput, match="known: judge, teacher"):
            await client.call("jugde", 1)
        with pytest.raises(BadInput, match="use one of: search"):
            await client.api("serach").get("/")
        with pytest.raises(BadInput, match="is not an option of a call"):
            await client.call("judge", 1, timout_s=3)


async def test_an_api_keeps_to_its_window() -> None:
    carrying = carriers()
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(client.api("search").get(f"/{n}") for n in range(4)))
        assert [answer.text for answer in answers] == ["/0", "/1", "/2", "/3"]
        assert (answers[0].status, answers[0].headers) == (200, {"x": "y"})
        assert carrying[ApiCall].most == 2
        # Three fit the window; the fourth starts when the first leaves it.
        assert asyncio.get_running_loop().time() - began == pytest.approx(11.0, abs=0.1)


async def test_a_throttled_api_waits_as_long_as_it_was_told() -> None:
    async with fake_cluster(a_mixed_setup(), carriers=carriers()) as client:
        client.orchestrator.throttled(Resource("search"), until=client.orchestrator.now() + 30.0)
        await asyncio.sleep(0)
        began = asyncio.get_running_loop().time()
        await client.api("search").get("/")
        assert asyncio.get_running_loop().time() - began == pytest.approx(31.0, abs=0.1)


async def test_a_call_that_was_turned_away_is_as_good_as_new() -> None:
    refusals = [TurnedAway("429") for _ in range(10)]

    async def busy(lease: Lease, call: Call) -> CallResult:
        if refusals:
            raise refusals.pop()
        return await echoed(lease, call)

    carrying = carriers(api=busy)
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        assert (await client.api("search").post("/x")).text == "/x"
        assert len(carrying[ApiCall].leases) == 11


async def test_what_the_callee_does_wrong_is_not_tried_again() -> None:
    async def refuse(lease: Lease, call: Call) -> CallResult:
        raise CallFailed("no such thing")

    carrying = carriers(service=refuse)
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        with pytest.raises(CallFailed, match="no such thing"):
            await client.call("judge", 1)
        assert len(carrying[ServiceCall].leases) == 1


async def test_an_answer_that_is_no_unicode_breaks_nobody() -> None:
    latin = b"caf\xe9".decode(errors="surrogateescape")

    async def answer(lease: Lease, call: Call) -> CallResult:
        assert isinstance(call, ApiCall)
        if call.path == "raise":
            raise CallFailed(f"answered 302 to {latin}")
        return CallResult(body=b"", status=200, headers={"x": latin})

    async with fake_cluster(a_mixed_setup(), carriers=carriers(api=answer)) as client:
        assert (await client.api("search").get(key="a")).headers == {"x": "caf?"}
        with pytest.raises(CallFailed, match=r"caf\?"):
            await client.api("search").get("raise", key="b")
        assert await client.call("judge", 2) == 4


async def test_what_fails_under_a_call_is_tried_again() -> None:
    failures = [InfraFailed("it died"), InfraFailed("it died")]

    async def shaky(lease: Lease, call: Call) -> CallResult:
        if failures:
            raise failures.pop()
        return await doubled(lease, call)

    async with fake_cluster(a_mixed_setup(), carriers=carriers(service=shaky)) as client:
        assert await client.call("judge", 1) == 2


async def test_a_post_is_not_made_twice_unless_it_may_be() -> None:
    async def lost(lease: Lease, call: Call) -> CallResult:
        raise InfraFailed("the line went dead")

    carrying = carriers(api=lost)
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        with pytest.raises(InfraFailed, match="went dead"):
            await client.api("search").post("/", json={})
        assert len(carrying[ApiCall].leases) == 1


async def test_a_restore_does_not_eat_the_time_limit_of_the_call() -> None:
    async with fake_cluster(a_mixed_setup(), carriers=carriers()) as client:
        assert await client.call("judge", 1, timeout_s=1.5) == 2  # Restored in 1 s, ran for 1 s.
        with pytest.raises(CallFailed, match=r"longer than 0\.5 s"):
            await client.call("judge", 1, timeout_s=0.5)


async def test_a_caller_who_goes_away_ends_the_call() -> None:
    carrying = carriers()
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        calling = asyncio.create_task(client.call("judge", 1))
        await asyncio.sleep(1.5)
        calling.cancel()
        await asyncio.sleep(0.01)
        assert carrying[ServiceCall].now == 0
        assert await client.call("judge", 1) == 2


async def test_the_same_key_is_one_call() -> None:
    carrying = carriers()
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        calls = (client.call("judge", 1, key="k") for _ in range(3))
        assert await asyncio.gather(*calls) == [2, 2, 2]
        assert len(carrying[ServiceCall].leases) == 1


async def test_cores_and_a_judge_are_given_together() -> None:
    carrying = carriers()
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client, client.trajectory() as t:
        busy = asyncio.create_task(t.run(["sleep", "5"], cpu=2))
        await asyncio.sleep(0.01)
        began = asyncio.get_running_loop().time()
        assert await client.call("judge", 1, needs={"cpu": 1}) == 2
        assert asyncio.get_running_loop().time() - began > 5.0
        await busy
        (lease,) = carrying[ServiceCall].leases
        assert {a.resource for a in lease.allocations} == {"gpu", "cpu"}


async def test_a_lost_service_is_restored_for_the_next_call() -> None:
    carrying = carriers()
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        await client.call("judge", 1)
        devices = carrying[ServiceCall].leases[0].allocations[0]
        assert isinstance(devices, Devices)
        client.orchestrator.service_lost(devices)
        await client.call("judge", 1)
        again = carrying[ServiceCall].leases[1].allocations[0]
        assert isinstance(again, Devices)
        assert again.restored


async def test_a_call_on_the_cores_of_a_lost_node_is_made_again() -> None:
    carrying = carriers()
    async with fake_cluster(a_mixed_setup(), carriers=carrying) as client:
        calling = asyncio.create_task(client.call("judge", 1, needs={"cpu": 1}, deadline_s=60.0))
        await asyncio.sleep(1.5)
        node, agent = next(iter(client.orchestrator.nodes.items()))
        lost = client.orchestrator.executor
        lost.on_lost(node, "the power went")
        await asyncio.sleep(0.01)
        assert carrying[ServiceCall].now == 0, "the call went on without its cores"
        assert not calling.done()
        with pytest.raises(InfraFailed, match="expired"):
            await calling
        await agent.aclose()


async def _one_life(path: Path, carrying: dict[type, Carrying], work: "Work") -> None:
    setup = a_mixed_setup()
    journal, past = await open_journal(path)
    try:
        async with fake_cluster(setup, journal=journal, past=past, carriers=carrying) as client:
            await work(client)
    finally:
        await journal.close()


Work = Callable[[FakeCluster], Awaitable[None]]


@pytest.mark.looptime(False)
async def test_after_a_crash_calls_are_made_again_where_they_may_be(tmp_path: Path) -> None:
    async def for_ever(lease: Lease, call: Call) -> CallResult:
        await asyncio.Event().wait()
        raise AssertionError

    stuck = carriers(service=for_ever, api=for_ever)

    async def first(client: FakeCluster) -> None:
        callers = [
            asyncio.create_task(client.call("judge", 3, key="judged")),
            asyncio.create_task(client.api("search").post("/", key="posted")),
        ]
        while stuck[ServiceCall].now + stuck[ApiCall].now < 2:  # noqa: ASYNC110 - both, any order
            await asyncio.sleep(0.01)
        for caller in callers:
            caller.cancel()

    again = carriers()

    async def second(client: FakeCluster) -> None:
        assert await client.call("judge", 3, key="judged") == 6
        with pytest.raises(InfraFailed, match="restarted during the call"):
            await client.api("search").post("/", key="posted")
        assert not again[ApiCall].leases, "a post that may have arrived was made again"
        (lease,) = again[ServiceCall].leases
        restored = lease.allocations[0]
        assert isinstance(restored, Devices)
        assert restored.restored, "nothing is resident in a new process"

    await _one_life(tmp_path / "journal.sqlite", stuck, first)
    await _one_life(tmp_path / "journal.sqlite", again, second)


class Unwritten(MemoryJournal):
    """The journal of an orchestrator that will be killed before it has written anything."""

    is_lasting = True

    def append(self, entry: Entry, **more: object) -> int:
        return 1


async def test_a_call_that_may_not_be_repeated_is_not_made_before_it_is_written_down() -> None:
    carrying = Carrying(echoed)
    carriers = {ApiCall: carrying}
    async with fake_cluster(a_mixed_setup(), journal=Unwritten(), carriers=carriers) as client:
        search = client.api("search")
        calls = [asyncio.create_task(call) for call in (search.post("once"), search.get("often"))]
        await asyncio.sleep(1)
        assert len(carrying.leases) == 1
        for call in calls:
            call.cancel()
