"""The snapshots of fake sandboxes, in memory; they end with their provider."""

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import msgspec

from artangram.sandbox.errors import CreateFailed
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms


@dataclass(slots=True, kw_only=True)
class _KeptFiles:
    files: dict[str, bytes]
    terms: SnapshotTerms
    layer: str
    made_at: float
    used_at: float


class FakeSnapshots:
    """By name; one that was idle for its time is forgotten when any is asked for."""

    def __init__(self) -> None:
        self._kept: dict[str, _KeptFiles] = {}
        self._archives: tempfile.TemporaryDirectory[str] | None = None

    def put(self, files: Mapping[str, bytes], terms: SnapshotTerms) -> Snapshot:
        return self._keep(dict(files), terms, uuid4().hex[:16])

    def _keep(self, files: dict[str, bytes], terms: SnapshotTerms, layer: str) -> Snapshot:
        name, now = terms.name or f"snapshot-{layer}", self._now()
        self._kept[name] = _KeptFiles(
            files=files, terms=terms, layer=layer, made_at=now, used_at=now
        )
        return Snapshot(name=name)

    def archive(self, snapshot: Snapshot) -> Path:
        if self._archives is None:
            self._archives = tempfile.TemporaryDirectory(prefix="artangram-fake-")
        return Path(self._archives.name) / quote(snapshot.name, safe="")

    def pack(self, snapshot: Snapshot) -> None:
        files, kept = self.used(snapshot), self._kept[snapshot.name]
        packed = msgspec.msgpack.encode((files, kept.terms, kept.layer))
        self.archive(snapshot).write_bytes(packed)

    def adopt(self, snapshot: Snapshot) -> None:
        try:
            packed = self.archive(snapshot).read_bytes()
            parts = msgspec.msgpack.decode(packed, type=tuple[dict[str, bytes], SnapshotTerms, str])
        except (OSError, msgspec.MsgspecError) as error:
            raise CreateFailed(f"no archive of {snapshot.name}: {error}") from error
        self._keep(*parts)

    def close(self) -> None:
        if self._archives is not None:
            self._archives.cleanup()

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
                layer=kept.layer,
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
