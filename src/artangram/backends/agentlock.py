"""One agent per name on a machine: its process holds a lock, and the file names the process.

With the lock, an agent knows that the one before is gone. A supervisor that was started again finds
the agent that still runs. The join token tells clusters apart: they may use the same names.
"""

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from artangram.core.errors import BadInput

ENDING_S = 5.0
"""How long the agent before may take to end its sandboxes, as after a restart of its service."""


def cluster_of(token: str) -> str:
    """A name for the cluster of this join token, which does not give the token away."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def lock_path(node: str, token: str) -> Path:
    name = f"artangram-agent-{os.getuid()}-{cluster_of(token)}-{node}.lock"
    return Path(tempfile.gettempdir()) / name


@contextmanager
def alone(node: str, token: str) -> Iterator[None]:
    """Hold the lock on this name. Raises `BadInput` if another process keeps it."""
    with open(lock_path(node, token), "a+") as lock:
        give_up_at = time.monotonic() + ENDING_S
        while not _is_locked(lock, fcntl.LOCK_EX):
            if time.monotonic() >= give_up_at:
                fix = "stop it first, or give this one another --node"
                problem = f"an agent named {node} runs on this machine"
                raise BadInput("--node", problem, fix) from None
            time.sleep(0.1)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def is_held(path: Path) -> bool:
    """Does a process hold this lock?"""
    try:
        with open(path) as lock:
            return not _is_locked(lock, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def holder(path: Path) -> int | None:
    """The process that holds this lock; `None` if no process does, or it has not said so yet."""
    if not is_held(path):
        return None
    text = path.read_text().strip()
    # Between taking the lock and writing, the file names the process before, which is gone.
    return int(text) if text.isdecimal() and Path(f"/proc/{text}").exists() else None


def _is_locked(lock: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
