"""What the kernel tells about processes and settings, read from its files."""

from __future__ import annotations

import os
import sys


def processes_below(
    pid: int, *, most: int = sys.maxsize, without: frozenset[int] = frozenset()
) -> list[int]:
    """`pid` and its descendants, as many as asked for.

    Children whose own namespace numbers them as in `without` are left out, with all below them.
    """
    found: list[int] = []
    waiting = [pid]
    if without:
        found, waiting = [pid], [child for child in _children(pid) if _inner(child) not in without]
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


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as children:
        return [int(child) for child in children.read().split()]


def _inner(pid: int) -> int:
    """The number of a process in its own namespace; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            lines = [line for line in status if line.startswith(b"NSpid:")]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(lines[0].split()[-1])


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
