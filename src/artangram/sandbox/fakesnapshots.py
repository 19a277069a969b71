"""The snapshots of fake sandboxes, in memory; they end with their provider."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from artangram.sandbox.errors import CreateFailed
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms


@dataclass(slots=True, kw_only=True)
class _KeptFiles:
    files: dict[str, bytes]
    terms: SnapshotTerms
    made_at: float
    used_at: float


class FakeSnapshots:
    """By name; one that was idle for its time is forgotten when any is asked for."""

    def __init__(self) -> None:
        self._kept: dict[str, _KeptFiles] = {}
        self._numbers = count(1)

    def put(self, files: Mapping[str, bytes], terms: SnapshotTerms) -> Snapshot:
        name, now = terms.name or f"snapshot-{next(self._numbers)}", self._now()
        self._kept[name] = _KeptFiles(files=dict(files), terms=terms, made_at=now, used_at=now)
        return Snapshot(name=name)

    def used(self, snapshot: Snapshot) -> dict[str, bytes]:
        """The files of `snapshot`, for a sandbox. Raises `CreateFailed` if it is not known."""
        self._expire()
        kept = self._kept.get(snapshot.name)
        if kept is None:
            raise CreateFailed(f"no snapshot {snapshot.name!r}")
        kept.used_at = self._now()
        return dict(kept.files)

    def forget(self, snapshot: Snapshot) -> bool:
        return self._kept.pop(snapshot.name, None) is not None

    def listed(self) -> tuple[SnapshotInfo, ...]:
        self._expire()
        now = self._now()
        return tuple(
            SnapshotInfo(
                name=name,
                is_named=bool(kept.terms.name),
                size_bytes=sum(map(len, kept.files.values())),
                age_s=now - kept.made_at,
                idle_s=now - kept.used_at,
                keep_s=kept.terms.keep_s,
            )
            for name, kept in self._kept.items()
            if kept.terms.name or kept.terms.keep_s is not None
        )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _expire(self) -> None:
        now = self._now()
        for name, kept in list(self._kept.items()):
            if kept.terms.keep_s is not None and now - kept.used_at >= kept.terms.keep_s:
                del self._kept[name]
