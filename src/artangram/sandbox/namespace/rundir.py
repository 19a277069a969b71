"""A provider's own directory, locked for as long as it or its zygote lives.

A directory whose lock is free belongs to a dead provider: the next provider that starts removes it,
with the control groups that its file `groups` names and everything that still runs in them.

Snapshots are kept there, too, or for longer: the next provider with the same `keep_for` finds those
with a name again. They are removed when `keep_for` is a path and its directory is gone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from artangram.sandbox.errors import NotCapable
from artangram.sandbox.inside.guard import reap
from artangram.sandbox.inside.zygote import remove_all


def default_state_dir() -> Path:
    if os.getuid() == 0:
        return Path("/var/lib/artangram")
    return Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local/state")) / "artangram"


LOCK_PATIENCE_S = 10.0
"""How long the provider before may take to end."""


class RunDir:
    """`path` and `snapshots` are ours alone until `close`."""

    def __init__(self, state_dir: Path, *, kind: str = "", keep_for: str = "") -> None:
        """Raises `NotCapable` if another process has the snapshots that are kept for `keep_for`."""
        parent = state_dir / "run"
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix="", dir=parent))
        self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        for name in ("stage", "snapshots"):
            (self.path / name).mkdir(mode=0o700)
        self.snapshots = self.path / "snapshots"
        self._kept: int | None = None
        lasting = state_dir / "snapshots"
        lasting.mkdir(mode=0o700, exist_ok=True)
        sweep_kept(lasting)
        if keep_for:
            digest = hashlib.sha256(keep_for.encode()).hexdigest()[:16]
            self.snapshots = lasting / f"{kind}-{digest}"
            self._kept = _held(self.snapshots, keep_for)

    @property
    def state_dir(self) -> Path:
        return self.path.parent.parent

    @property
    def owner(self) -> str:
        return self.path.name

    def name_groups(self, directories: list[Path]) -> None:
        (self.path / "groups").write_text("\n".join(map(str, directories)))

    def close(self) -> None:
        if self._kept is not None:
            os.close(self._kept)
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


def _held(directory: Path, keep_for: str) -> int:
    """The lock on a directory for snapshots, made if it does not exist."""
    give_up_at = time.monotonic() + LOCK_PATIENCE_S
    while True:
        directory.mkdir(mode=0o700, exist_ok=True)
        (directory / "keep_for").write_text(keep_for)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(directory)):
                return lock
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(lock)
        if time.monotonic() > give_up_at:
            problem = f"another process has the snapshots of {keep_for} ({directory})"
            raise NotCapable(f"{problem}; end it first")
        time.sleep(0.05)


def sweep_kept(parent: Path) -> None:
    """Remove directories for snapshots that have none, or that no provider will ask for again."""
    for path in parent.iterdir():
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # gone, or no directory of ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(lock).st_mtime > 1.0 and _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _is_abandoned(path: Path) -> bool:
    try:
        keep_for = (path / "keep_for").read_text()
        has_any = any((path / "records").iterdir())
    except OSError:
        return True
    return not has_any or (keep_for.startswith("/") and not Path(keep_for).parent.is_dir())
