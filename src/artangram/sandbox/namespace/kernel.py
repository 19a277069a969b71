"""What the kernel tells about processes and settings, read from its files."""

from __future__ import annotations

import os
import sys


def processes_below(pid: int, *, most: int = sys.maxsize) -> list[int]:
    """`pid` and its descendants, as many as asked for."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < most:
        parent = waiting.pop()
        try:
            for tid in os.listdir(f"/proc/{parent}/task"):
                # To its end: one call of read() brings a page, some hundreds of children.
                with open(f"/proc/{parent}/task/{tid}/children", "rb") as children:
                    waiting += [int(child) for child in children.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append(parent)
    return found


def ticks_below(pid: int) -> dict[int, int]:
    """How long the descendants of `pid` have been on a core, in the kernel's clock ticks."""
    found: dict[int, int] = {}
    for process in processes_below(pid)[1:]:
        try:
            with open(f"/proc/{process}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[process] = int(fields[11]) + int(fields[12])
    return found


def read_setting(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)
