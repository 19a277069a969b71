"""Opening trajectories: what is booked for one, and that nothing is left of one that failed."""

import asyncio
import gc
from pathlib import Path

import pytest

from artangram.config.clusterfile import read_cluster
from artangram.core.errors import BadInput
from artangram.core.ids import TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.managers.agent import SandboxSpec
from artangram.observe.journal import JournalError
from artangram.observe.journalfile import open_journal
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.records import ActionResult, Opening, Receipt
from artangram.orchestrator.up import up
from artangram.sandbox import Limits
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster

pytestmark = pytest.mark.looptime


async def opened(client: FakeCluster, name: str, *, memory_mb: int, limit_mb: int) -> None:
    place = SandboxSpec(limits=Limits(memory_mb=limit_mb, disk_mb=1))
    opening = Opening(trajectory=TrajectoryId(name), memory_mb=memory_mb, place=place)
    await client.orchestrator.open(opening)


def run(client: FakeCluster, trajectory: str, *argv: str) -> "asyncio.Task[ActionResult]":
    request = RunRequest(trajectory=TrajectoryId(trajectory), argv=argv, kind="x")
    return asyncio.create_task(client.backend.run(request))


@pytest.mark.parametrize(("memory_mb", "limit_mb"), [(600, 4), (1, 600), (0, 600)])
async def test_two_who_may_use_more_than_there_is_do_not_run_together(
    memory_mb: int, limit_mb: int
) -> None:
    async with fake_cluster(a_setup(cores=4, memory_mb=1000)) as client:
        for name in "ab":
            await opened(client, name, memory_mb=memory_mb, limit_mb=limit_mb)
        first, second = run(client, "a", "sleep", "10"), run(client, "b", "true")
        await asyncio.sleep(20)
        assert (first.done(), second.done()) == (True, False)
        client.orchestrator.close(TrajectoryId("a"))
        assert (await second).ok


async def test_who_may_use_more_than_any_node_has_is_refused() -> None:
    async with fake_cluster(a_setup(memory_mb=1000)) as client:
        await opened(client, "big", memory_mb=1, limit_mb=100_000)
        result = await run(client, "big", "true")
        assert result.outcome is Outcome.REFUSED
        assert "100000 can never fit" in result.reason


async def test_files_for_who_is_refused_are_refused_for_the_same_reason() -> None:
    async with fake_cluster(a_setup(memory_mb=1000)) as client:
        t = client.trajectory(memory_mb=100_000)
        await t.__aenter__()
        with pytest.raises(BadInput, match="memory_mb: 100000 can never fit"):
            await t.write("x", b"")


def test_nobody_opens_less_than_nothing() -> None:
    with pytest.raises(BadInput, match="memory_mb: -900 is negative"):
        Opening(trajectory=TrajectoryId("t"), memory_mb=-900)


async def test_an_opening_that_is_cancelled_leaves_nothing_open() -> None:
    async with fake_cluster() as client:
        for opening in (
            client.trajectory(id="t").__aenter__(),
            client.backend.open(Opening(trajectory=TrajectoryId("t"))),
        ):
            task = asyncio.create_task(opening)
            await asyncio.sleep(0)
            assert "t" in client.orchestrator.ledger.trajectories
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            await asyncio.sleep(1)
            assert "t" not in client.orchestrator.ledger.trajectories


async def test_what_cannot_be_written_down_is_refused_and_forgotten(tmp_path: Path) -> None:
    setup = a_setup()
    journal, past = await open_journal(tmp_path / "journal.sqlite")
    async with fake_cluster(setup, journal=journal, past=past) as client:
        ledger = client.orchestrator.ledger
        for opening in ({"task": "\udc80"}, {"job": "\udc80"}):
            with pytest.raises(BadInput, match="cannot be written down"):
                await client.trajectory(id="odd", **opening).__aenter__()
            assert "odd" not in ledger.trajectories
        async with client.trajectory(id="t") as t:
            for argv, output_bytes in ((["echo", "\udc80"], 1), (["true"], 2**64)):
                with pytest.raises(BadInput, match="cannot be written down"):
                    await t.run(argv, output_bytes=output_bytes, kind="x")
                assert ledger.queue.total == 0
            assert (await t.run(["echo", "x"])).ok
    await journal.close()


def num_receipts() -> int:
    gc.collect()
    return sum(type(one) is Receipt for one in gc.get_objects())


async def test_nothing_is_remembered_of_a_sandbox_that_somebody_else_closed() -> None:
    async with fake_cluster() as client:
        before = num_receipts()
        for name in "abc":
            t = client.trajectory(id=name, memory_mb=16)
            await t.__aenter__()
            await t.write("x", b"")
        await client.close_job("default")
        assert num_receipts() <= before


async def test_a_service_flushes_its_journal_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def opened(path: Path, **options: object) -> None:
        asked.append(options.get("sync"))
        raise JournalError("enough")

    monkeypatch.setattr("artangram.orchestrator.local.open_journal", opened)
    for said in ("", "sync: false"):
        (tmp_path / "c.yaml").write_text("policy: elastic\n" + said)
        sync = read_cluster(tmp_path / "c.yaml").sync
        with pytest.raises(JournalError, match="enough"):
            await up(tmp_path, on_ready=print, sync=sync)
    with pytest.raises(JournalError, match="enough"):
        await up(tmp_path, on_ready=print)
    assert asked == [True, False, True]
