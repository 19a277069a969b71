"""The journal as a SQLite file, written by one thread of its own.

- Many appends, one transaction: whatever waits when the thread is ready is committed together.
- One process owns the file at a time; a second one gets an error.
- Opening checks the file and its log: damage is an error with a name, never a shorter past.
- Only its owner may read it.
- Compaction moves entries to an archive, if one is named: for analysis, not for recovery.
"""

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from artangram.observe.archive import archive_entries, attach_archive
from artangram.observe.journal import (
    VERSION,
    Entry,
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalSnapshot,
    KeptRecord,
    Past,
    Settled,
    Then,
    decoded,
    only_read,
)
from artangram.observe.journalroom import JournalRoom
from artangram.observe.journalwal import CommitMark, num_lost_frames
from artangram.observe.retention import MB, JournalOptions, ResultsKeeper, Retention, Shorten

MOST_PER_COMMIT = 512
"""Appends in one transaction; the first of them waits for the last."""

_ENTRY = "entry (seq INTEGER PRIMARY KEY, at REAL NOT NULL, body TEXT NOT NULL)"
_TABLES = f"""
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS {_ENTRY};
CREATE TABLE IF NOT EXISTS kept (id TEXT PRIMARY KEY, key TEXT UNIQUE, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS settled (id TEXT PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS settled_at ON settled (at);
CREATE TABLE IF NOT EXISTS snapshot (seq INTEGER PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL);
"""

#: A name may be reused after its end; it then means the last one.
_KEEP = "INSERT INTO kept VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
_Work = Callable[[sqlite3.Connection], None]


async def open_journal(
    path: Path,
    *,
    sync: bool = False,
    max_bytes: int | None = None,
    archive: Path | None = None,
    keep: Retention = Retention(),  # noqa: B008 - it cannot be changed
    shorten: Shorten | None = None,
) -> tuple["FileJournal", Past]:
    """Open or make the journal at `path`, and read what it holds."""
    wishes = JournalOptions(
        sync=sync, max_bytes=max_bytes, archive=archive, keep=keep, shorten=shorten
    )
    return await asyncio.to_thread(_open, path, wishes, asyncio.get_running_loop())


def _open(
    path: Path, wishes: JournalOptions, loop: asyncio.AbstractEventLoop
) -> tuple["FileJournal", Past]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _lock(path)
    try:
        for file in (path, wishes.archive):
            if file is not None:
                os.close(_private(file))
        lost = num_lost_frames(path.with_name(path.name + "-wal"))
        if lost:
            raise JournalDamaged(f"{path}: its log is damaged, {lost} frames cannot be read")
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        mark = CommitMark(path.with_name(path.name + ".mark"))
        try:
            past = _prepare(database, wishes)
            _check_complete(past, mark)
        except BaseException as error:
            database.close()
            mark.close()
            if isinstance(error, sqlite3.Error):
                raise _attributed(error, path) from error
            if isinstance(error, JournalError):
                raise type(error)(f"{path}: {error}") from error
            raise
        opened = FileJournal(path, database, past, wishes=wishes, mark=mark, lock=lock, loop=loop)
        return opened, past
    except BaseException:
        os.close(lock)
        raise


def _check_complete(past: Past, mark: CommitMark) -> None:
    """Raises `JournalDamaged` if entries that were committed are gone."""
    last, lost = mark.read(), mark.read() - past.last_seq
    if lost > 0:
        raise JournalDamaged(
            f"its last {lost} of {last} entries are missing, because its log "
            f"({mark.path.stem}-wal) was cut or removed; restore it from a copy, or remove "
            f"{mark.path.name} to go on without what they accepted"
        )


