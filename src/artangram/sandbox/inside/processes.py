"""The processes of a sandbox as its PID 1 sees them: start, list, pause, end.

`kill(-1)` reaches every process of the namespace but PID 1, atomically with respect to fork.
It is used only in a PID namespace of our own: elsewhere it would reach the whole machine.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from artangram.sandbox.inside import linux

ROUNDS_BEFORE_ALL = 20
_DEFAULTS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT]


def spawn(argv: list[bytes], environ: Mapping[bytes, bytes], stdio: Sequence[int]) -> int:
    """Start a program in a session of its own. posix_spawn: no copy of our page tables."""
    return os.posix_spawn(
        find_program(argv[0], environ.get(b"PATH", b"")),
        argv,
        environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)],
        setsid=True,
        setsigmask=[],
        setsigdef=_DEFAULTS,
    )


def find_program(name: bytes, path: bytes) -> bytes:
    """The file to start, by the command's own PATH, not by ours."""
    if b"/" in name:
        return name
    found = errno.ENOENT
    for directory in path.split(b":"):
        candidate = (directory or b".") + b"/" + name
        if os.access(candidate, os.X_OK):
            return candidate
        if os.path.exists(candidate):
            found = errno.EACCES
    raise OSError(found, os.strerror(found))


@contextmanager
def rlimits(wanted: Mapping[int, int]) -> Iterator[None]:
    """Lower soft limits for what is started inside the block."""
    before = {kind: resource.getrlimit(kind) for kind in wanted}
    try:
        for kind, soft in wanted.items():
            hard = before[kind][1]
            resource.setrlimit(kind, (soft if hard < 0 else min(soft, hard), hard))
        yield
    finally:
        for kind, limits in before.items():
            resource.setrlimit(kind, limits)


def move_here(group: int, *, with_others: bool) -> None:
    """Join the control group whose `tasks` file is open as `group`; bring others along."""
    os.write(group, b"0")
    if with_others:
        for pid in pids():
            with suppress(ProcessLookupError):
                os.write(group, b"%d" % pid)


def kill_all() -> None:
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def pause_all(*, stop: bool) -> None:
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGSTOP if stop else signal.SIGCONT)


class Alive(NamedTuple):
    """A process that is not dead; `start` tells it from a later one of the same number."""

    pid: int
    session: int
    start: int


class Kept:
    """Processes that may outlive commands: those alive when it was asked, and their sessions.

    The session covers what they fork later; the process itself, one that was about to leave
    its session when we looked.
    """

    def __init__(self, processes: Sequence[Alive] = ()) -> None:
        self._sessions = {process.session for process in processes}
        self._processes = {(process.pid, process.start) for process in processes}

    def __bool__(self) -> bool:
        return bool(self._processes)

    def __len__(self) -> int:
        return len(self._processes)

    def holds(self, process: Alive) -> bool:
        return process.session in self._sessions or (process.pid, process.start) in self._processes


def end_others(kept: Kept) -> tuple[int, Kept]:
    """Kill and reap all but the kept; how many were alive, and what is still kept."""
    _reap_dead()
    if not kept:
        return end_all(), kept
    killed: set[int] = set()
    for _ in range(ROUNDS_BEFORE_ALL):
        found = alive()
        strangers = [process.pid for process in found if not kept.holds(process)]
        if not strangers:
            return len(killed), Kept(found)
        _kill_each(strangers)
        killed.update(strangers)
    # It forks faster than we look: nothing may outlive the command, so the kept ones go too.
    return len(killed) + end_all(), Kept()


def end_all() -> int:
    """Kill and reap everything; how many there were, dead ones included."""
    kill_all()
    count = 0
    try:
        while True:
            os.waitpid(-1, linux.WALL)
            count += 1
    except ChildProcessError:
        return count


def alive() -> list[Alive]:
    """Everything alive in the sandbox but PID 1."""
    found = []
    for pid in pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in (b"Z", b"X"):
            found.append(Alive(pid, int(fields[3]), int(fields[19])))
    return found


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _kill_each(targets: Sequence[int]) -> None:
    for pid in targets:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # Twice: what was a grandchild in the first pass is our child in the second.
    for pid in (*targets, *targets):
        with suppress(ChildProcessError):
            os.waitpid(pid, linux.WALL)


def _reap_dead() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG | linux.WALL)[0]:
            pass
    except ChildProcessError:
        pass
