"""Snapshots of a node as files that travel to other nodes, in parts, with a checksum.

- `travel` moves one from an agent to another: this process holds one part of it at a time.
- Every verb says what shall be, so it may be asked again: a link that breaks costs nothing.
- A node keeps the latest few archives that it packed, and none of those that came.
"""

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import NoneType
from typing import Any, ParamSpec, Protocol, TypeVar

from msgspec import structs

from artangram.aio import uncancelled
from artangram.managers import wire
from artangram.managers.agent import SnapshotArchive, SnapshotArchives
from artangram.managers.providers import NodeProviders
from artangram.sandbox.errors import SandboxError
from artangram.sandbox.protocol import Snapshot

PART_BYTES = 4 << 20
MOST_KEPT = 8
"""Archives that a node keeps: at least as many as may be under way at once."""

P = ParamSpec("P")
T = TypeVar("T")


async def travel(
    snapshot: Snapshot,
    *,
    source: SnapshotArchives,
    target: SnapshotArchives,
    provider: str = "",
) -> SnapshotArchive:
    """Return when `target` has what `source` has, with its `provider` of that kind.

    Raises `SandboxError`.
    """
    there = structs.replace(snapshot, provider=provider)
    archive = await source.pack(snapshot)
    offset = 0
    while offset < archive.size_bytes:
        part = await source.read(snapshot, offset)
        if not part:
            raise SandboxError(f"the archive of {snapshot.name} ends at {offset} bytes")
        await target.write(there, offset, data=part)
        offset += len(part)
    await target.adopt(there, archive)
    return archive


class LocalArchives:
    """See `agent.SnapshotArchives`; of the providers of this node."""

    def __init__(self, providers: NodeProviders) -> None:
        self._providers = providers
        #: By the layer of what was packed: a name may mean another one by now.
        self._packed: OrderedDict[str, tuple[Path, SnapshotArchive]] = OrderedDict()
        #: One snapshot is packed or adopted at a time: both take the disk for themselves.
        self._turn = asyncio.Lock()
        self._adopted = ""

    async def pack(self, snapshot: Snapshot) -> SnapshotArchive:
        path, provider = self._path(snapshot), self._providers.named(snapshot.provider)
        async with self._turn:
            listed = {one.name: one.layer for one in await provider.snapshots()}
            layer = listed.get(snapshot.name, "")
            if layer not in self._packed or not path.exists():
                await provider.pack(snapshot)
                self._packed[layer] = path, await self._on_disk(_looked_at, path)
            self._packed.move_to_end(layer)
            while len(self._packed) > MOST_KEPT:
                self._packed.popitem(last=False)[1][0].unlink(missing_ok=True)
            return self._packed[layer][1]

    async def read(self, snapshot: Snapshot, offset: int) -> bytes:
        return await self._on_disk(_part_at, self._path(snapshot), offset)

    async def write(self, snapshot: Snapshot, offset: int, *, data: bytes) -> None:
        await self._on_disk(_write_at, self._path(snapshot), offset, data)

    async def adopt(self, snapshot: Snapshot, archive: SnapshotArchive) -> None:
        path = self._path(snapshot)
        async with self._turn:
            try:
                if snapshot.name == self._adopted and not path.exists():
                    return  # The answer got lost.
                if await self._on_disk(_looked_at, path) != archive:
                    raise SandboxError(f"the archive of {snapshot.name} was damaged on its way")
                await self._providers.named(snapshot.provider).adopt(snapshot)
                self._adopted = snapshot.name
            finally:
                path.unlink(missing_ok=True)

    def _path(self, snapshot: Snapshot) -> Path:
        return self._providers.named(snapshot.provider).archive(snapshot)

    async def _on_disk(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await uncancelled(asyncio.to_thread(work, *args, **kwargs))
        except OSError as error:
            raise SandboxError(f"a snapshot on its way: {error}") from error


class AskAgent(Protocol):
    """See `remote.RemoteAgent`."""

    def __call__(
        self, record: wire.OfArchives, answer: type[T], *, stream: str = ""
    ) -> Coroutine[Any, Any, T]: ...


class RemoteArchives:
    """See `agent.SnapshotArchives`; of an agent in a process of its own."""

    def __init__(self, ask: AskAgent) -> None:
        self._ask = ask

    async def pack(self, snapshot: Snapshot) -> SnapshotArchive:
        return await self._ask(wire.PackSnapshot(snapshot), SnapshotArchive)

    async def read(self, snapshot: Snapshot, offset: int) -> bytes:
        stream = f"archive {snapshot.name}"
        return await self._ask(wire.ReadArchive(snapshot, offset), bytes, stream=stream)

    async def write(self, snapshot: Snapshot, offset: int, *, data: bytes) -> None:
        stream = f"archive {snapshot.name}"
        await self._ask(wire.WriteArchive(snapshot, offset, data), NoneType, stream=stream)

    async def adopt(self, snapshot: Snapshot, archive: SnapshotArchive) -> None:
        await self._ask(wire.AdoptSnapshot(snapshot, archive), NoneType)


def _looked_at(path: Path) -> SnapshotArchive:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return SnapshotArchive(size_bytes=os.fstat(file.fileno()).st_size, sha256=sha256)


def _part_at(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), PART_BYTES, offset)


def _write_at(path: Path, offset: int, data: bytes) -> None:
    """The first part begins anew: what an earlier try left may be longer."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if offset == 0 else 0)
    with open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
        file.seek(offset)
        file.write(data)