def _private(path: Path) -> int:
    """A file that only its owner reads: commands and results may hold secrets.

    SQLite gives its log the rights of the file.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(path: Path) -> int:
    lock = _private(path.with_name(path.name + ".lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise JournalError(f"{path}: another orchestrator writes it; end that one first") from None
    return lock


def _prepare(database: sqlite3.Connection, wishes: JournalOptions) -> Past:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(f"PRAGMA synchronous = {'FULL' if wishes.sync else 'NORMAL'}")
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise JournalDamaged(f"{verdict}; restore it from a copy")
    database.executescript(_TABLES)
    version = _about(database, "version", str(VERSION).encode()).decode()
    if version != str(VERSION) and database.execute("SELECT 1 FROM entry").fetchone():
        raise JournalError(
            f"it has journal version {version}, this release reads version {VERSION}; "
            "start the release that wrote it, close its trajectories, stop it with SIGTERM so that "
            "it drains, then start this one"
        )
    past = _past(database)
    if wishes.max_bytes is not None:
        (page_size,) = database.execute("PRAGMA page_size").fetchone()
        database.execute(f"PRAGMA max_page_count = {wishes.max_bytes // page_size}")
    if wishes.archive is not None:
        attach_archive(database, wishes.archive, table=_ENTRY)
    return past


def _about(database: sqlite3.Connection, name: str, first: bytes) -> bytes:
    """A value of the table `about`; `first` if it has no such row yet."""
    read = "SELECT body FROM about WHERE name = ?"
    row = database.execute(read, (name,)).fetchone()
    if row is None:
        database.execute("INSERT INTO about VALUES (?, ?)", (name, first))
        return first
    return bytes(row[0])


def _past(database: sqlite3.Connection) -> Past:
    row = database.execute("SELECT seq, at, body FROM snapshot ORDER BY seq DESC").fetchone()
    snapshot = JournalSnapshot(seq=row[0], at=row[1], body=row[2]) if row is not None else None
    unsettled = database.execute(
        "SELECT id, key, body FROM kept WHERE id NOT IN (SELECT id FROM settled)"
    )
    return Past(
        owner=_about(database, "owner", b""),
        snapshot=snapshot,
        entries=tuple(decoded(database, after=snapshot.seq if snapshot is not None else 0)),
        kept={id: KeptRecord(id=id, key=key, body=body) for id, key, body in unsettled},
    )


def read_past(path: Path) -> Past:
    """What the journal at `path` holds now, all of one moment, while another process writes it."""
    database = sqlite3.connect(only_read(path), uri=True, isolation_level=None)
    try:
        database.execute("BEGIN")
        return _past(database)
    finally:
        database.close()


def _attributed(error: Exception, path: Path) -> JournalError:
    """The error as one of ours."""
    if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
        return JournalFull(f"{path}: no room for another entry; free some and start again")
    if isinstance(error, sqlite3.OperationalError) or not isinstance(error, sqlite3.Error):
        return JournalError(f"{path}: {error}")
    return JournalDamaged(f"{path}: {error}; restore it from a copy")


class FileJournal:
    """See `journal.Journal`. Make it with `open_journal`."""

    is_lasting = True

    def __init__(
        self,
        path: Path,
        database: sqlite3.Connection,
        past: Past,
        *,
        wishes: JournalOptions,
        mark: CommitMark,
        lock: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.path = path
        self._loop = loop
        self._lock = lock
        self._mark = mark
        self._seq = self._num_inserted = past.last_seq
        self._last_at = past.last_at
        self._encode = msgspec.json.Encoder().encode
        self._database = database
        self._keep = wishes.keep
        self._results: ResultsKeeper | None = None
        if wishes.shorten is not None:
            self._results = ResultsKeeper(database, wishes.keep.results_mb * MB, wishes.shorten)
        self._room = JournalRoom(path, free_mb=wishes.keep.free_mb)
        self._closing = threading.Event()
        self._reader = sqlite3.connect(only_read(path), uri=True, check_same_thread=False)
        #: Bounded by the orchestrator: no caller gets an answer before the commit.
        self._todo: queue.SimpleQueue[tuple[_Work, Then | None] | None] = queue.SimpleQueue()
        self._error: JournalError | None = None
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<FileJournal {self.path}: {self._seq} entries>"

    @property
    def warning(self) -> str:
        return self._room.warning

    @property
    def takes_more(self) -> bool:
        return self._room.takes_more

    def append(
        self,
        entry: Entry,
        *,
        kept: Sequence[KeptRecord] = (),
        settled: Sequence[Settled] = (),
        then: Then | None = None,
    ) -> int:
        self._seq += 1
        self._last_at = entry.at
        row = (self._seq, entry.at, self._encode(entry).decode())

        def insert(database: sqlite3.Connection) -> None:
            database.execute("INSERT INTO entry VALUES (?, ?, ?)", row)
            self._num_inserted = row[0]
            bodies = [*(one.body for one in kept), *(one.body for one in settled)]
            self._room.wrote(len(row[2]) + sum(map(len, bodies)))
            for item in kept:
                database.execute(_KEEP, (item.id, item.key, item.body))
            for end in settled:
                database.execute("INSERT INTO settled VALUES (?, ?, ?)", (end.id, end.at, end.body))
                if self._results is not None:
                    self._results.settled(end.body)
            if self._results is not None:
                self._results.prune(database)

        self._todo.put((insert, then))
        return self._seq

    def compact(
        self,
        snapshot: bytes,
        *,
        live: Iterable[str],
        settled_after: float,
        owner: bytes | None = None,
    ) -> None:
        seq, at, ids = self._seq, self._last_at, [(id,) for id in live]

        def shrink(database: sqlite3.Connection) -> None:
            _replace_entries(database, seq, at, snapshot, self._keep)
            self._forget(database, max(settled_after, at - self._keep.results_s))
            database.execute("CREATE TEMP TABLE live (id TEXT PRIMARY KEY)")
            database.executemany("INSERT INTO live VALUES (?)", ids)
            database.execute(
                "DELETE FROM kept WHERE id NOT IN (SELECT id FROM live)"
                " AND id NOT IN (SELECT id FROM settled)"
            )
            database.execute("DROP TABLE live")
            if owner is not None:
                database.execute("REPLACE INTO about VALUES ('owner', ?)", (owner,))
                version = str(VERSION).encode()
                database.execute("REPLACE INTO about VALUES ('version', ?)", (version,))

        self._todo.put((shrink, None))

    def adopt(
        self, snapshot: Path, *, seq: int, at: float, dead: Iterable[str], settled_after: float
    ) -> None:
        ids = [(id,) for id in dead]

        def shrink(database: sqlite3.Connection) -> None:
            body = snapshot.read_bytes()
            snapshot.unlink()
            newer = database.execute("SELECT 1 FROM snapshot WHERE seq >= ?", (seq,)).fetchone()
            if newer is not None:
                return
            _replace_entries(database, seq, at, body, self._keep)
            self._forget(database, max(settled_after, at - self._keep.results_s))
            database.executemany(
                "DELETE FROM kept WHERE id = ? AND id NOT IN (SELECT id FROM settled)", ids
            )

        self._todo.put((shrink, None))

    def _forget(self, database: sqlite3.Connection, until: float) -> None:
        """Results of that age, and what their ids stand for."""
        old = "SELECT id FROM settled WHERE at <= ?"
        database.execute(f"DELETE FROM kept WHERE id IN ({old})", (until,))
        database.execute("DELETE FROM settled WHERE at <= ?", (until,))
        if self._results is not None:
            self._results.recount(database)

    def kept(self, key: str) -> KeptRecord | None:
        row = self._reader.execute("SELECT id, body FROM kept WHERE key = ?", (key,)).fetchone()
        return None if row is None else KeptRecord(id=str(row[0]), key=key, body=bytes(row[1]))

    def settled(self, id: str) -> bytes | None:
        row = self._reader.execute("SELECT body FROM settled WHERE id = ?", (id,)).fetchone()
        return bytes(row[0]) if row is not None else None

    async def close(self) -> None:
        self._closing.set()
        self._todo.put(None)
        await asyncio.to_thread(self._thread.join)
        self._reader.close()
        self._database.close()
        self._mark.close()
        os.close(self._lock)

    def _write(self) -> None:
        """The thread: take what waits, commit it, notify the waiters."""
        is_open = True
        while is_open:
            batch = [self._todo.get()]
            while len(batch) < MOST_PER_COMMIT and not self._todo.empty():
                batch.append(self._todo.get())
            is_open = None not in batch
            items = [item for item in batch if item is not None]
            if self._error is None and items:
                self._error = self._commit([work for work, _ in items])
            waiting = [then for _, then in items if then is not None]
            if waiting:
                self._loop.call_soon_threadsafe(_tell, waiting, self._error)
            if self._error is None:
                self._closing.wait(self._room.pause_s(self._database))

    def _commit(self, works: list[_Work]) -> JournalError | None:
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            for work in works:
                work(database)
            database.execute("COMMIT")
            self._mark.write(self._num_inserted)
        except Exception as error:  # noqa: BLE001 - whatever it is, all waiters must get it
            if database.in_transaction:
                database.rollback()
            return _attributed(error, self.path)
        return None


def _replace_entries(
    database: sqlite3.Connection, seq: int, at: float, snapshot: bytes, keep: Retention
) -> None:
    """The snapshot stands for the entries up to `seq`."""
    archive_entries(database, seq, keep, now=at)
    database.execute("DELETE FROM snapshot")
    database.execute("INSERT INTO snapshot VALUES (?, ?, ?)", (seq, at, snapshot))
    database.execute("DELETE FROM entry WHERE seq <= ?", (seq,))


def _tell(waiting: list[Then], error: JournalError | None) -> None:
    for then in waiting:
        then(error)
