"""Batches, and how a service is lost; on virtual time, with fake replicas."""

import asyncio
from collections.abc import Awaitable

import pytest

from artangram.core.errors import CallFailed
from artangram.core.ids import ServiceId
from artangram.services import ReplicaLost, Service
from artangram.services.fake import FakeDevices, FakeReplica, echo
from artangram.services.residency import PATIENCE_S, ResidentService

pytestmark = pytest.mark.looptime


class Bench:
    """A residency of fake replicas, and what was heard of its loss."""

    def __init__(
        self, *, degree: int = 1, batch: int = 4, predict_s: float = 1.0, longest_s: float = 60.0
    ) -> None:
        devices = FakeDevices()
        devices.predict_s = predict_s
        self.replicas = [FakeReplica(devices, echo, str(n)) for n in range(degree)]
        self.heard: list[str] = []
        service = Service(
            id=ServiceId("toy"), loader="toy", batch=batch, longest_predict_s=longest_s
        )
        self.residency = ResidentService(service, list(self.replicas), on_lost=self.heard.append)

    async def ask(self, *bodies: bytes) -> list[bytes]:
        return await asyncio.gather(*(self.residency.ask(body) for body in bodies))


def now() -> float:
    return asyncio.get_running_loop().time()


async def lost(work: Awaitable[object]) -> str:
    with pytest.raises(ReplicaLost) as caught:
        await work
    return str(caught.value)


async def test_calls_that_come_together_are_answered_together():
    bench = Bench()
    assert await bench.ask(b"1", b"2", b"3") == [b"1", b"2", b"3"]
    assert bench.replicas[0].batches == [3]


async def test_no_batch_is_larger_than_the_service_takes():
    bench = Bench(batch=4)
    await bench.ask(*[b"1"] * 10)
    assert bench.replicas[0].batches == [4, 4, 2]


async def test_calls_that_come_during_a_batch_make_up_the_next():
    bench = Bench()
    first = asyncio.create_task(bench.residency.ask(b"1"))
    await asyncio.sleep(0.5)
    assert await bench.ask(b"2", b"3") == [b"2", b"3"]
    assert await first == b"1"
    assert bench.replicas[0].batches == [1, 2]


async def test_a_list_is_divided_among_the_replicas_and_answered_in_order():
    bench = Bench(degree=2)
    assert await bench.residency.ask(b'[1, "two", {"three": 3}]') == b'[1,"two",{"three":3}]'
    assert [replica.batches for replica in bench.replicas] == [[2], [1]]


async def test_a_long_list_is_asked_batch_by_batch_and_answered_whole():
    bench = Bench(batch=2)
    assert await bench.residency.ask(b"[1, 2, 3, 4, 5]") == b"[1,2,3,4,5]"
    assert bench.replicas[0].batches == [2, 2, 1]


async def test_a_list_leaves_room_in_its_last_batch():
    bench = Bench(batch=2)
    assert await bench.ask(b"[1, 2, 3]", b"4", b"5") == [b"[1,2,3]", b"4", b"5"]
    assert bench.replicas[0].batches == [2, 2, 1]
    assert now() == 3.0


async def test_a_list_given_up_halfway_is_asked_no_more():
    bench = Bench(batch=1)
    calls = [asyncio.create_task(bench.residency.ask(body)) for body in (b"[1, 2, 3]", b"4")]
    await asyncio.sleep(0.5)
    calls[0].cancel()
    assert await calls[1] == b"4"
    assert bench.replicas[0].batches == [1, 1]
    assert bench.heard == []


async def test_a_list_fails_by_a_payload_of_an_early_batch_after_all_are_answered():
    bench = Bench(batch=1)
    with pytest.raises(CallFailed, match="no"):
        await bench.residency.ask(b'[{"raise": "no"}, 2]')
    assert await bench.residency.ask(b"3") == b"3"


