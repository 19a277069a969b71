"""How much of what ended is kept: results with their outputs, and the archive of entries.

- Beyond `results_mb` the oldest results lose their outputs; that they ended, and how, stays until
  they are `results_s` old. A caller that asks again by a key never runs an action twice before.
- `archive` prunes the archive.
"""

import sqlite3
from collections.abc import Callable
from math import inf
from pathlib import Path

from msgspec import Struct

from artangram.core.errors import BadInput

MB = 1 << 20
_AT_ONCE = 64
"""Results that are shortened in one look; a transaction of many large ones would hold up others."""


class Retention(Struct, frozen=True, kw_only=True):
    """What a state directory keeps of what has ended."""

    results_s: float = 86_400.0
    """How long an ended action answers to its key and its id."""
    results_mb: int = 1024
    """What results may take with their outputs; beyond it the oldest lose these."""
    archive_s: float = 30 * 86_400.0
    """How long the archive keeps an entry, for `trace record` and `history`."""
    archive_mb: int = 4096
    free_mb: int = 512
    """What the disk should have left; below it the journal warns and slows its callers."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0 < getattr(self, name) < inf:
                raise BadInput(f"keep.{name}", "is not above 0", "give a positive number")


Shorten = Callable[[bytes], bytes]
"""A result without its outputs."""


class JournalOptions(Struct, frozen=True, kw_only=True):
    """How a journal is to be kept."""

    sync: bool = False
    """Whether every commit outlives a loss of power, at the cost of a disk flush."""
    max_bytes: int | None = None
    archive: Path | None = None
    keep: Retention = Retention()
    shorten: Shorten | None = None
    """How a result loses its outputs; without it results are bounded by their age only."""


class ResultsKeeper:
    """Bounds the table `settled`. Used by the one thread that writes it."""

    def __init__(self, database: sqlite3.Connection, most_bytes: int, shorten: Shorten) -> None:
        self._most_bytes = most_bytes
        self._shorten = shorten
        (self._num_bytes,) = database.execute(
            "SELECT coalesce(sum(length(body)), 0) FROM settled"
        ).fetchone()
        #: Results that ended before are short already.
        self._short_until = -inf

    def settled(self, body: bytes) -> None:
        self._num_bytes += len(body)

    def recount(self, database: sqlite3.Connection) -> None:
        """Some were deleted."""
        (self._num_bytes,) = database.execute(
            "SELECT coalesce(sum(length(body)), 0) FROM settled"
        ).fetchone()

    def prune(self, database: sqlite3.Connection) -> None:
        """Shorten the oldest results until the rest fits."""
        while self._num_bytes > self._most_bytes:
            rows = database.execute(
                "SELECT id, at, body FROM settled WHERE at > ? ORDER BY at LIMIT ?",
                (self._short_until, _AT_ONCE),
            ).fetchall()
            if not rows:
                return  # All are short: their number is bounded by their age.
            # Those that ended at the same instant as the last one are looked at together.
            last_at = rows[-1][1]
            rows += database.execute(
                "SELECT id, at, body FROM settled WHERE at = ?", (last_at,)
            ).fetchall()
            for id, _, body in dict((row[0], row) for row in rows).values():
                short = self._shorten(body)
                if len(short) < len(body):
                    database.execute("UPDATE settled SET body = ? WHERE id = ?", (short, id))
                    self._num_bytes -= len(body) - len(short)
            self._short_until = last_at
