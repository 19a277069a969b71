"""The snapshots of one provider: layers of files, and a record for each snapshot that has a name.

- A layer is a directory; a snapshot is its own layer on top of those it stands on. A record is
  renamed into place when its layers are on disk: after a crash a snapshot is there whole, or not.
- What the store finds and no record names is left over from a crash, and removed.
- A layer goes when no snapshot and no sandbox stands on it. A snapshot goes when it is forgotten,
  has been idle for its `keep_s`, or, without a name, to make room; the log says which and why.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import msgspec

from artangram.aio import uncancelled
from artangram.sandbox.errors import CreateFailed, ImageError, SandboxError
from artangram.sandbox.inside import linux
from artangram.sandbox.namespace.layers import copy_changes
from artangram.sandbox.namespace.snapshotarchive import pack, unpacked
from artangram.sandbox.namespace.traits import Traits
from artangram.sandbox.protocol import DEFAULT_LIMITS, HostImage, Image, Snapshot
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms
from artangram.sandbox.user import SandboxUser

logger = logging.getLogger(__name__)

MOST_OF_DISK = 0.5
"""Of the file system the layers are on. The rest is for images, journals and other programs."""
EARLY = ".record"
"""Ends the name of a record that is not in its place yet."""
MOST_REMEMBERED = 1000
"""Names of snapshots that went by themselves: what still asks for one is told why."""


class SnapshotRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot with a name, as its file has it. Layers by their names, from the top down."""

    terms: SnapshotTerms
    layers: tuple[tuple[str, int], ...]
    """With how many bytes each takes."""
    image: Image
    base: str = ""
    uid: int
    user: SandboxUser
    made_at: float
    """Seconds since 1970. When it was used last is the time of the file."""


@dataclass(slots=True, kw_only=True)
class Stored:
    """A snapshot's layers, its own on top, and what its siblings share."""

    layers: tuple[str, ...]
    traits: Traits
    terms: SnapshotTerms
    base: str
    """The unpacked image it stands on, where that may change under its name."""
    made_at: float
    used_at: float
    sizes: tuple[int, ...] = ()
    """Of its layers, of one that was read."""

    @property
    def layer(self) -> str:
        """The name of its own layer, by which copies of it are known on every node."""
        return Path(self.layers[0]).name

    @property
    def name(self) -> str:
        return self.terms.name or f"snapshot-{self.layer}"

    @property
    def goes_at(self) -> float | None:
        return None if self.terms.keep_s is None else self.used_at + self.terms.keep_s

    @property
    def is_listed(self) -> bool:
        """Those without a name and an end are a provider's own."""
        return bool(self.terms.name) or self.terms.keep_s is not None


