"""Copy the changed files of a sandbox aside, so that siblings can start from them.

- The tree was written by the attacker: every step goes by descriptor and follows no link.
- Kept: owners, modes, times, symbolic links, what overlay notes in attributes, and deletions
  (character devices 0:0). Left out: sockets, pipes and other devices. Hard links stay links.
  Other attributes are kept if they fit: a disk holds fewer of them than memory does.
- A copy takes no more of the disk than the tree took of the sandbox's, and few descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import itertools
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from artangram.aio import uncancelled
from artangram.sandbox.errors import CreateFailed, SandboxError
from artangram.sandbox.namespace.traits import Traits
from artangram.sandbox.protocol import Snapshot

MOST_DEEP = 128
"""Directories in each other: two descriptors of ours are open for each."""
OVERLAY_ATTRIBUTES = ("trusted.overlay.", "user.overlay.")
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A snapshot's own layer on top of those it stands on, and what its siblings share."""

    layers: tuple[str, ...]
    traits: Traits


class SnapshotStore:
    """The snapshots of one provider. A layer is removed when nothing uses it any more."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stored: dict[str, Stored] = {}
        self._forgotten: set[str] = set()
        self._numbers = itertools.count(1)

    async def put(self, traits: Traits, changes: int) -> Snapshot:
        """Keep a copy of the changed files, open as `changes`, or nothing of it."""
        name = f"snapshot-{next(self._numbers)}"
        target = self._directory / name
        try:
            # To the end, even if cancelled: the number may be another file's once it is closed.
            await uncancelled(asyncio.to_thread(copy_changes, changes, target))
        except BaseException as error:
            await uncancelled(asyncio.to_thread(shutil.rmtree, target, True))
            if isinstance(error, OSError):
                raise SandboxError(f"the files of {traits.name}: {error}") from error
            raise
        self._stored[name] = Stored(layers=(str(target), *traits.layers), traits=traits)
        return Snapshot(name=name)

    def get(self, snapshot: Snapshot) -> Stored:
        if snapshot.name not in self._stored:
            raise CreateFailed(f"no snapshot {snapshot.name!r}")
        return self._stored[snapshot.name]

    def forget(self, snapshot: Snapshot) -> None:
        if self._stored.pop(snapshot.name, None) is not None:
            self._forgotten.add(str(self._directory / snapshot.name))

    def remove_forgotten(self, live: Iterable[Traits]) -> None:
        """Drop layers that no snapshot and no `live` sandbox stands on."""
        if not self._forgotten:
            return
        known = [stored.layers for stored in self._stored.values()]
        unused = self._forgotten.difference(*known, *(traits.layers for traits in live))
        self._forgotten -= unused
        loop = asyncio.get_running_loop()
        for path in unused:
            loop.run_in_executor(None, shutil.rmtree, path, True)


def copy_changes(source: int, target: Path) -> None:
    """Copy the directory open as `source` to the new directory `target`."""
    target.mkdir()
    links = target.with_name(f"{target.name}-links")
    links.mkdir()
    fds: list[int] = []
    try:
        fds.extend(os.open(path, DIRECTORY) for path in (target, links))
        _copy_directory(source, fds[0], CopiedLinks(fds[1]), depth=0)
    finally:
        for fd in fds:
            os.close(fd)
        shutil.rmtree(links, ignore_errors=True)


class CopiedLinks:
    """Files with several names, by one more name in a directory of ours, open as `directory`.

    Not by the name they were found at, which may be longer than any path, nor by descriptor.
    """

    def __init__(self, directory: int) -> None:
        self._directory = directory

    def link(self, about: os.stat_result, name: str, target: int) -> bool:
        """Give the copy of that file one more name; False if it has to be copied first."""
        own = str(about.st_ino)
        try:
            os.link(own, name, src_dir_fd=self._directory, dst_dir_fd=target)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            os.unlink(own, dir_fd=self._directory)  # The next names are those of another copy.
            return False
        return True

    def add(self, about: os.stat_result, name: str, source: int) -> None:
        os.link(name, str(about.st_ino), src_dir_fd=source, dst_dir_fd=self._directory)


def _copy_directory(source: int, target: int, links: CopiedLinks, *, depth: int) -> None:
    if depth > MOST_DEEP:
        raise OSError(errno.ENAMETOOLONG, f"more than {MOST_DEEP} directories in each other")
    for name in os.listdir(source):
        about = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(about.st_mode):
            _copy_subdirectory(name, source, target, links, depth=depth + 1)
        elif stat.S_ISLNK(about.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            os.chown(name, about.st_uid, about.st_gid, dir_fd=target, follow_symlinks=False)
        elif stat.S_ISREG(about.st_mode):
            _copy_or_link(name, about, source, target, links)
        elif stat.S_ISCHR(about.st_mode) and about.st_rdev == 0:
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)
    _copy_about(source, target)


def _copy_or_link(
    name: str, about: os.stat_result, source: int, target: int, links: CopiedLinks
) -> None:
    has_others = about.st_nlink > 1
    if has_others and links.link(about, name, target):
        return
    _copy_file(name, source, target)
    if has_others:
        links.add(about, name, target)


def _copy_subdirectory(
    name: str, source: int, target: int, links: CopiedLinks, *, depth: int
) -> None:
    os.mkdir(name, 0o700, dir_fd=target)
    inner_source = _open(name, DIRECTORY, source)
    inner_target = os.open(name, DIRECTORY, dir_fd=target)
    try:
        _copy_directory(inner_source, inner_target, links, depth=depth)
    finally:
        os.close(inner_source)
        os.close(inner_target)


def _copy_file(name: str, source: int, target: int) -> None:
    reading = _open(name, REGULAR, source)
    writing = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, dir_fd=target)
    try:
        _copy_data(reading, writing)
        _copy_about(reading, writing)
    finally:
        os.close(reading)
        os.close(writing)


def _copy_data(source: int, target: int) -> None:
    """What was written, not the holes: a file may be said to be larger than any disk."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    end = 0
    while end < size:
        try:
            begin = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        end = os.lseek(source, begin, os.SEEK_HOLE)
        os.lseek(target, begin, os.SEEK_SET)
        while begin < end and (sent := os.sendfile(target, source, begin, end - begin)):
            begin += sent


def _open(name: str, flags: int, parent: int) -> int:
    """Open even what its owner closed to itself; without root we are just that owner."""
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        # By descriptor: the name may lead elsewhere by now.
        itself, mode = f"/proc/self/fd/{held}", stat.S_IMODE(os.fstat(held).st_mode)
        os.chmod(itself, mode | stat.S_IRWXU)
        try:
            return os.open(itself, flags & ~os.O_NOFOLLOW)
        finally:
            os.chmod(itself, mode)
    finally:
        os.close(held)


def _copy_about(source: int, target: int) -> None:
    about = os.fstat(source)
    with contextlib.suppress(PermissionError):
        os.fchown(target, about.st_uid, about.st_gid)
    os.fchmod(target, stat.S_IMODE(about.st_mode))
    _copy_attributes(source, target)
    os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


def _copy_attributes(source: int, target: int) -> None:
    names = os.listxattr(source)
    needed = [name for name in names if name.startswith(OVERLAY_ATTRIBUTES)]
    for name in needed:
        os.setxattr(target, name, os.getxattr(source, name))
    for name in names:
        if name.startswith("user.") and name not in needed:
            with contextlib.suppress(OSError):  # It may not fit, which is no reason to fail.
                os.setxattr(target, name, os.getxattr(source, name))
