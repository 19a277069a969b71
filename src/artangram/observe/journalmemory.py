"""A journal in memory: for embedded clusters and for tests on virtual time.

Everything is acknowledged at once. It remembers keys and the last `MOST_SETTLED` endings, so that
a caller that asks again gets the same answer; `entries` only if it is told to.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

from artangram.observe.journal import Entry, KeptRecord, Settled, Then

MOST_SETTLED = 10_000
"""Endings that are remembered, with their keys."""


class MemoryJournal:
    """See `journal.Journal`."""

    is_lasting = False
    path: Path | None = None
    warning = ""
    takes_more = True

    def __init__(self, *, keeps_entries: bool = False) -> None:
        self.entries: list[Entry] = []
        self._keeps_entries = keeps_entries
        self._seq = 0
        self._kept: dict[str, KeptRecord] = {}
        self._keys: dict[str, str] = {}
        self._settled: OrderedDict[str, bytes] = OrderedDict()

    def __repr__(self) -> str:
        return f"<MemoryJournal: {self._seq} entries seen>"

    def append(
        self,
        entry: Entry,
        *,
        kept: Sequence[KeptRecord] = (),
        settled: Sequence[Settled] = (),
        then: Then | None = None,
    ) -> int:
        self._seq += 1
        if self._keeps_entries:
            self.entries.append(entry)
        for item in kept:
            if item.key is not None:
                self._kept[item.key] = item
                self._keys[item.id] = item.key
        for end in settled:
            self._settle(end)
        if then is not None:
            then(None)
        return self._seq

    def _settle(self, end: Settled) -> None:
        if end.id not in self._keys:
            return  # No caller can ask for it again.
        self._settled[end.id] = end.body
        if len(self._settled) > MOST_SETTLED:
            oldest, _ = self._settled.popitem(last=False)
            del self._kept[self._keys.pop(oldest)]

    def compact(
        self,
        snapshot: bytes,
        *,
        live: Iterable[str],
        settled_after: float,
        owner: bytes | None = None,
    ) -> None:
        self.entries.clear()

    def adopt(
        self, snapshot: Path, *, seq: int, at: float, dead: Iterable[str], settled_after: float
    ) -> None:
        raise NotImplementedError("no other process reads it")

    def kept(self, key: str) -> KeptRecord | None:
        return self._kept.get(key)

    def settled(self, id: str) -> bytes | None:
        return self._settled.get(id)

    async def close(self) -> None:
        return
