"""Copy the changed files of a sandbox aside, as a layer that siblings can start from.

- The tree was written by the attacker: every step goes by descriptor and follows no link.
- Kept: owners, modes, times, symbolic links, what overlay notes in attributes, and deletions
  (character devices 0:0). Left out: sockets, pipes and other devices. Hard links stay links.
  Other attributes are kept if they fit: a disk holds fewer of them than memory does.
- A copy takes no more of the disk than the tree took of the sandbox's, and few descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

MOST_DEEP = 128
"""Directories in each other: two descriptors of ours are open for each."""
BLOCK_BYTES = 512
"""What the kernel counts `st_blocks` in, whatever the disk."""
OVERLAY_ATTRIBUTES = ("trusted.overlay.", "user.overlay.")
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def copy_changes(source: int, target: Path) -> int:
    """Copy the directory open as `source` to the new directory `target`; how many bytes it took."""
    target.mkdir()
    links = target.with_name(f"{target.name}-links")
    links.mkdir()
    fds: list[int] = []
    try:
        fds.extend(os.open(path, DIRECTORY) for path in (target, links))
        copied = CopiedFiles(fds[1])
        _copy_directory(source, fds[0], copied, depth=0)
        return copied.size_bytes
    finally:
        for fd in fds:
            os.close(fd)
        shutil.rmtree(links, ignore_errors=True)


class CopiedFiles:
    """What was copied so far, and of that the files with several names.

    Those are found by one more name in a directory of ours, open as `directory`: not by the name
    they had, which may be longer than any path, nor by descriptor.
    """

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self.size_bytes = 0

    def count(self, about: os.stat_result) -> None:
        self.size_bytes += about.st_blocks * BLOCK_BYTES

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


def _copy_directory(source: int, target: int, copied: CopiedFiles, *, depth: int) -> None:
    if depth > MOST_DEEP:
        raise OSError(errno.ENAMETOOLONG, f"more than {MOST_DEEP} directories in each other")
    for name in os.listdir(source):
        about = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(about.st_mode):
            _copy_subdirectory(name, source, target, copied, depth=depth + 1)
        elif stat.S_ISLNK(about.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            os.chown(name, about.st_uid, about.st_gid, dir_fd=target, follow_symlinks=False)
        elif stat.S_ISREG(about.st_mode):
            _copy_or_link(name, about, source, target, copied)
        elif stat.S_ISCHR(about.st_mode) and about.st_rdev == 0:
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)
    copied.count(os.fstat(target))
    _copy_about(source, target)


def _copy_or_link(
    name: str, about: os.stat_result, source: int, target: int, copied: CopiedFiles
) -> None:
    has_others = about.st_nlink > 1
    if has_others and copied.link(about, name, target):
        return
    _copy_file(name, source, target)
    copied.count(about)
    if has_others:
        copied.add(about, name, target)


def _copy_subdirectory(
    name: str, source: int, target: int, copied: CopiedFiles, *, depth: int
) -> None:
    os.mkdir(name, 0o700, dir_fd=target)
    inner_source = _open(name, DIRECTORY, source)
    inner_target = os.open(name, DIRECTORY, dir_fd=target)
    try:
        _copy_directory(inner_source, inner_target, copied, depth=depth)
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
