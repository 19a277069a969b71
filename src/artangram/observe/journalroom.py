"""How much room is left for the journal, and how long its callers wait for that.

- Below `Retention.free_mb` it warns, once, and every commit is followed by a pause: as long as it
  would take to write the same amount if what is left were to last for `LASTS_S`. So the closer the
  end is, the slower the journal grows, and its callers, who wait for it, with it.
- Below an eighth of that it takes no new action, so that those accepted can end.
- Pages that SQLite has freed count as room: a journal that does not grow is not slowed.
"""

import logging
import os
import sqlite3
from pathlib import Path

from artangram.observe.retention import MB

LASTS_S = 60.0
LONGEST_PAUSE_S = 2.0
"""Callers that wait longer believe that the service is gone."""
_LAST = 8
_LOG = logging.getLogger(__name__)


class JournalRoom:
    """Of one journal. The thread that writes it calls `wrote` and `pause_s`, others only look."""

    def __init__(self, path: Path, *, free_mb: int) -> None:
        self._path = path
        self._wanted = free_mb * MB
        self._num_written = 0
        #: Pages of the file that are free.
        self._free_bytes = 0
        self._has_warned = False

    @property
    def warning(self) -> str:
        """What is short, and what to do; empty if nothing is."""
        left = self._left()
        if left >= self._wanted:
            return ""
        follows = "callers are slowed down" if self.takes_more else "no new action is accepted"
        return (
            f"{self._path}: {left // MB} MB are left for it, so {follows}; free some "
            "disk space, or keep less (`keep` of the cluster's file)"
        )

    @property
    def takes_more(self) -> bool:
        return self._left() >= self._wanted / _LAST

    def wrote(self, num_bytes: int) -> None:
        self._num_written += num_bytes

    def pause_s(self, database: sqlite3.Connection) -> float:
        """How long to wait after a commit of what was written since the last time."""
        written, self._num_written = self._num_written, 0
        self._free_bytes = _freed(database)
        left = self._left()
        if left >= self._wanted:
            self._has_warned = False
            return 0.0
        if not self._has_warned:
            _LOG.warning("%s", self.warning)
        self._has_warned = True
        return min(LONGEST_PAUSE_S, LASTS_S * written / max(1, left))

    def _left(self) -> int:
        about = os.statvfs(self._path.parent)
        return about.f_bavail * about.f_frsize + self._free_bytes


def _freed(database: sqlite3.Connection) -> int:
    names = ("main.freelist_count", "main.page_size")
    free, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return int(free * size)
