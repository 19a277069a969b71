"""The processes of a sandbox as its init sees them: start, tell the kept from the others, end."""

# ruff: noqa: SIM105 - `contextlib` would be imported into every sandbox

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct

from artangram.sandbox.inside import linux

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from artangram.sandbox.inside.population import Population

    Reap = Callable[[int, int], int]
    """As `os.waitpid`, but it gives a pid only, 0 if no child has ended."""

ROUNDS_BEFORE_ALL = 20
TIMES_TO_LOOK = 8
NO_DIRECTORY = 1 << 16
"""Beside the error number of NOT_STARTED: it is about the directory to start in."""
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


def spawn_apart(
    argv: list[bytes],
    environ: Mapping[bytes, bytes],
    stdio: Sequence[int],
    *,
    telling: int,
    has_terminal: bool = False,
) -> int:
    """The same without waiting for its exec, which kept processes and other commands could delay.

    If it cannot become one, it writes the error's number to `telling` and ends. Its orphans become
    its own: by that we tell its processes from those of other commands.
    """
    path = find_program(argv[0], environ.get(b"PATH", b""))
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        if has_terminal:
            fcntl.ioctl(0, linux.TIOCSCTTY, 0)
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
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

    __slots__ = ("parent", "pid", "session", "start")

    def __init__(self, pid: int, parent: int, session: int, start: int) -> None:
        self.pid = pid
        self.parent = parent
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


class Commands:
    """Which processes belong to commands that run. `leaders` are their first processes.

    Each adopts its orphans, so its tree is whole for as long as it lives. One that does not
    (`open_leader`, or 0) is believed to own every orphan.
    """

    def __init__(self, leaders: Sequence[int] = (), open_leader: int = 0) -> None:
        self._leaders = frozenset(leaders)
        self._open_leader = open_leader

    def __bool__(self) -> bool:
        return bool(self._leaders or self._open_leader)

    def owner_of(self, pid: int) -> int:
        """The leader it descends from; 0 without a leader, -1 for a process that is gone."""
        if not self:
            return 0
        for _ in range(TIMES_TO_LOOK):
            above = pid
            while above not in self._leaders and above != self._open_leader:
                found = alive([above])
                if not found:
                    break
                above = found[0].parent
                if above <= 1 or above == os.getpid():
                    return self._open_leader
            else:
                return above
            if above == pid:
                return -1
        return 0  # those above it end faster than we look


def kill_tree(others: Population, commands: Commands, leader: int) -> None:
    """Kill a command and what descends from it, itself last: its orphans would be ours."""
    for pid in others.pids():
        if pid != leader and commands.owner_of(pid) == leader:
            _signal(pid, linux.SIGKILL)
    _signal(leader, linux.SIGKILL)


def end_others(
    others: Population, kept: KeptProcesses, commands: Commands, reap: Reap
) -> tuple[int, KeptProcesses]:
    """Kill and reap all but the kept and those of `commands`; how many, and what is still kept."""
    _reap_dead(reap)
    if not kept and not commands:
        return others.end(), kept
    killed: set[int] = set()
    for _ in range(ROUNDS_BEFORE_ALL):
        found = alive(others.pids())
        theirs = [process for process in found if kept.holds(process)]
        leftovers = [
            process.pid
            for process in found
            if not kept.holds(process) and not commands.owner_of(process.pid)
        ]
        _kill_each(leftovers, reap)
        killed.update(leftovers)
        # A process that died while we looked may have left a child that we did not see.
        if not _reap_dead(reap) and not leftovers:
            return len(killed), KeptProcesses(theirs)
    # It forks faster than we look: nothing may outlive the command, so all others go too.
    others.signal(linux.SIGKILL)
    num_more = 0
    while reap(-1, 0):
        others.signal(linux.SIGKILL)
        num_more += 1
    return len(killed) + num_more, KeptProcesses()


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
            found.append(Alive(pid, int(fields[1]), int(fields[3]), int(fields[19])))
    return found


def open_terminal(size: int) -> tuple[int, int]:
    """Where a new terminal is read and written, and what its program gets. `size`: see WINDOW."""
    ours = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(ours, linux.TIOCSPTLCK, struct.pack("i", 0))
        fcntl.ioctl(ours, linux.TIOCSWINSZ, struct.pack("4H", size >> 16, size & 0xFFFF, 0, 0))
        return ours, fcntl.ioctl(ours, linux.TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        os.close(ours)
        raise


def signal_group(leader: int, number: int) -> None:
    """As a terminal does it. It may have ended: then the signal reaches nothing."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        _signal(leader, number)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _kill_each(targets: Sequence[int], reap: Reap) -> None:
    for pid in targets:
        _signal(pid, linux.SIGKILL)
    # Twice: what was a grandchild in the first pass is our child in the second.
    for pid in (*targets, *targets):
        reap(pid, 0)


def _reap_dead(reap: Reap) -> int:
    """How many there were."""
    count = 0
    while reap(-1, os.WNOHANG):
        count += 1
    return count


def enter(directory: bytes) -> None:
    """Change to where a command starts."""
    try:
        os.chdir(directory)
    except OSError as error:
        raise OSError((error.errno or errno.EIO) | NO_DIRECTORY, "chdir") from None


def children_cpu_s() -> float:
    """Of all processes that were reaped."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
