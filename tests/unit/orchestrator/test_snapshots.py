"""A snapshot of much that is alive is made by another process, and leads to the same."""

import asyncio
from pathlib import Path

from busy_machine import PATIENCE_S

from artangram.observe.journalfile import open_journal, read_past
from artangram.orchestrator import snapshots
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.recovery import Setup, replayed, thawed
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster


async def until_taken(client: FakeCluster) -> None:
    taking = client.orchestrator._driver._snapshots
    async with asyncio.timeout(PATIENCE_S):
        while taking.is_taking:  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.02)
    await client.orchestrator.written()


def alive(past_path: Path, setup: Setup) -> tuple[list[str], list[str]]:
    _, ledger = replayed(read_past(past_path), setup)
    return sorted(ledger.trajectories), sorted(ledger.actions)


async def test_what_came_meanwhile_stays_and_nothing_is_lost(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_HERE", 0)
    path, setup = tmp_path / "journal.sqlite", a_setup(memory_mb=100_000)
    journal, past = await open_journal(path)
    bounds = Bounds(compact_every=10)
    async with fake_cluster(setup, journal=journal, past=past, bounds=bounds) as client:
        opened = [await client.trajectory(id=f"t{n}").open() for n in range(10)]
        assert (await opened[0].run(["true"], key="once")).ok
        await opened[1].close()
        await client.trajectory(id="meanwhile").open()
        await until_taken(client)
        read = read_past(path)
        assert read.snapshot is not None
        assert read.snapshot.seq >= 10
        assert len(read.entries) < 10 + bounds.compact_every
        thawed(read.snapshot.body, setup)
        names, _ = alive(path, setup)
        assert names == sorted(["meanwhile", *(f"t{n}" for n in range(10) if n != 1)])
        again = await opened[0].run(["true"], key="once")
        assert again.ok
    await journal.close()
    assert list(tmp_path.glob("*.snapshot-*")) == []
    journal, past = await open_journal(path)
    async with fake_cluster(setup, journal=journal, past=past) as client:
        assert (await client.status()).trajectories == 10
    await journal.close()


async def test_a_process_that_fails_leaves_the_work_to_this_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_HERE", 0)
    monkeypatch.setattr(snapshots.sys, "executable", "/bin/false")
    path, setup = tmp_path / "journal.sqlite", a_setup()
    journal, past = await open_journal(path)
    bounds = Bounds(compact_every=4)
    async with fake_cluster(setup, journal=journal, past=past, bounds=bounds) as client:
        for n in range(5):
            await client.trajectory(id=f"t{n}", memory_mb=64).open()
        await until_taken(client)
        assert read_past(path).snapshot.seq >= 4
        assert alive(path, setup)[0] == [f"t{n}" for n in range(5)]
    await journal.close()


async def test_an_older_snapshot_replaces_no_newer_one(tmp_path) -> None:
    path, file = tmp_path / "journal.sqlite", tmp_path / "late"
    journal, _ = await open_journal(path)
    journal.compact(b"new", live=[], settled_after=0.0)
    file.write_bytes(b"old")
    journal.adopt(file, seq=-1, at=0.0, dead=[], settled_after=0.0)
    await journal.close()
    assert read_past(path).snapshot.body == b"new"
    assert not file.exists()


async def test_closing_gives_up_one_that_is_being_made(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_HERE", 0)
    path = tmp_path / "journal.sqlite"
    journal, past = await open_journal(path)
    async with fake_cluster(journal=journal, past=past, bounds=Bounds(compact_every=2)) as client:
        for n in range(4):
            await client.trajectory(id=f"t{n}", memory_mb=64).open()
        taking = client.orchestrator._driver._snapshots
        assert taking.is_taking
    await journal.close()
    async with asyncio.timeout(PATIENCE_S):
        while taking._process is not None:  # noqa: ASYNC110 - it is about to end
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.1)
    assert list(tmp_path.glob("*.snapshot-*")) == []
