"""A directory in memory for weights, sockets, trials: it goes with its owner, however that ends.

The owner removes it or, if the owner was killed, the next process on this node that opens one. A
lock shows that the owner is alive.
"""

import fcntl
import os
import tempfile
import time
from pathlib import Path
from shutil import rmtree

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "artangram-scratch-"

YOUNG_S = 60.0
"""A directory may be without its lock for a moment after it is made."""


class ScratchDir:
    """A directory that is ours, only for this user."""

    def __init__(self, directory: Path, lock: int) -> None:
        self.directory = directory
        self._lock = lock

    def __repr__(self) -> str:
        return f"<ScratchDir {self.directory}>"

    @classmethod
    def opened(cls, parent: Path | None = None) -> "ScratchDir":
        """A new one, in shared memory where there is some; those of killed owners are removed."""
        if parent is None:
            is_there = os.access(SHARED_MEMORY, os.W_OK)
            parent = SHARED_MEMORY if is_there else Path(tempfile.gettempdir())
        sweep(parent)
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(directory, lock)

    def close(self) -> None:
        rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)


def sweep(parent: Path, *, young_s: float = YOUNG_S) -> list[Path]:
    """Remove what dead owners left; returns what was removed."""
    found = [path for path in parent.glob(f"{PREFIX}*") if _is_left(path, young_s)]
    for directory in found:
        rmtree(directory, ignore_errors=True)
    return found


def _is_left(directory: Path, young_s: float) -> bool:
    try:
        age_s = time.time() - directory.stat().st_mtime
        if age_s < young_s or directory.stat().st_uid != os.getuid():
            return False
        lock = os.open(directory / "lock", os.O_RDWR)
    except FileNotFoundError:
        return directory.exists()  # The process that removed it was killed before it was done.
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