class SnapshotStore:
    """See the module. `directory` is this store's alone; `live` are the sandboxes there are."""

    def __init__(
        self,
        directory: Path,
        *,
        live: Callable[[], Iterable[Traits]],
        most_bytes: int | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._layers_dir, self._records_dir = directory / "layers", directory / "records"
        self._archives_dir = directory / "archives"
        self._live = live
        self._now = now
        self._stored: dict[str, Stored] = {}
        #: Every layer on disk that is whole, and its size.
        self._sizes: dict[str, int] = {}
        self._forgotten: set[str] = set()
        #: Of sandboxes that may end while their files are copied.
        self._copying: list[Traits] = []
        self._naming = asyncio.Lock()
        self._went: OrderedDict[str, str] = OrderedDict()
        self._read()
        disk = os.statvfs(directory)
        self._most_bytes = most_bytes or int(disk.f_blocks * disk.f_frsize * MOST_OF_DISK)

    def _read(self) -> None:
        for path in (self._layers_dir, self._records_dir):
            path.mkdir(mode=0o700, exist_ok=True)
        for path in self._records_dir.iterdir():
            try:
                self._admit(path)
            except (msgspec.MsgspecError, OSError) as error:
                logger.warning("the snapshot of %s is damaged, and is removed: %s", path, error)
                path.unlink(missing_ok=True)
        for early in self._records_dir.parent.glob(f"*{EARLY}"):
            early.unlink()
        shutil.rmtree(self._archives_dir, ignore_errors=True)
        for left in self._layers_dir.iterdir():
            if str(left) not in self._sizes:
                shutil.rmtree(left, ignore_errors=True)

    def _admit(self, path: Path) -> None:
        stored = self._stored_of(msgspec.json.decode(path.read_bytes(), type=SnapshotRecord))
        for layer in stored.layers:
            os.stat(layer)
        stored.used_at = path.stat().st_mtime
        self._stored[stored.name] = stored
        self._sizes |= zip(stored.layers, stored.sizes, strict=True)

    def _stored_of(self, found: SnapshotRecord) -> Stored:
        # Its siblings get names, limits and groups of their own.
        traits = Traits(
            name=found.terms.name,
            image=found.image,
            limits=DEFAULT_LIMITS,
            uid=found.uid,
            user=found.user,
        )
        return Stored(
            layers=tuple(str(self._layers_dir / Path(name).name) for name, _ in found.layers),
            sizes=tuple(size for _, size in found.layers),
            traits=traits,
            terms=found.terms,
            base=found.base,
            made_at=found.made_at,
            used_at=self._now(),
        )

    @property
    def uids(self) -> frozenset[int]:
        """Users that own files here."""
        return frozenset(stored.traits.uid for stored in self._stored.values())

    async def put(
        self, traits: Traits, changes: int, *, terms: SnapshotTerms, base: str = ""
    ) -> Snapshot:
        """Keep a copy of the changed files, open as `changes`, or nothing of it."""
        layer = self._layers_dir / uuid4().hex[:16]
        self._copying.append(traits)
        try:
            # To the end, even if cancelled: the number may be another file's once it is closed.
            size = await uncancelled(asyncio.to_thread(copy_changes, changes, layer))
            self._sizes[str(layer)] = size
            now = self._now()
            stored = Stored(
                layers=(str(layer), *traits.layers),
                traits=traits,
                terms=terms,
                base=base,
                made_at=now,
                used_at=now,
            )
            if stored.is_listed:
                self._make_room()
            return await uncancelled(self._keep(stored))
        except BaseException as error:
            if not self._has(str(layer)):
                self._sizes.pop(str(layer), None)
                await uncancelled(asyncio.to_thread(shutil.rmtree, layer, True))
            if isinstance(error, OSError):
                raise SandboxError(f"the files of {traits.name}: {error}") from error
            raise
        finally:
            self._copying.remove(traits)

    def _has(self, layer: str) -> bool:
        return any(stored.layers[0] == layer for stored in self._stored.values())

    async def _keep_named(self, stored: Stored) -> Snapshot:
        name = stored.terms.name
        # One after the other: the record that is renamed last is the one that is known here.
        async with self._naming:
            await asyncio.to_thread(self._write, stored)
            before = self._stored.get(name)
            self._stored[name] = stored
        if before is not None:
            self._leave(before)
            self.remove_unused()
        return Snapshot(name=name)

    def _write(self, stored: Stored) -> None:
        """The layers first, then the record: a rename makes it a snapshot."""
        early = self._records_dir.parent / f"{stored.layer}{EARLY}"
        with open(early, "wb") as file:
            file.write(self._record(stored))
            file.flush()
            linux.syncfs(file.fileno())
        os.replace(early, self._record_path(stored))

    def _record(self, stored: Stored) -> bytes:
        traits = stored.traits
        record = SnapshotRecord(
            terms=stored.terms,
            layers=tuple((Path(layer).name, self._sizes[layer]) for layer in stored.layers),
            image=traits.image,
            base=stored.base,
            uid=traits.uid,
            user=traits.user,
            made_at=stored.made_at,
        )
        return msgspec.json.encode(record)

    def archive(self, snapshot: Snapshot) -> Path:
        """Where it lies as one file."""
        self._archives_dir.mkdir(mode=0o700, exist_ok=True)
        return self._archives_dir / f"{hashlib.sha256(snapshot.name.encode()).hexdigest()}.tar"

    async def pack(self, snapshot: Snapshot) -> None:
        """Write its archive, or nothing of it."""
        stored = self.get(snapshot)
        with self._holding(stored.layers):
            await pack(self._record(stored), stored.layers, self.archive(snapshot))

    async def adopt(self, snapshot: Snapshot) -> None:
        """Keep what its archive holds, or nothing of it. The name moves to it."""
        async with unpacked(self.archive(snapshot)) as (record, folder):
            stored = self._stored_of(msgspec.json.decode(record, type=SnapshotRecord))
            with self._holding(stored.layers):
                for layer, size in zip(stored.layers, stored.sizes, strict=True):
                    if layer not in self._sizes:
                        (folder / Path(layer).name).rename(layer)
                        self._sizes[layer] = size
                try:
                    self._make_room()
                    await uncancelled(self._keep(stored))
                finally:
                    if not self._has(stored.layers[0]):
                        self._leave(stored)
        self.remove_unused()

    async def _keep(self, stored: Stored) -> Snapshot:
        if stored.terms.name:
            return await self._keep_named(stored)
        self._stored[stored.name] = stored
        return Snapshot(name=stored.name)

    @contextlib.contextmanager
    def _holding(self, layers: tuple[str, ...]) -> Iterator[None]:
        """While the block lasts, these layers are not removed."""
        held = Traits(name="", image=HostImage(), limits=DEFAULT_LIMITS, uid=0, layers=layers)
        self._copying.append(held)
        try:
            yield
        finally:
            self._copying.remove(held)

    def _record_path(self, stored: Stored) -> Path:
        return self._records_dir / quote(stored.terms.name, safe="")

    def get(self, snapshot: Snapshot) -> Stored:
        stored = self._stored.get(snapshot.name)
        if stored is None:
            why = self._went.get(snapshot.name)
            raise CreateFailed(f"no snapshot {snapshot.name!r}" + (f": {why}" if why else ""))
        self._use(stored)
        return stored

    def check_base(self, snapshot: Snapshot, base: str) -> None:
        """Raises `ImageError` if the image it stands on has changed since it was made."""
        stored = self._stored.get(snapshot.name)
        if stored is not None and stored.base != base:
            problem = f"snapshot {snapshot.name!r} stands on an image that has changed since"
            raise ImageError(f"{problem}; make it again")

    def _use(self, stored: Stored) -> None:
        stored.used_at = self._now()
        if stored.terms.name:
            with contextlib.suppress(OSError):  # It is only forgotten too early then.
                os.utime(self._record_path(stored))

    def forget(self, snapshot: Snapshot) -> bool:
        """False if there is no such snapshot."""
        stored = self._stored.pop(snapshot.name, None)
        if stored is None:
            return False
        if stored.terms.name:
            self._record_path(stored).unlink(missing_ok=True)
        self._leave(stored)
        self.remove_unused()
        return True

    def _leave(self, stored: Stored) -> None:
        own = {other.layers[0] for other in self._stored.values()}
        self._forgotten.update(set(stored.layers) - own)

    def remove_unused(self) -> None:
        """Drop layers that no snapshot and no sandbox stands on."""
        if not self._forgotten:
            return
        known = [stored.layers for stored in self._stored.values()]
        used = [traits.layers for traits in (*self._live(), *self._copying)]
        unused = self._forgotten.difference(*known, *used)
        self._forgotten -= unused
        loop = asyncio.get_running_loop()
        for path in unused:
            self._sizes.pop(path, None)
            loop.run_in_executor(None, shutil.rmtree, path, True)

    def expire(self) -> float | None:
        """Forget what has been idle for its time; in how many seconds to look again."""
        now, used = self._now(), self._used()
        for name, stored in list(self._stored.items()):
            if stored.goes_at is not None and used[stored.layers[0]]:
                self._use(stored)
            elif stored.goes_at is not None and stored.goes_at <= now:
                self._let_go(name, f"it was idle for {stored.terms.keep_s:g} s")
        ends = [one.goes_at for one in self._stored.values() if one.goes_at is not None]
        return None if not ends else max(0.0, min(ends) - now)

    def _used(self) -> Counter[str]:
        """How many sandboxes stand on each layer."""
        return Counter(layer for traits in self._live() for layer in traits.layers)

    def _make_room(self) -> None:
        """Forget idle snapshots without a name, the longest idle first, until the rest fits."""
        used = self._used()
        idle = [
            (stored.used_at, name)
            for name, stored in self._stored.items()
            if stored.is_listed and not stored.terms.name and not used[stored.layers[0]]
        ]
        for _, name in sorted(idle):
            if sum(self._sizes.values()) <= self._most_bytes:
                return
            self._let_go(name, "its room was needed")
        total = sum(self._sizes.values())
        if total > self._most_bytes:
            problem = f"snapshots would take {total >> 20} MB of the {self._most_bytes >> 20} MB"
            raise SandboxError(f"{problem} that they may; forget some of them")

    def _let_go(self, name: str, why: str) -> None:
        logger.warning("snapshot %s was forgotten: %s", name, why)
        self.forget(Snapshot(name=name))
        self._went[name] = why
        if len(self._went) > MOST_REMEMBERED:
            self._went.popitem(last=False)

    def listed(self) -> tuple[SnapshotInfo, ...]:
        used, now = self._used(), self._now()
        return tuple(
            SnapshotInfo(
                name=name,
                layer=stored.layer,
                is_named=bool(stored.terms.name),
                size_bytes=sum(self._sizes.get(layer, 0) for layer in stored.layers),
                age_s=now - stored.made_at,
                idle_s=0.0 if used[stored.layers[0]] else now - stored.used_at,
                keep_s=stored.terms.keep_s,
                num_sandboxes=used[stored.layers[0]],
            )
            for name, stored in self._stored.items()
            if stored.is_listed
        )