async def test_a_single_payload_leaves_replicas_idle():
    bench = Bench(degree=2)
    assert await bench.residency.ask(b" 5") == b"5"
    assert [replica.batches for replica in bench.replicas] == [[1], []]


async def test_an_empty_list_asks_nobody():
    bench = Bench()
    assert await bench.residency.ask(b"[]") == b"[]"
    assert bench.replicas[0].batches == []


async def test_a_call_that_fails_fails_alone():
    bench = Bench()
    bad = asyncio.create_task(bench.residency.ask(b'[1, {"raise": "no"}]'))
    good = asyncio.create_task(bench.residency.ask(b"2"))
    assert await good == b"2"
    with pytest.raises(CallFailed, match="no"):
        await bad


async def test_a_list_that_is_not_json_fails_its_call():
    with pytest.raises(CallFailed, match="not JSON"):
        await Bench().residency.ask(b"[1,")


async def test_who_gives_up_takes_nothing_from_the_others():
    bench = Bench()
    calls = [asyncio.create_task(bench.residency.ask(b"%d" % n)) for n in range(3)]
    await asyncio.sleep(0.5)
    calls[1].cancel()
    assert await calls[0] == b"0"
    assert await calls[2] == b"2"
    assert bench.heard == []


async def test_a_call_given_up_in_the_line_is_never_asked():
    bench = Bench()
    first = asyncio.create_task(bench.residency.ask(b"1"))
    second = asyncio.create_task(bench.residency.ask(b"2"))
    third = asyncio.create_task(bench.residency.ask(b"3"))
    bench.residency.service = Service(id=ServiceId("toy"), loader="toy", batch=1)
    await asyncio.sleep(0.5)
    second.cancel()
    await asyncio.gather(first, third)
    assert bench.replicas[0].batches == [1, 1]


async def test_a_batch_nobody_waits_for_may_go_on_for_a_moment_only():
    bench = Bench(predict_s=1000.0)
    call = asyncio.create_task(bench.residency.ask(b"1"))
    await asyncio.sleep(10)
    assert bench.heard == []
    call.cancel()
    await asyncio.sleep(PATIENCE_S + 0.1)
    assert ["hung" in reason for reason in bench.heard] == [True]


async def test_a_batch_that_ends_in_time_after_all_gave_up_loses_nothing():
    bench = Bench(predict_s=1.0)
    call = asyncio.create_task(bench.residency.ask(b"1"))
    await asyncio.sleep(0.5)
    call.cancel()
    await asyncio.sleep(5)
    assert bench.heard == []
    assert await bench.residency.ask(b"2") == b"2"


async def test_a_batch_that_takes_longer_than_the_service_may_hangs():
    bench = Bench(predict_s=1000.0, longest_s=5.0)
    assert "it hung: no answer for 5 s" in await lost(bench.residency.ask(b"1"))
    assert now() == pytest.approx(5.0, abs=0.1)
    assert len(bench.heard) == 1


async def test_when_one_replica_dies_all_calls_are_told_and_all_replicas_end():
    bench = Bench(degree=2, batch=2)
    calls = [asyncio.create_task(bench.residency.ask(b"%d" % n)) for n in range(5)]
    await asyncio.sleep(0.5)
    bench.replicas[1].crash("it burned")
    for call in calls:
        assert "it burned" in await lost(call)
    assert bench.heard == ["it burned"]
    assert bench.replicas[0].lost.cancelled()
    assert "it burned" in await lost(bench.residency.ask(b"1"))


async def test_an_idle_death_is_noticed():
    bench = Bench()
    bench.replicas[0].crash("it burned")
    await asyncio.sleep(0)
    assert bench.heard == ["it burned"]


async def test_an_end_lets_the_batch_under_way_finish():
    bench = Bench()
    call = asyncio.create_task(bench.residency.ask(b"1"))
    await asyncio.sleep(0.5)
    await bench.residency.end()
    assert await call == b"1"
    assert bench.heard == []
    assert "evicted" in await lost(bench.residency.ask(b"2"))
