"""Weights in the node's memory: each file once, whoever uses it, for as long as the host lives.

The directory is in shared memory, so a copy is never written to disk and a process that maps it
adds nothing to what the node holds.
"""

import asyncio
import os
import shutil
from pathlib import Path

from artangram.core.errors import BadInput

_Identity = tuple[int, int, int, int]


class HostCopies:
    """Copies of files below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._copies: dict[_Identity, asyncio.Task[str]] = {}

    def __repr__(self) -> str:
        return f"<HostCopies: {len(self._copies)} files in {self._directory}>"

    async def keep(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """Where the copies of `files` are; made if there are none yet."""
        return tuple([await self._copy(name) for name in files])

    async def _copy(self, name: str) -> str:
        found = await asyncio.to_thread(os.stat, name)
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if identity not in self._copies:
            # Its own directory: a loader may look at names, and two files may share one.
            target = self._directory / str(len(self._copies)) / Path(name).name
            work = asyncio.to_thread(_copied, name, target)
            self._copies[identity] = asyncio.create_task(work)
        try:
            return await asyncio.shield(self._copies[identity])
        except BadInput:
            self._copies.pop(identity, None)
            raise


def _copied(name: str, target: Path) -> str:
    target.parent.mkdir()
    size, room = os.stat(name).st_size, shutil.disk_usage(target.parent).free
    if size > room:
        raise BadInput(
            "weights",
            f"{name} takes {size >> 20} MB, and {room >> 20} MB of shared memory are free",
            "enlarge /dev/shm, or deploy fewer services",
        )
    shutil.copyfile(name, target)
    return str(target)
