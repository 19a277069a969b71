"""Writable layers on disk: a file system of a fixed size in a file, as a loop device.

- The file has no name from the start, and the device frees itself when its last user is gone: a
  provider that is killed leaves neither.
- The size of the file system is the quota; its pages in memory are the sandbox's, and the kernel
  writes them out when that has no memory left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from artangram.sandbox.errors import CreateFailed
from artangram.sandbox.protocol import Limits

CONTROL = "/dev/loop-control"
FIND_FREE, CONFIGURE = 0x4C82, 0x4C0A
FREED_AT_THE_END, WITHOUT_CACHE = 4, 16
MOST_TRIES = 64
_CONFIG = struct.Struct("<II5Q4I64s64s32s2Q8Q")
"""`struct loop_config` of the kernel."""
_FORMAT = ("-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1")


def has_disks() -> bool:
    """Can a layer be on disk here? It needs root, loop devices and `mkfs.ext4`."""
    return os.getuid() == 0 and os.path.exists(CONTROL) and bool(_program())


def _program() -> str:
    return shutil.which("mkfs.ext4", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or ""


def open_disk(directory: Path, limits: Limits) -> tuple[str, int]:
    """A device with an empty file system, and the descriptor that keeps it until it is mounted."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    backing, path = tempfile.mkstemp(prefix="disk-", dir=directory)
    try:
        os.ftruncate(backing, limits.disk_mb << 20)
        argv = [_program(), *_FORMAT, "-N", str(limits.inodes), path]
        made = subprocess.run(argv, capture_output=True, check=False)
        if made.returncode:
            said = made.stderr.decode(errors="replace").strip()[-300:]
            raise CreateFailed(f"a file system of {limits.disk_mb} MB cannot be made: {said}")
        return _attached(backing)
    finally:
        os.unlink(path)
        os.close(backing)


def _attached(backing: int) -> tuple[str, int]:
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for flags in (FREED_AT_THE_END | WITHOUT_CACHE, FREED_AT_THE_END):
            for _ in range(MOST_TRIES):
                device = f"/dev/loop{fcntl.ioctl(control, FIND_FREE)}"
                fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
                try:
                    config = _CONFIG.pack(
                        backing, 0, *[0] * 5, 0, 0, 0, flags, b"", b"", b"", *[0] * 10
                    )
                    fcntl.ioctl(fd, CONFIGURE, config)
                except OSError as error:
                    os.close(fd)
                    if error.errno == errno.EBUSY:  # Another process was faster.
                        continue
                    if error.errno == errno.EINVAL:  # Not on every file system without a cache.
                        break
                    raise CreateFailed(f"no loop device: {error.strerror}") from error
                return device, fd
        raise CreateFailed("no loop device is free")
    finally:
        os.close(control)
