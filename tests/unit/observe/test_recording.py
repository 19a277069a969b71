"""A state directory gives back all that a live run did, and the simulator does it again."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from statistics import mean

import pytest

from artangram.cli import main
from artangram.core.errors import BadInput
from artangram.core.scheduling.events import ClockTicked
from artangram.observe.journal import Entry, JournalDamaged
from artangram.observe.journalfile import FileJournal, open_journal
from artangram.observe.recording import owner_of, recorded
from artangram.orchestrator.client import Client
from artangram.orchestrator.local import local
from artangram.orchestrator.options import between
from artangram.orchestrator.records import ActionResult
from artangram.sandbox.fake import FakeProvider


def an_entry(at: float) -> Entry:
    return Entry(at=at, events=(ClockTicked(),), decisions=())


async def a_journal(state_dir: Path) -> FileJournal:
    archive = state_dir / "archive.sqlite"
    journal, _ = await open_journal(state_dir / "journal.sqlite", archive=archive)
    return journal


async def written(journal: FileJournal, *times: float) -> None:
    """Append entries and wait until they are on disk."""
    for at in times:
        done = asyncio.get_running_loop().create_future()
        journal.append(an_entry(at), then=done.set_result)
        await done


async def test_entries_before_and_after_a_compaction_come_in_order(tmp_path: Path) -> None:
    journal = await a_journal(tmp_path)
    await written(journal, 1.0, 2.0)
    journal.compact(b"", live=[], settled_after=0.0)
    await written(journal, 3.0)
    assert [entry.at for entry in recorded(tmp_path)] == [1.0, 2.0, 3.0]
    journal.compact(b"", live=[], settled_after=0.0)
    await written(journal, 4.0)
    await journal.close()
    assert [entry.at for entry in recorded(tmp_path)] == [1.0, 2.0, 3.0, 4.0]


async def test_compaction_while_reading_loses_and_repeats_nothing(tmp_path: Path) -> None:
    journal = await a_journal(tmp_path)
    await written(journal, 1.0, 2.0, 3.0)
    reading = recorded(tmp_path)
    first = next(reading)
    journal.compact(b"", live=[], settled_after=0.0)
    await written(journal, 4.0)
    assert [first.at, *(entry.at for entry in reading)] == [1.0, 2.0, 3.0]
    await journal.close()


async def test_compaction_cut_short_repeats_nothing(tmp_path: Path) -> None:
    journal = await a_journal(tmp_path)
    await written(journal, 1.0, 2.0)
    await journal.close()
    with closing(sqlite3.connect(tmp_path / "archive.sqlite")) as archive:
        archive.execute("ATTACH DATABASE ? AS journal", (str(tmp_path / "journal.sqlite"),))
        archive.execute("INSERT INTO main.entry SELECT * FROM journal.entry")
        archive.commit()
    assert [entry.at for entry in recorded(tmp_path)] == [1.0, 2.0]


_NO_ROOM_TO_ARCHIVE = """
import asyncio, resource, sqlite3, sys
from pathlib import Path
from artangram.core.scheduling.events import Cancelled
from artangram.core.ids import ActionId
from artangram.observe.journal import Entry
from artangram.observe.journalfile import open_journal

MOST_BYTES = 500_000

async def main(state_dir):
    path, archive = state_dir / "journal.sqlite", state_dir / "archive.sqlite"
    journal, _ = await open_journal(path, archive=archive)
    reader, other = sqlite3.connect(archive, isolation_level=None), sqlite3.connect(path)

    async def appended(first, last):
        for number in range(first, last):
            done = asyncio.get_running_loop().create_future()
            event = Cancelled(ActionId("x" * 4000), "")
            entry = Entry(at=float(number), events=(event,), decisions=())
            journal.append(entry, then=done.set_result)
            error = await done
        return error

    await appended(0, 100)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM entry").fetchall()  # Now the archive's log can only grow.
    journal.compact(b"", live=[], settled_after=0.0)
    assert await appended(100, 200) is None
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # That of the journal begins anew.
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    journal.compact(b"", live=[], settled_after=0.0)
    assert await appended(200, 201) is not None
    await journal.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_what_cannot_be_archived_stays_in_the_journal(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _NO_ROOM_TO_ARCHIVE, str(tmp_path)], check=True)
    assert [entry.at for entry in recorded(tmp_path)] == list(range(200))


async def test_journal_without_an_archive_is_enough(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path / "journal.sqlite")
    journal.compact(b"", live=[], settled_after=0.0, owner=b"me")
    await written(journal, 1.0)
    await journal.close()
    assert [entry.at for entry in recorded(tmp_path)] == [1.0]
    assert owner_of(tmp_path) == b"me"


async def test_lost_archive_is_said_and_not_skipped(tmp_path: Path) -> None:
    journal = await a_journal(tmp_path)
    await written(journal, 1.0)
    journal.compact(b"", live=[], settled_after=0.0)
    await written(journal, 2.0)
    journal.compact(b"", live=[], settled_after=0.0)
    await written(journal, 3.0)
    await journal.close()
    (tmp_path / "archive.sqlite").write_bytes(b"no database, but as long as the head of one" * 9)
    with pytest.raises(JournalDamaged, match="not a database"):
        list(recorded(tmp_path))


def test_folder_without_a_journal_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no journal"):
        list(recorded(tmp_path))


async def one_agent(client: Client, number: int) -> list[ActionResult]:
    async with client.trajectory(id=f"t{number}", task="swe", memory_mb=64) as t:
        await asyncio.sleep(0.1 * number)
        first = await t.run(["sleep", "0.4"], kind="tool")
        await asyncio.sleep(0.2)
        return [first, await t.run(["sleep", "0.6"], kind="suite", cpu=between(1, 2))]


def test_recorded_live_run_has_about_the_same_acts_in_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def live() -> list[ActionResult]:
        provider = FakeProvider()
        # Two cores for three trajectories that arrive soon after each other: some wait.
        async with local(
            cores=2, memory_mb=1024, state_dir=tmp_path, policy="fcfs", provider=provider
        ) as client:
            ended = await asyncio.gather(*(one_agent(client, number) for number in range(3)))
        return [result for results in ended for result in results]

    def verb(*argv: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["artangram", *map(str, argv)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capfd.readouterr().out

    results = asyncio.run(live())
    trace, cluster = tmp_path / "live.jsonl", tmp_path / "live.yaml"
    assert "3 trajectories, 6 actions" in verb(
        "trace", "record", tmp_path, trace, "--cluster", cluster
    )
    options = ["--cluster", cluster, "--trace", trace, "--policy", "fcfs", "--json", "-"]
    report = json.loads(verb("simulate", *options))
    assert report["actions"] == 6
    assert report["act"]["mean_s"] == pytest.approx(mean(r.act_s for r in results), rel=0.15)
    assert report["act"]["wait_mean_s"] == pytest.approx(mean(r.wait_s for r in results), abs=0.1)
