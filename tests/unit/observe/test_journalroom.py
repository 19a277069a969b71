"""A journal that runs out of room says so, slows its callers, and takes no new work in the end."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from artangram.observe import journalroom
from artangram.observe.journalfile import open_journal
from artangram.observe.journalroom import LONGEST_PAUSE_S, JournalRoom
from artangram.observe.retention import MB, Retention
from artangram.orchestrator.records import Overloaded
from artangram.testing.fakes import fake_cluster


class Disk:
    """A disk with as much free as the test says."""

    def __init__(self) -> None:
        self.free_bytes = 10_000 * MB

    def about(self, path: Path) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=self.free_bytes, f_frsize=1)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(journalroom, "os", SimpleNamespace(statvfs=disk.about))
    return disk


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:")
    yield opened
    opened.close()


def pause_s(room: JournalRoom, database: sqlite3.Connection, *, wrote: int) -> float:
    room.wrote(wrote)
    return room.pause_s(database)


def test_the_less_is_left_the_slower_it_grows(disk: Disk, database: sqlite3.Connection) -> None:
    room = JournalRoom(Path("j"), free_mb=512)
    pauses = []
    for left_mb in (10_000, 513, 511, 200, 80):
        disk.free_bytes = left_mb * MB
        pauses.append(pause_s(room, database, wrote=MB))
    assert pauses == pytest.approx([0.0, 0.0, 60 / 511, 60 / 200, 60 / 80])
    assert room.pause_s(database) == 0.0  # Nothing was written since.
    disk.free_bytes = 0
    assert pause_s(room, database, wrote=MB) == LONGEST_PAUSE_S


def test_it_warns_once_and_says_when_it_is_over(
    disk: Disk, database: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    room = JournalRoom(Path("j"), free_mb=512)
    disk.free_bytes = 300 * MB
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            pause_s(room, database, wrote=1)
    assert len(caplog.records) == 1
    assert "300 MB are left for it, so callers are slowed down" in room.warning
    disk.free_bytes = 63 * MB
    room.pause_s(database)
    assert not room.takes_more
    assert "no new action is accepted" in room.warning
    disk.free_bytes = 600 * MB
    room.pause_s(database)
    assert (room.warning, room.takes_more) == ("", True)


def test_pages_that_were_freed_are_room(disk: Disk, database: sqlite3.Connection) -> None:
    disk.free_bytes = 0
    database.execute("CREATE TABLE t (body BLOB)")
    database.execute("INSERT INTO t VALUES (?)", (b"x" * 3 * MB,))
    database.commit()
    room = JournalRoom(Path("j"), free_mb=2)
    room.pause_s(database)
    assert "0 MB are left" in room.warning
    database.execute("DELETE FROM t")
    database.commit()
    room.pause_s(database)
    assert room.warning == ""


async def test_a_service_without_room_takes_no_new_action_until_it_has_some(
    disk: Disk, tmp_path: Path
) -> None:
    journal, past = await open_journal(tmp_path / "journal.sqlite", keep=Retention(free_mb=80))
    async with (
        fake_cluster(journal=journal, past=past) as client,
        client.trajectory() as t,
        client.trajectory() as other,
    ):
        accepted = asyncio.create_task(t.run(["sleep", "10"]))
        await asyncio.sleep(1.0)
        disk.free_bytes = 9 * MB
        with pytest.raises(Overloaded, match=r"9 MB .*, so no new action is accepted"):
            await other.run(["true"])
        assert (await accepted).ok
        assert "free some disk space" in (await client.status()).warnings[0]
        disk.free_bytes = 80 * MB
        assert (await t.run(["true"])).ok
        assert (await client.status()).warnings == ()
    await journal.close()
