"""What tests ask of the kernel about processes, and what those they start need."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Does it run? One that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # The second if it ends while we read.
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def environ(**more: str) -> dict[str, str]:
    """Of a process that imports what we import, and this very tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


@contextmanager
def few_open_files(count: int = 512) -> Iterator[int]:
    """While the block lasts, so many files at once are the limit here and of who is started.

    Gives what a process may raise its limit to.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def most_open_files(pid: int) -> int:
    """How many files a process may have open."""
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
