"""Everything a state directory has of a live run: the journal and its archive.

- Entries come in order and without a gap, also while an orchestrator writes and compacts.
- Nothing is changed; `journaltrace.trace_of` makes a trace of what is found.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from artangram.core.errors import BadInput
from artangram.observe.journal import Entry, JournalDamaged, numbered, only_read

JOURNAL = "journal.sqlite"
ARCHIVE = "archive.sqlite"

# Shadows the journal's own table for `numbered`. Compaction copies before it deletes.
_WHOLE = """
CREATE TEMP VIEW entry AS
SELECT seq, body FROM archive.entry
UNION ALL
SELECT seq, body FROM main.entry WHERE seq > (SELECT coalesce(max(seq), 0) FROM archive.entry)
"""


def recorded(state_dir: Path) -> Iterator[Entry]:
    """Every entry that `state_dir` still has. Raises `BadInput` or `JournalDamaged`."""
    return (entry for _, entry in recorded_after(state_dir, 0))


def recorded_after(state_dir: Path, after: int) -> Iterator[tuple[int, Entry]]:
    """Those behind number `after`, each with its number."""
    with _opened(state_dir) as database:
        try:
            if (state_dir / ARCHIVE).exists():
                database.execute("ATTACH DATABASE ? AS archive", (only_read(state_dir / ARCHIVE),))
                database.execute(_WHOLE)
                # The journal first: entries that leave it are in the archive by then.
                database.execute("BEGIN")
                database.execute("SELECT max(seq) FROM main.entry").fetchone()
            yield from numbered(database, after=after)
        except sqlite3.DatabaseError as error:
            raise JournalDamaged(str(error)) from error


def owner_of(state_dir: Path) -> bytes:
    """The description that the orchestrator wrote last. Raises `BadInput`."""
    with _opened(state_dir) as database:
        try:
            row = database.execute("SELECT body FROM about WHERE name = 'owner'").fetchone()
        except sqlite3.DatabaseError as error:
            raise JournalDamaged(str(error)) from error
    return bytes(row[0]) if row is not None else b""


def _opened(state_dir: Path) -> closing[sqlite3.Connection]:
    path = state_dir / JOURNAL
    if not os.path.exists(path):  # Also if the directory cannot be read.
        fix = "name the --state-dir of `artangram up`"
        raise BadInput(str(state_dir), f"there is no {JOURNAL} in it", fix)
    return closing(sqlite3.connect(only_read(path), uri=True, isolation_level=None))
