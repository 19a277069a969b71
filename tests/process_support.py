"""What tests ask of the kernel about processes, and what those they start need."""

import os
import sys
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
