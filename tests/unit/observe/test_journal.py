"""What the journal promises: nothing acknowledged is lost, and the past can be lived again."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from artangram.core.ids import ActionId, Resource, TrajectoryId
from artangram.core.scheduling.action import Action, Outcome
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.decisions import Decision, Start
from artangram.core.scheduling.events import (
    Cancelled,
    ClockTicked,
    Event,
    Finished,
    Submitted,
    TrajectoryClosed,
    TrajectoryOpened,
)
from artangram.core.scheduling.needs import parse_needs
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler
from artangram.core.scheduling.speedup import Amdahl
from artangram.observe.journal import (
    Entry,
    JournalDamaged,
    JournalError,
    JournalFull,
    KeptRecord,
    Past,
    ReplayDiverged,
    Settled,
    read_entries,
    replay,
)
from artangram.observe.journalfile import FileJournal, open_journal
from artangram.observe.journalmemory import MemoryJournal
from artangram.observe.journalwal import num_lost_frames

CLUSTER = ClusterSpec(
    pools={Resource("cpu"): CpuSpec(nodes=2, cores=4, memory_mb=1000, create_s=0.1)}
)


def a_scheduler(name: str = "elastic") -> Scheduler:
    return Scheduler(CLUSTER, policy(name))


def an_entry(at: float = 0.0, *events: Event) -> Entry:
    return Entry(at=at, events=events or (ClockTicked(),), decisions=())


class Crowd:
    """Random events for a scheduler, as they could happen."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.running: dict[ActionId, int] = {}
        self.now = 0.0
        self.num = 0

    def events(self) -> list[Event]:
        self.now += self.random.expovariate(2.0)
        return [self._event() for _ in range(self.random.randint(1, 3))]

    def _event(self) -> Event:
        if self.running and self.random.random() < 0.5:
            action_id = self.random.choice(sorted(self.running))
            outcome = self.random.choice([Outcome.SUCCEEDED, Outcome.INFRA_FAILED])
            return Finished(action_id, outcome, attempt=self.running.pop(action_id))
        self.num += 1
        if self.num % 7 == 0:
            return TrajectoryClosed(TrajectoryId(f"t{self.num - 6}"))
        if self.num % 7 == 1:
            return TrajectoryOpened(TrajectoryId(f"t{self.num}"), 300)
        if self.num % 11 == 0:
            return Cancelled(ActionId(f"a{self.num - 1}"))
        wide = parse_needs({"cpu": {"min": 1, "max": 4}}, elastic="cpu", speedup={"amdahl": 0.1})
        return Submitted(
            Action(
                id=ActionId(f"a{self.num}"),
                kind=self.random.choice("xyz"),
                needs=wide if self.num % 2 else parse_needs({"cpu": 1}),
                trajectory=TrajectoryId(f"t{self.num - self.num % 7 + 1}"),
                work_s=self.random.choice([None, 0.3, 7.1]),
                deadline_at=self.now + 3 if self.num % 5 == 0 else None,
                repeatable=self.num % 3 == 0,
            )
        )

    def hear(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                self.running[decision.lease.action_id] = decision.lease.attempt


def live_through(scheduler: Scheduler, crowd: Crowd, *, steps: int) -> list[Entry]:
    entries = []
    for _ in range(steps):
        events = crowd.events()
        decisions = scheduler.handle_all(events, crowd.now)
        crowd.hear(decisions)
        entries.append(Entry(at=crowd.now, events=tuple(events), decisions=tuple(decisions)))
    return entries


async def committed(journal: FileJournal, entry: Entry, **more: object) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def then(error: JournalError | None) -> None:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    journal.append(entry, then=then, **more)  # type: ignore[arg-type]
    await done


async def reopened(path: Path) -> Past:
    journal, past = await open_journal(path)
    await journal.close()
    return past


def scramble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def flip_a_bit(path: Path, *, at: float) -> None:
    """Flip a bit at that share of the file."""
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def cut_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite"


@pytest.mark.parametrize("name", ["elastic", "tangram", "pods"])
async def test_replay_decides_the_same_and_goes_on_the_same(path: Path, name: str) -> None:
    scheduler, crowd = a_scheduler(name), Crowd(seed=1)
    entries = live_through(scheduler, crowd, steps=200)
    journal, _ = await open_journal(path)
    for entry in entries:
        journal.append(entry)
    await journal.close()
    past, again = await reopened(path), a_scheduler(name)
    assert list(replay(past.entries, again)) == entries
    for _ in range(50):
        events = crowd.events()
        decisions = scheduler.handle_all(events, crowd.now)
        assert again.handle_all(events, crowd.now) == decisions
        crowd.hear(decisions)


async def test_another_scheduler_does_not_replay(path: Path) -> None:
    entries = live_through(a_scheduler("elastic"), Crowd(seed=1), steps=200)
    with pytest.raises(ReplayDiverged, match="run the version that wrote it"):
        list(replay(entries, a_scheduler("fcfs")))


async def test_commit_comes_before_the_answer(path: Path) -> None:
    journal, _ = await open_journal(path)
    await committed(journal, an_entry(1.5))
    assert [entry.at for entry in read_entries(path)] == [1.5]
    await journal.close()


async def test_many_appends_are_answered_in_order(path: Path) -> None:
    journal, _ = await open_journal(path)
    answered: list[int] = []
    for number in range(2000):
        journal.append(an_entry(number), then=lambda error, n=number: answered.append(n))
    await journal.close()
    await asyncio.sleep(0)
    assert answered == list(range(2000))
    assert len((await reopened(path)).entries) == 2000


async def test_what_an_id_stands_for_and_how_it_ended_is_kept(path: Path) -> None:
    journal, _ = await open_journal(path)
    kept = [KeptRecord(id="a", key="k", body=b"run"), KeptRecord(id="b", body=b"go")]
    await committed(journal, an_entry(), kept=kept)
    await committed(journal, an_entry(), settled=[Settled(id="a", at=0.0, body=b"done")])
    assert (journal.kept("k"), journal.kept("other")) == (kept[0], None)
    assert (journal.settled("a"), journal.settled("b")) == (b"done", None)
    await journal.close()
    assert set((await reopened(path)).kept) == {"b"}


async def test_a_second_ending_is_refused(path: Path) -> None:
    journal, _ = await open_journal(path)
    end = Settled(id="a", at=0.0, body=b"done")
    await committed(journal, an_entry(), settled=[end])
    with pytest.raises(JournalError, match="UNIQUE"):
        await committed(journal, an_entry(), settled=[end])
    await journal.close()


async def test_compaction_keeps_the_living(path: Path) -> None:
    journal, _ = await open_journal(path)
    for number, name in enumerate("abc"):
        await committed(journal, an_entry(number), kept=[KeptRecord(id=name, key=name, body=b"")])
    for name, at in (("a", 1.0), ("b", 9.0)):
        await committed(journal, an_entry(at), settled=[Settled(id=name, at=at, body=b"")])
    journal.compact(b"all of it", live=["c"], settled_after=5.0)
    await committed(journal, an_entry(10.0))
    assert [journal.kept(key) is not None for key in "abc"] == [False, True, True]
    await journal.close()
    past = await reopened(path)
    assert past.snapshot is not None
    assert (past.snapshot.seq, past.snapshot.at, past.snapshot.body) == (5, 9.0, b"all of it")
    assert [entry.at for entry in past.entries] == [10.0]
    assert past.last_at == 10.0


async def test_the_archive_has_what_compaction_removed(path: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive.sqlite"
    journal, _ = await open_journal(path, archive=archive)
    for number in range(9):
        await committed(journal, an_entry(number))
        if number in (3, 6):
            journal.compact(b"", live=[], settled_after=0.0)
    await journal.close()
    assert [entry.at for entry in read_entries(archive)] == list(range(7))
    assert [entry.at for entry in read_entries(path)] == [7.0, 8.0]


async def test_full_disk_is_told_and_what_was_acknowledged_stays(path: Path) -> None:
    journal, _ = await open_journal(path, max_bytes=200_000)
    acknowledged: list[int] = []

    async def fill() -> None:
        for number in range(10_000):
            await committed(
                journal, an_entry(number), kept=[KeptRecord(id=f"{number}", body=b"x" * 999)]
            )
            acknowledged.append(number)

    with pytest.raises(JournalFull, match="free some"):
        await fill()
    with pytest.raises(JournalFull):
        await committed(journal, an_entry(0.0))
    await journal.close()
    assert 10 < len((await reopened(path)).entries) == len(acknowledged)


async def test_what_sqlite_does_not_even_take_is_told_too(path: Path) -> None:
    journal, _ = await open_journal(path)
    await committed(journal, an_entry(1.0))
    async with asyncio.timeout(10.0):
        with pytest.raises(JournalError, match="surrogates not allowed"):
            await committed(journal, an_entry(2.0), kept=[KeptRecord(id="\udc80", body=b"")])
        with pytest.raises(JournalError, match="surrogates not allowed"):
            await committed(journal, an_entry(3.0))
    await journal.close()
    assert [entry.at for entry in (await reopened(path)).entries] == [1.0]


@pytest.mark.parametrize("name", ["a#b", "a?mode=rw", "a%20b", "a b", "file:a"])
async def test_a_state_directory_may_have_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "journal.sqlite"
    journal, _ = await open_journal(path, archive=path.with_name("archive.sqlite"))
    await committed(journal, an_entry(1.0), kept=[KeptRecord(id="a", key="k", body=b"")])
    assert journal.kept("k") == KeptRecord(id="a", key="k", body=b"")
    await journal.close()
    assert [entry.at for entry in read_entries(path)] == [1.0]


async def test_two_owners_are_one_too_many(path: Path) -> None:
    journal, _ = await open_journal(path)
    with pytest.raises(JournalError, match="another orchestrator"):
        await open_journal(path)
    await journal.close()


async def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    place = tmp_path / "state"
    journal, _ = await open_journal(place / "j.sqlite", archive=place / "a.sqlite")
    modes = {file.name: file.stat().st_mode & 0o777 for file in place.iterdir()}
    await journal.close()
    assert {"j.sqlite", "j.sqlite-wal", "j.sqlite.lock", "a.sqlite", "a.sqlite-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert place.stat().st_mode & 0o777 == 0o700


async def test_the_owner_that_was_named_last_is_remembered(path: Path) -> None:
    owners = []
    for owner in (b"fcfs", b"elastic", None, b"pods"):
        journal, past = await open_journal(path)
        owners.append(past.owner)
        journal.compact(b"", live=[], settled_after=0.0, owner=owner)
        await journal.close()
    assert owners == [b"", b"fcfs", b"elastic", b"elastic"]


async def test_a_torn_file_is_damage(path: Path) -> None:
    journal, _ = await open_journal(path)
    for number in range(300):
        await committed(journal, an_entry(number))
    await journal.close()
    scramble(path)
    with pytest.raises(JournalDamaged, match="restore it"):
        await open_journal(path)


async def test_a_missing_entry_is_damage(path: Path) -> None:
    journal, _ = await open_journal(path)
    for number in range(3):
        await committed(journal, an_entry(number))
    await journal.close()
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM entry WHERE seq = 2")
    database.close()
    with pytest.raises(JournalDamaged, match="entry 2 is missing"):
        await open_journal(path)


_WRITER = """
import asyncio, sys
from pathlib import Path
from artangram.core.scheduling.events import ClockTicked
from artangram.observe.journal import Entry
from artangram.observe.journalfile import open_journal

async def main():
    journal, _ = await open_journal(Path(sys.argv[1]))
    number = 0
    while True:
        done = asyncio.get_running_loop().create_future()
        entry = Entry(at=float(number), events=(ClockTicked(),), decisions=())
        journal.append(entry, then=done.set_result)
        await done
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


def killed_writer(path: Path) -> int:
    """The last number a writer acknowledged before it was killed."""
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    with writer.stdout:
        for line in writer.stdout:
            if int(line) == 60:
                break
        writer.send_signal(signal.SIGKILL)
        last = [int(line) for line in writer.stdout if line.endswith("\n")]
    writer.wait()
    return last[-1] if last else 60


async def test_kill_9_loses_nothing_acknowledged(path: Path) -> None:
    last = killed_writer(path)
    entries = (await reopened(path)).entries
    assert [entry.at for entry in entries][: last + 1] == list(range(last + 1))
    assert len(entries) - (last + 1) <= 1


async def test_a_damaged_log_is_told_not_shortened(path: Path) -> None:
    killed_writer(path)
    log = path.with_name(path.name + "-wal")
    assert num_lost_frames(log) == 0
    flip_a_bit(log, at=0.5)
    with pytest.raises(JournalDamaged, match="its log is damaged"):
        await open_journal(path)


@pytest.mark.parametrize("part", [0.0, 0.5], ids=["missing", "cut"])
async def test_a_log_that_was_cut_or_removed_is_told_not_shortened(path: Path, part: float) -> None:
    killed_writer(path)
    log = path.with_name(path.name + "-wal")
    data = log.read_bytes()
    log.unlink()
    if part:
        log.write_bytes(data[: int(part * len(data))])
    for _ in range(2):  # Looking does not repair it.
        with pytest.raises(JournalDamaged, match=r"entries are missing.*journal.sqlite.mark"):
            await open_journal(path)
    path.with_name("journal.sqlite.mark").unlink()
    kept = (await reopened(path)).entries
    assert (await reopened(path)).entries == kept


async def test_a_torn_last_frame_was_never_acknowledged(path: Path) -> None:
    killed_writer(path)
    mark = path.with_name("journal.sqlite.mark")
    mark.write_text(f"{int(mark.read_text()) - 1:020d}")  # It is written after the commit.
    log = path.with_name(path.name + "-wal")
    flip_a_bit(log, at=1.0)
    assert num_lost_frames(log) == 0
    cut_last_byte(log)
    assert (await reopened(path)).entries


_LONG_WRITER = """
import os, random, signal, sqlite3, sys

database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 10")  # Pages in memory: the rest goes to the log early.
database.execute("BEGIN")
chance = random.Random(0)
for number in range(3000):
    row = (str(number), str(chance.random()), b"")
    database.execute("INSERT INTO kept VALUES (?, ?, ?)", row)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_in_a_long_transaction(path: Path) -> None:
    subprocess.run([sys.executable, "-c", _LONG_WRITER, str(path)], check=False)


async def test_a_long_transaction_that_was_killed_is_no_damage(path: Path) -> None:
    journal, _ = await open_journal(path)
    await committed(journal, an_entry())
    await journal.close()
    killed_in_a_long_transaction(path)
    past = await reopened(path)
    assert (len(past.entries), past.kept) == (1, {})


def test_memory_journal_answers_the_same_key_with_the_same_ending() -> None:
    journal, answered = MemoryJournal(), []
    journal.append(an_entry(), kept=[KeptRecord(id="a", key="k", body=b"")], then=answered.append)
    journal.append(an_entry(), settled=[Settled(id="a", at=0.0, body=b"done")])
    assert answered == [None]
    assert (journal.kept("k"), journal.settled("a")) == (
        KeptRecord(id="a", key="k", body=b""),
        b"done",
    )


def test_events_and_decisions_survive_the_file_exactly() -> None:
    for entry in live_through(a_scheduler(), Crowd(seed=3), steps=100):
        assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry
    assert Amdahl(0.1) == msgspec.json.decode(msgspec.json.encode(Amdahl(0.1)), type=Amdahl)
