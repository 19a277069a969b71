"""The archive of a journal: entries that compaction removed, for analysis and not for recovery.

- A damaged archive stops nothing: it is put aside, and a new one begins.
- It loses its oldest entries by age and size, so that what it has stays without a gap.
"""

import logging
import sqlite3
from pathlib import Path

from artangram.observe.retention import MB, Retention

_LOG = logging.getLogger(__name__)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def attach_archive(database: sqlite3.Connection, path: Path, *, table: str) -> None:
    """Attach the archive at `path`, or a new one in its place if it is damaged."""
    try:
        _attach(database, path, table)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) not in _DAMAGE:
            raise
        if _has_archive(database):
            database.execute("DETACH DATABASE archive")
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        _LOG.warning("%s: %s; it is now %s, and a new one begins", path, error, aside.name)
        path.touch(mode=0o600)
        _attach(database, path, table)


def _attach(database: sqlite3.Connection, path: Path, table: str) -> None:
    database.execute("ATTACH DATABASE ? AS archive", (str(path),))
    database.execute("PRAGMA archive.journal_mode = WAL")
    database.execute(f"CREATE TABLE IF NOT EXISTS archive.{table}")
    database.execute("SELECT max(seq) FROM archive.entry").fetchone()


def archive_entries(database: sqlite3.Connection, seq: int, keep: Retention, *, now: float) -> None:
    """Copy the entries that will be removed, between two transactions.

    A transaction over both files is not atomic when the process dies or a disk is full: SQLite
    writes the journal first, and entries missing in the archive would be lost.
    """
    if not _has_archive(database):
        return
    database.execute("COMMIT")
    try:
        old = "SELECT * FROM main.entry WHERE seq <= ?"
        database.execute(f"INSERT OR IGNORE INTO archive.entry {old}", (seq,))
        prune_archive(database, keep, now=now)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) not in _DAMAGE:
            raise
        _LOG.warning("the archive is damaged: %s; nothing is archived until the next start", error)
        database.execute("DETACH DATABASE archive")
    database.execute("BEGIN IMMEDIATE")


def _has_archive(database: sqlite3.Connection) -> bool:
    return any(name == "archive" for _, name, _ in database.execute("PRAGMA database_list"))


def prune_archive(database: sqlite3.Connection, keep: Retention, *, now: float) -> None:
    """Delete the oldest entries of the attached archive: those too old, then those too many."""
    database.execute("DELETE FROM archive.entry WHERE at < ?", (now - keep.archive_s,))
    while _archive_bytes(database) > keep.archive_mb * MB:
        first, last = database.execute("SELECT min(seq), max(seq) FROM archive.entry").fetchone()
        if first is None or first == last:
            return
        tenth = first + max(1, (last - first) // 10)
        database.execute("DELETE FROM archive.entry WHERE seq < ?", (tenth,))


def _archive_bytes(database: sqlite3.Connection) -> int:
    """What its entries take; pages that were freed are used again."""
    sizes = [
        database.execute(f"PRAGMA archive.{name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    ]
    return int((sizes[0] - sizes[1]) * sizes[2])
