"""What has ended takes a bounded part of the disk, and a damaged archive stops nothing."""

import logging
import sqlite3
from pathlib import Path

import pytest

from artangram.core.errors import BadInput
from artangram.core.scheduling.events import ClockTicked
from artangram.observe.journal import Entry, JournalFull, KeptRecord, Settled
from artangram.observe.journalfile import FileJournal, open_journal
from artangram.observe.recording import recorded
from artangram.observe.retention import MB, Retention
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.records import without_output
from artangram.testing.fakes import fake_cluster


def an_entry(at: float) -> Entry:
    return Entry(at=at, events=(ClockTicked(),), decisions=())


async def test_chatty_programs_do_not_fill_the_disk(tmp_path: Path) -> None:
    path, keep = tmp_path / "journal.sqlite", Retention(results_mb=1)
    journal, past = await open_journal(path, keep=keep, shorten=without_output)
    async with fake_cluster(journal=journal, past=past) as client, client.trajectory() as t:
        ids = [
            (await t.run(["echo", "x" * 100_000], key=f"k{number}")).action_id
            for number in range(60)
        ]
        again = await t.run(["echo", "x" * 100_000], key="k0")
    await journal.close()
    assert again.action_id == ids[0]  # It did not run again.
    assert (again.ok, again.stdout) == (True, "")
    assert again.command is not None
    assert again.command.truncated_bytes == 100_001
    with sqlite3.connect(path) as database:
        (num_bytes,) = database.execute("SELECT sum(length(body)) FROM settled").fetchone()
    database.close()
    assert num_bytes <= MB  # Six were printed.
    journal, past = await open_journal(path, keep=keep, shorten=without_output)
    async with fake_cluster(journal=journal, past=past) as client:
        result = await client.orchestrator.receipt(ids[-1]).ended
        assert len(result.stdout) == 100_001  # The latest are whole.
    await journal.close()


async def settle(journal: FileJournal, number: int, *, at: float, body: bytes = b"x") -> None:
    name = f"action:{number}"
    kept = KeptRecord(id=name, body=b"what", key=f"key-{number}")
    journal.append(an_entry(at), kept=[kept], settled=[Settled(id=name, at=at, body=body)])


async def test_old_results_and_their_keys_are_forgotten(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path / "j.sqlite", keep=Retention(results_s=10.0))
    for number in range(20):
        await settle(journal, number, at=float(number))
    journal.compact(b"", live=[f"action:{n}" for n in range(20)], settled_after=-1.0)
    await journal.close()
    with sqlite3.connect(tmp_path / "j.sqlite") as database:
        for table in ("settled", "kept"):
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert (table, count) == (table, 10)
    database.close()


@pytest.mark.parametrize("keep", [Retention(archive_mb=1), Retention(archive_s=100.0)])
async def test_the_archive_loses_its_oldest_entries(tmp_path: Path, keep: Retention) -> None:
    path, archive = tmp_path / "journal.sqlite", tmp_path / "archive.sqlite"
    journal, _ = await open_journal(path, archive=archive, keep=keep)
    for number in range(1, 40):
        for _ in range(40):
            events = tuple(ClockTicked() for _ in range(60))
            journal.append(Entry(at=10.0 * number, events=events, decisions=()))
        journal.compact(b"", live=[], settled_after=0.0)
    await journal.close()
    entries = list(recorded(tmp_path))  # Raises if there were a gap.
    assert 0 < len(entries) < 39 * 40
    assert entries[-1].at == 390.0
    assert archive.stat().st_size < 4 * MB


async def test_a_damaged_archive_does_not_stop_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, archive = tmp_path / "journal.sqlite", tmp_path / "archive.sqlite"
    bounds = Bounds(compact_every=3)
    for damage in (b"", b"not a database at all" * 1000):
        if damage:
            archive.write_bytes(damage)
        with caplog.at_level(logging.WARNING):
            journal, past = await open_journal(path, archive=archive)
        async with (
            fake_cluster(journal=journal, past=past, bounds=bounds) as client,
            client.trajectory() as t,
        ):
            for _ in range(5):
                assert (await t.run(["true"])).ok
        await journal.close()
    assert "a new one begins" in caplog.text
    assert (tmp_path / "archive.sqlite.damaged").read_bytes() == damage
    assert archive.stat().st_mode & 0o777 == 0o600


async def test_a_full_disk_is_said_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path, errors, done = tmp_path / "journal.sqlite", [], []
    journal, _ = await open_journal(path, max_bytes=1 * MB, shorten=bytes)
    for number in range(200):
        name, body = f"action:{number}", b"y" * 20_000

        def then(error: Exception | None, number: int = number) -> None:
            (errors if error else done).append(error or number)

        end = Settled(id=name, at=float(number), body=body)
        journal.append(an_entry(float(number)), settled=[end], then=then)
    await journal.close()
    assert errors
    assert all(isinstance(error, JournalFull) for error in errors)
    journal, past = await open_journal(path)
    assert past.last_seq >= len(done)
    assert all(journal.settled(f"action:{number}") is not None for number in done)
    await journal.close()


@pytest.mark.parametrize("name", Retention.__struct_fields__)
def test_what_is_kept_is_positive(name: str) -> None:
    with pytest.raises(BadInput, match=f"keep.{name}"):
        Retention(**{name: 0})
