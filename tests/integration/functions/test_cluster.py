"""Functions called through a whole cluster."""

import asyncio
from pathlib import Path

import pytest

import artangram
from artangram.core.errors import BadInput, CallFailed
from artangram.core.ids import ActionId, Resource
from artangram.core.scheduling.lease import FunctionSlots, Lease
from artangram.functions.hedging import LEAST_SEEN
from artangram.managers.call import FunctionCall
from artangram.managers.functions import FunctionsManager
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.orchestrator.client import Client
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running
from artangram.sandbox.fake import FakeProvider
from integration.functions import subjects  # by a name that workers can import, too


async def test_a_burst_is_answered_by_as_many_workers_as_the_cluster_has() -> None:
    async with artangram.local(provider=FakeProvider(), workers=3) as client:
        add = client.function(subjects.add)
        assert await asyncio.gather(*(add(n, b=1) for n in range(200))) == list(range(1, 201))
        pids = await asyncio.gather(*(client.function(subjects.worker)() for _ in range(20)))
    assert len(set(pids)) <= 3


async def test_a_killed_worker_and_an_exception_are_told_apart(tmp_path: Path) -> None:
    async with artangram.local(provider=FakeProvider(), workers=2) as client:
        assert await client.function(subjects.die)(1, str(tmp_path)) == 2
        with pytest.raises(CallFailed, match="ValueError: no such luck"):
            await client.function(subjects.fail)("no such luck")


async def test_only_who_may_run_twice_at_once_is_hedged(tmp_path: Path) -> None:
    """Both are as late as each other, and there are workers to spare."""
    go = tmp_path / "go"
    options = ClusterOptions(workers=4)
    async with running(provider=FakeProvider(), options=options) as (orchestrator, backends):
        client = Client(Embedded(orchestrator, backends=backends))
        alone, hedged = client.function(subjects.wait_alone), client.function(subjects.wait_for)
        for _ in range(LEAST_SEEN):
            await alone("/")
            await hedged("/")
        manager = backends.carriers[FunctionCall]
        assert isinstance(manager, FunctionsManager)
        calls = [asyncio.create_task(call(str(go))) for call in (alone, hedged)]
        async with asyncio.timeout(60):
            while not manager.local.num_hedges:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert manager.local.workers.num_busy == 3
        go.touch()
        await asyncio.gather(*calls)
    assert manager.local.num_hedges == 1


async def test_the_same_key_is_called_once(tmp_path: Path) -> None:
    async with artangram.local(provider=FakeProvider(), workers=2) as client:
        die = client.function(subjects.die, key="only once")
        assert await asyncio.gather(*(die(0, str(tmp_path)) for _ in range(5))) == [1] * 5


async def test_a_function_that_cannot_be_sent_is_refused_at_once() -> None:
    async with artangram.local(provider=FakeProvider()) as client:
        with pytest.raises(BadInput, match="write it as a `def`"):
            client.function(lambda: 1)


async def test_a_name_is_one_function() -> None:
    async with artangram.local(provider=FakeProvider()) as client:
        client.function(subjects.add)
        client.function(subjects.add)
        with pytest.raises(BadInput, match=r"subjects:add here already.*another name"):
            client.function(artangram.function(name=subjects.add.name)(subjects.fail.code))
        with pytest.raises(BadInput, match="or has other options"):
            client.function(artangram.function(idempotent=True)(subjects.add.code))
        assert await client.function(subjects.add)(1) == 2


async def test_what_workers_would_find_is_what_was_meant() -> None:
    async with artangram.local(provider=FakeProvider()) as client:
        with pytest.raises(BadInput, match="names another function than this one"):
            client.function(subjects.shadowed)


class Unnoticed:
    """Progress that nobody follows."""

    def began(self) -> None:
        return


async def carried_out(manager: FunctionsManager, name: str, body: bytes) -> bytes:
    lease = Lease(
        action_id=ActionId("a"), allocations=(FunctionSlots(Resource("functions"), 1, 1),)
    )
    call = FunctionCall(function=name, body=body)
    try:
        return (await manager.carry_out(lease, call, progress=Unnoticed())).body
    finally:
        await manager.aclose()


async def test_only_what_is_registered_can_be_called() -> None:
    manager = FunctionsManager(ceiling=1)
    manager.register(subjects.add)
    with pytest.raises(CallFailed, match=r"no function 'os:system'.*subjects:add"):
        await carried_out(manager, "os:system", subjects.add.encode(1))


async def test_strangers_may_send_data_but_no_objects() -> None:
    for function, body, is_taken in [
        (subjects.moved, subjects.moved.encode(subjects.Point(1)), False),
        (subjects.add, subjects.add.encode(1), True),
    ]:
        manager = FunctionsManager(ceiling=1, accepts_pickles=False)
        manager.register(function)
        if is_taken:
            assert subjects.add.decode(await carried_out(manager, function.name, body)) == 2
        else:
            with pytest.raises(CallFailed, match="only plain data"):
                await carried_out(manager, function.name, body)
