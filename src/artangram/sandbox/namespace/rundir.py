"""A provider's own directory, locked for as long as it or its zygote lives.

A directory whose lock is free belongs to the dead: whoever starts next removes it, with the
control groups its file `groups` names and whatever still runs in them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from artangram.sandbox.inside.birth import write_setting
from artangram.sandbox.inside.zygote import remove_group, thaw_group

KILL_PATIENCE_S = 2.0


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
    def owner(self) -> str:
        return self.path.name

    def name_groups(self, directories: list[Path]) -> None:
        (self.path / "groups").write_text("\n".join(map(str, directories)))

    def close(self) -> None:
        os.close(self.lock)
        shutil.rmtree(self.path, ignore_errors=True)


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
                _bury(path)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _bury(path: Path) -> None:
    listed = path / "groups"
    for directory in listed.read_text().splitlines() if listed.exists() else []:
        end_groups(Path(directory))
    shutil.rmtree(path, ignore_errors=True)


def end_groups(parent: Path) -> None:
    """Kill everything in the groups below `parent` and remove them."""
    if not parent.is_dir():
        return
    children = [child for child in parent.iterdir() if child.is_dir()]
    for group in children:
        # Slots hold no sandbox of their own; who sits there also sits in a group that does.
        if not (group / "cpuset.cpus").exists() or (group / "memory.max").exists():
            _kill_all(group)
    for group in children:
        remove_group(str(group))
    remove_group(str(parent))


def _kill_all(group: Path) -> None:
    gives_up_at = time.monotonic() + KILL_PATIENCE_S
    while time.monotonic() < gives_up_at:
        pids = (group / "cgroup.procs").read_text().split()
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        thaw_group(str(group))
        if (group / "cgroup.freeze").exists():
            write_setting(str(group / "cgroup.freeze"), "0")
        time.sleep(0.005)
