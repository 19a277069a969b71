"""A provider's own directory, locked for as long as it or its zygote lives.

A directory whose lock is free belongs to a dead provider: the next provider that starts removes it,
with the control groups that its file `groups` names and everything that still runs in them.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path

from artangram.sandbox.inside.guard import reap
from artangram.sandbox.inside.zygote import remove_all


def default_state_dir() -> Path:
    if os.getuid() == 0:
        return Path("/var/lib/artangram")
    return Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local/state")) / "artangram"


class RunDir:
    """`path` is ours alone until `close`."""

    def __init__(self, state_dir: Path) -> None:
        parent = state_dir / "run"
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix="", dir=parent))
        self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        for name in ("stage", "snapshots"):
            (self.path / name).mkdir()

    @property
    def state_dir(self) -> Path:
        return self.path.parent.parent

    @property
    def owner(self) -> str:
        return self.path.name

    def name_groups(self, directories: list[Path]) -> None:
        (self.path / "groups").write_text("\n".join(map(str, directories)))

    def close(self) -> None:
        os.close(self.lock)
        remove_all(str(self.path))


def sweep(parent: Path) -> None:
    """Remove what dead providers left."""
    for path in parent.iterdir():
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # gone, or no directory of ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A directory made a moment ago may not have its lock yet.
            if time.time() - os.fstat(lock).st_mtime > 1.0:
                reap(str(path))
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
