"""Read and write files as the sandbox's own user, inside its own root.

Paths resolve in the sandbox, so no link leads out of it. Only regular files are opened, never
those of /proc: a descriptor of one may show more to its reader than to its opener. Nor through the
links there to what a process holds open: init holds files of control groups.
"""

from __future__ import annotations

import errno
import os
import stat

from artangram.sandbox.inside import linux

_SAFELY = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_to_read(path: bytes) -> int:
    """A descriptor of the file."""
    fd = linux.open_by_name(path, os.O_RDONLY | _SAFELY)
    try:
        _check_regular(fd)
    except OSError:
        os.close(fd)
        raise
    return fd


def write(path: bytes, source: int, *, mode: int) -> None:
    """Replace the file's bytes with those of the descriptor `source`."""
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    fd = linux.open_by_name(path, os.O_WRONLY | os.O_CREAT | _SAFELY, mode=mode & 0o7777)
    try:
        _check_regular(fd)
        os.ftruncate(fd, 0)
        os.lseek(source, 0, os.SEEK_SET)
        while os.sendfile(fd, source, None, 1 << 20):
            pass
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _check_regular(fd: int) -> None:
    about = os.fstat(fd)
    if stat.S_ISDIR(about.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(about.st_mode) or about.st_dev == _proc_device():
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def _proc_device() -> int:
    return os.stat("/proc").st_dev
