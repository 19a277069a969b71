"""Weights in the node's memory: each file once for all services, as long as the host lives.

The directory is in shared memory, so a copy is never written to disk and a process that maps it
adds nothing to what the node holds. Files that lay side by side do so here, too: many loaders take
a directory.
"""

import asyncio
import itertools
import os
import shutil
from pathlib import Path

from artangram.core.errors import BadInput

_Identity = tuple[int, int, int, int]


class HostCopies:
    """Copies of files below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._copies: dict[_Identity, asyncio.Task[Path]] = {}
        #: Where the files of a directory are, as they were the first time, the second and so on.
        self._folders: dict[tuple[Path, int], Path] = {}
        self._taken: dict[Path, _Identity] = {}

    def __repr__(self) -> str:
        return f"<HostCopies: {len(self._copies)} files in {self._directory}>"

    async def keep(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """Where the copies of `files` are; made at the first request."""
        found = await asyncio.to_thread(lambda: [_identified(name) for name in files])
        targets = self._placed(dict(found))
        return tuple([str(await self._copy(*each, target=targets[each[0]])) for each in found])

    def _placed(self, found: dict[Path, _Identity]) -> dict[Path, Path]:
        """Where each file goes. One that has changed since is another file: both stay."""
        targets: dict[Path, Path] = {}
        for parent in {file.parent for file in found}:
            ours = {file: identity for file, identity in found.items() if file.parent == parent}
            for turn in itertools.count():
                new = self._directory / str(len(self._folders))
                folder = self._folders.setdefault((parent, turn), new)
                names = {folder / file.name: identity for file, identity in ours.items()}
                if all(self._taken.get(name, one) == one for name, one in names.items()):
                    break
            self._taken |= names
            targets |= {file: folder / file.name for file in ours}
        return targets

    async def _copy(self, file: Path, identity: _Identity, *, target: Path) -> Path:
        if identity not in self._copies:
            work = asyncio.to_thread(_copied, file, target)
            self._copies[identity] = asyncio.create_task(work)
        try:
            copy = await asyncio.shield(self._copies[identity])
        except BadInput:
            self._copies.pop(identity, None)
            raise
        # As in the caches of model hubs, where many directories lead to one file.
        return await asyncio.to_thread(_linked, copy, target)


def _identified(name: str) -> tuple[Path, _Identity]:
    path = Path(name).absolute()
    found = path.stat()
    return path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _linked(copy: Path, target: Path) -> Path:
    """`target`, which is the copy by another name if it was not there."""
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        os.link(copy, target)
    return target


def _copied(name: Path, target: Path) -> Path:
    target.parent.mkdir(exist_ok=True)
    size, room = os.stat(name).st_size, shutil.disk_usage(target.parent).free
    if size > room:
        raise BadInput(
            "weights",
            f"{name} takes {size >> 20} MB, and {room >> 20} MB of shared memory are free",
            "enlarge /dev/shm, or deploy fewer services",
        )
    shutil.copyfile(name, target)
    return target
