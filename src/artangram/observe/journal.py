"""The journal: every event and decision in order, in SQLite, committed before it is acknowledged.

- An `Entry` is one instant's events and what was decided from them. Feeding the events of all
  entries, in order and at their times, to a new scheduler gives the same decisions (`replay`).
- Beside the events it keeps what must outlive a crash and is opaque here: what an id stands for
  (`KeptRecord`, with the caller's idempotency key) and how it ended (`Settled`).
- `append` returns at once; `then` is called after the commit, or with the error that prevented it.
  After one error nothing more is written: what was acknowledged before is on disk.
- A commit outlives the process at once, and the machine's power only with `sync=True`.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from artangram.core.scheduling.decisions import Decision
from artangram.core.scheduling.events import Event
from artangram.core.scheduling.scheduler import Scheduler

VERSION = 2
"""Of what entries, records and snapshots say. A journal of another version is read only when it was
drained: then nothing in it is needed to go on."""


class JournalError(Exception):
    """The journal cannot do its work; the message says what to do."""


class JournalDamaged(JournalError):
    """What was written before cannot be read back."""


class JournalFull(JournalError):
    """There is no room for another entry."""


class ReplayDiverged(JournalError):
    """The scheduler decides otherwise than it did: it is not the one that wrote the journal."""


class Entry(Struct, frozen=True, kw_only=True):
    """One instant: what happened and what was decided."""

    at: float
    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]


class KeptRecord(Struct, frozen=True, kw_only=True):
    """What an id stands for, as its owner encoded it."""

    id: str
    body: bytes
    key: str | None = None
    """The caller's own name for it; the same key never stands for two ids."""


class Settled(Struct, frozen=True, kw_only=True):
    """How an id ended, as its owner encoded it."""

    id: str
    at: float
    body: bytes


class JournalSnapshot(Struct, frozen=True, kw_only=True):
    """The whole state after the entry `seq`, opaque here."""

    seq: int
    at: float
    body: bytes


Then = Callable[[JournalError | None], None]
"""Called in the event loop once an append is on disk, or can never be."""


class Journal(Protocol):
    """Where an orchestrator writes before it answers."""

    @property
    def is_lasting(self) -> bool:
        """Does it outlive its process, so that a snapshot is worth making?"""
        ...

    @property
    def warning(self) -> str:
        """What it is short of, and what to do; empty if of nothing."""
        ...

    @property
    def takes_more(self) -> bool:
        """Has it room for new actions, beside the ends of those that it has?"""
        ...

    def append(
        self,
        entry: Entry,
        *,
        kept: Sequence[KeptRecord] = (),
        settled: Sequence[Settled] = (),
        then: Then | None = None,
    ) -> int:
        """Write an entry; returns its number."""
        ...

    def compact(
        self,
        snapshot: bytes,
        *,
        live: Iterable[str],
        settled_after: float,
        owner: bytes | None = None,
    ) -> None:
        """Replace all entries so far by `snapshot`, and the owner by another, if one is named.

        Of what is kept, `live` ids and those settled after `settled_after` stay.
        """

    @property
    def path(self) -> Path | None:
        """Where another process can read it, if any can."""
        ...

    def adopt(
        self, snapshot: Path, *, seq: int, at: float, dead: Iterable[str], settled_after: float
    ) -> None:
        """Replace the entries up to `seq` by what is in the file `snapshot`, and remove that file.

        Of what is kept, `dead` ids go, but for those settled after `settled_after`. Nothing changes
        if a later snapshot was taken meanwhile.
        """

    def kept(self, key: str) -> KeptRecord | None:
        """What `key` stands for, if it was used and is still remembered."""
        ...

    def settled(self, id: str) -> bytes | None:
        """How `id` ended, if it has and is still remembered."""
        ...

    async def close(self) -> None:
        """Return when everything appended is on disk (or was refused)."""
        ...


class Past(Struct, frozen=True, kw_only=True):
    """What a journal held when it was opened."""

    owner: bytes
    """What `compact` was told last: cluster and policy, opaque here. Empty if nothing was."""
    snapshot: JournalSnapshot | None
    entries: tuple[Entry, ...]
    kept: dict[str, KeptRecord]
    """What the ids that have not settled stand for."""

    @property
    def is_empty(self) -> bool:
        return self.snapshot is None and not self.entries

    @property
    def last_seq(self) -> int:
        """The number of the last entry; 0 for an empty journal."""
        return (self.snapshot.seq if self.snapshot is not None else 0) + len(self.entries)

    @property
    def last_at(self) -> float:
        """The time of the last entry; a clock that goes on from here never goes back."""
        if self.entries:
            return self.entries[-1].at
        return self.snapshot.at if self.snapshot is not None else 0.0


def replay(entries: Iterable[Entry], scheduler: Scheduler) -> Iterator[Entry]:
    """Feed `entries` to `scheduler`; each one is yielded once it decided the same again."""
    for entry in entries:
        decisions = scheduler.handle_all(entry.events, entry.at)
        if tuple(decisions) != entry.decisions:
            raise ReplayDiverged(
                f"at {entry.at:.6f} s the scheduler decides {decisions!r}, the journal says "
                f"{list(entry.decisions)!r}; run the version that wrote it"
            )
        yield entry


def read_entries(path: Path) -> Iterator[Entry]:
    """The entries of a journal file, for readers that only look. Raises `JournalDamaged`."""
    if not path.exists():
        raise JournalError(f"{path}: no such journal")
    database = sqlite3.connect(only_read(path), uri=True)
    try:
        yield from decoded(database, after=0)
    except sqlite3.DatabaseError as error:
        raise JournalDamaged(f"{path}: {error}; restore it from a copy") from error
    finally:
        database.close()


def only_read(path: Path) -> str:
    """The address under which SQLite opens `path`, whatever is in its name, and writes nothing."""
    return f"{path.absolute().as_uri()}?mode=ro"


def decoded(database: sqlite3.Connection, *, after: int) -> Iterator[Entry]:
    """The entries behind number `after`; they must follow each other without a gap."""
    return (entry for _, entry in numbered(database, after=after))


def numbered(database: sqlite3.Connection, *, after: int) -> Iterator[tuple[int, Entry]]:
    """The same, each with its number."""
    decode = msgspec.json.Decoder(Entry).decode
    expected = after
    rows = database.execute("SELECT seq, body FROM entry WHERE seq > ? ORDER BY seq", (after,))
    for seq, body in rows:
        if expected and seq != expected + 1:
            raise JournalDamaged(f"entry {expected + 1} is missing; restore it from a copy")
        expected = seq
        try:
            yield seq, decode(body)
        except msgspec.MsgspecError as error:
            raise JournalDamaged(f"entry {seq} cannot be read: {error}") from error
