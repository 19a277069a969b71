"""The processes of a sandbox as its init sees them: start, tell the kept from the others, end."""

# ruff: noqa: SIM105 - `contextlib` would be imported into every sandbox

from __future__ import annotations

import errno
import os
import resource

from artangram.sandbox.inside import linux

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from artangram.sandbox.inside.population import Population

ROUNDS_BEFORE_ALL = 20
_DEFAULTS = [linux.SIGPIPE, linux.SIGXFSZ, linux.SIGINT]


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


def spawn_beside_kept(
    argv: list[bytes], environ: Mapping[bytes, bytes], stdio: Sequence[int], *, telling: int
) -> int:
    """The same without waiting for its exec, which kept processes could delay.

    If it cannot become one, it writes the error's number to `telling` and ends.
    """
    path = find_program(argv[0], environ.get(b"PATH", b""))
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        linux.usual_signals(*_DEFAULTS)
        os.execve(path, argv, environ)
    except OSError as error:
        os.write(telling, b"%d" % (error.errno or errno.EIO))
    finally:
        os._exit(127)


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


class LoweredLimits:
    """Lower soft limits for what is started inside the block."""

    def __init__(self, wanted: Mapping[int, int]) -> None:
        self._wanted = wanted
        self._before = {kind: resource.getrlimit(kind) for kind in wanted}

    def __enter__(self) -> None:
        for kind, soft in self._wanted.items():
            hard = self._before[kind][1]
            resource.setrlimit(kind, (soft if hard < 0 else min(soft, hard), hard))

    def __exit__(self, *_: object) -> None:
        for kind, limits in self._before.items():
            resource.setrlimit(kind, limits)


def forbid_more(pid: int, kind: int, most: int) -> None:
    """Make a limit of a process its hard one; before, it was ours."""
    try:
        resource.prlimit(pid, kind, (most, most))
    except (ProcessLookupError, PermissionError):
        pass  # it is gone, or has allowed itself even less by now


class Alive:
    """A process that is not dead; `start` tells it from a later one of the same number."""

    __slots__ = ("pid", "session", "start")

    def __init__(self, pid: int, session: int, start: int) -> None:
        self.pid = pid
        self.session = session
        self.start = start


class KeptProcesses:
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


def end_others(others: Population, kept: KeptProcesses) -> tuple[int, KeptProcesses]:
    """Kill and reap all but the kept; how many were alive, and what is still kept."""
    _reap_dead()
    if not kept:
        return others.end(), kept
    killed: set[int] = set()
    for _ in range(ROUNDS_BEFORE_ALL):
        found = alive(others.pids())
        strangers = [process.pid for process in found if not kept.holds(process)]
        _kill_each(strangers)
        killed.update(strangers)
        # A process that died while we looked may have left a child that we did not see.
        if not _reap_dead() and not strangers:
            return len(killed), KeptProcesses(found)
    # It forks faster than we look: nothing may outlive the command, so the kept ones go too.
    return len(killed) + others.end(), KeptProcesses()


def alive(pids: Sequence[int]) -> list[Alive]:
    """Those of `pids` that are not dead."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # With more than one thread, only the first of them is dead.
        if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
            found.append(Alive(pid, int(fields[3]), int(fields[19])))
    return found


def _kill_each(targets: Sequence[int]) -> None:
    for pid in targets:
        try:
            os.kill(pid, linux.SIGKILL)
        except ProcessLookupError:
            pass
    # Twice: what was a grandchild in the first pass is our child in the second.
    for pid in (*targets, *targets):
        try:
            os.waitpid(pid, linux.WALL)
        except ChildProcessError:
            pass


def _reap_dead() -> int:
    """How many there were."""
    count = 0
    try:
        while os.waitpid(-1, os.WNOHANG | linux.WALL)[0]:
            count += 1
    except ChildProcessError:
        pass
    return count
