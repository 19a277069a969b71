"""The init of a sandbox: starts commands, ends what they leave, answers one socket.

- Dies when its socket closes, and every process of the sandbox with it.
- Replies to a command only after what it left is dead, or was asked to be kept.
- Holds the deadline itself, so that a busy caller cannot make a command run longer.
- Runs as the sandbox's own user, without any capability, and installs no signal handler.
- `init.c` is the same loop for namespaces, where a compiler was there to build it.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import struct
import time
from _socket import socket as RawSocket

from artangram.sandbox.inside import (
    channel,
    files,
    linux,
    openfiles,
    parallel,
    processes,
    request,
)

TYPE_CHECKING = False  # the real one would import `typing` into every sandbox
if TYPE_CHECKING:
    from artangram.sandbox.inside.population import Population

REPLY = struct.Struct("<QBii9q")
READY, FAILED, EXITED, NOT_STARTED, DONE, REFUSED, OUTPUT = range(7)
"""Kinds of replies. OUTPUT brings what a command's stdout and stderr are read from; without it,
EXITED brings either those or the output itself."""
TIMED_OUT, CANCELLED, WITH_OUTLETS = 1, 2, 4
"""Flags of EXITED; with the last one it brings what the output is read from."""
MEASURES = 1
"""Flag of READY: this init reads the memory group itself, and its EXITED tells peak and kills."""
UNKNOWN = -1
KILLED = 9
MORE_EXPOSED = 500
LONGEST_WAIT_MS = 1 << 30
"""Not much longer would be more than the kernel can count."""
NEVER = float("inf")


def reply(
    sock: RawSocket,
    number: int,
    kind: int,
    *,
    status: int = 0,
    flags: int = 0,
    figures: tuple[int, ...] = (0,) * 9,
    fds: tuple[int, ...] = (),
    text: bytes = b"",
) -> None:
    channel.send_bytes(sock, REPLY.pack(number, kind, status, flags, *figures) + text, fds)


def scores(score: int) -> tuple[bytes, bytes]:
    """How likely the out-of-memory killer takes init, and a program while it is started."""
    return b"%d" % score, b"%d" % min(1000, score + MORE_EXPOSED)


class Init:
    """The loop. One main command at a time; files and parallel ones are served meanwhile."""

    def __init__(
        self,
        sock: RawSocket,
        others: Population,
        *,
        upper: int,
        score_file: int,
        score: int,
    ) -> None:
        self._sock = sock
        self._others = others
        self._upper = upper
        self._score_file = score_file
        self._sheltered, self._exposed = scores(score)
        self._open_files = openfiles.take_all_files()
        self._children = linux.child_signals()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self._poll.register(self._children, select.POLLIN)
        self._kept = processes.KeptProcesses()
        self._parallels = parallel.ParallelCommands()
        self._main = 0
        #: Does the main command adopt its orphans? And how it ended, once it was reaped.
        self._main_adopts = False
        self._ended: tuple[int, int] | None = None
        #: Where a command that starts beside kept processes writes why it cannot; else -1.
        self._told = -1
        self._request = 0
        self._flags = 0
        self._keep = False
        self._began_at = 0.0
        self._ends_at = 0.0
        self._cpu_before = 0.0
        self._num_ended = 0
        self._end_request = 0
        self._groups: dict[int, int] = {}
        self._joined = -1
        self._rests = False

    def serve(self) -> None:
        """Never returns: the process ends when the socket does."""
        try:
            while True:
                self._serve_once()
        except (EOFError, OSError):
            pass  # the caller is gone, or was when it should have been answered
        finally:
            self._others.leave()
        os._exit(0)

    def _serve_once(self) -> None:
        if self._rests and not self._main:
            self._rest()
        ready = self._poll.poll(self._timeout_ms())
        if not ready:
            self._end_overdue(time.monotonic())
        for fd, _ in ready:
            if fd == self._children:
                self._reap()
            else:
                self._answer()

    def _rest(self) -> None:
        """Leave the lent cores: the next command on them would delay us when we wake."""
        self._rests = False
        if not self._kept:
            self._join(request.REST)

    def _timeout_ms(self) -> float | None:
        due_at = self._parallels.next_due_at
        if self._main and not self._flags:
            due_at = min(due_at, self._ends_at)
        if due_at == NEVER:
            return None
        return min(LONGEST_WAIT_MS, max(0.0, (due_at - time.monotonic()) * 1000))

    def _end_overdue(self, now: float) -> None:
        if self._main and not self._flags and now >= self._ends_at:
            self._end_main(TIMED_OUT)
        for one in self._parallels.overdue(now):
            self._end_parallel(one, TIMED_OUT)

    def _end_main(self, flag: int) -> None:
        """Time is up or the caller is: its processes end, and the kept ones."""
        self._flags |= flag
        self._keep = False
        self._kept = processes.KeptProcesses()
        if self._parallels:
            processes.kill_tree(self._others, self._commands(), self._main)
        else:
            self._others.signal(linux.SIGKILL)

    def _end_parallel(self, one: parallel.ParallelCommand, flag: int) -> None:
        if not one.flags:
            processes.kill_tree(self._others, self._commands(), one.pid)
        one.flags |= flag

    def _commands(self) -> processes.Commands:
        """Those that run."""
        main = self._main if self._ended is None else 0
        if not main or self._main_adopts:
            return processes.Commands([*self._parallels.leaders, *([main] if main else [])])
        return processes.Commands(self._parallels.leaders, main)

    def _answer(self) -> None:
        data, fds = channel.receive_message(self._sock)
        asked = request.decode(data)
        try:
            self._dispatch(asked, fds)
        except OSError as error:
            reply(self._sock, asked.number, REFUSED, status=error.errno or errno.EIO)
        finally:
            for fd in fds:
                os.close(fd)

    def _dispatch(self, asked: request.InitRequest, fds: list[int]) -> None:
        match asked.verb:
            case request.RUN if asked.flags & request.PARALLEL:
                self._start_parallel(asked, fds)
            case request.RUN:
                self._start(asked, fds)
            case request.SIGNAL | request.END_PARALLEL:
                one = self._parallels.named(asked.path)
                if one is not None and asked.verb == request.SIGNAL:
                    processes.signal_group(one.pid, asked.mode)
                elif one is not None:
                    self._end_parallel(one, CANCELLED)
                self._done(asked)
            case request.END:
                if self._main:
                    self._end_request = asked.number  # answered when all is over
                    self._end_main(CANCELLED)
                else:
                    self._done(asked)
            case request.READ:
                fd = files.open_to_read(asked.path)
                self._done(asked, fd)
                os.close(fd)
            case request.WRITE:
                files.write(asked.path, fds[0], mode=asked.mode)
                self._done(asked)
            case request.CHANGES:
                self._done(asked, self._upper)
            case request.STOP | request.CONTINUE:
                stops = asked.verb == request.STOP
                self._others.signal(linux.SIGSTOP if stops else linux.SIGCONT)
                self._done(asked)
            case request.LEARN:
                self._groups[asked.mode] = fds.pop()
            case _:
                raise OSError(errno.ENOSYS, "no such verb")

    def _join(self, number: int) -> None:
        """Join that control group. Our caller moves the kept processes, while they are frozen."""
        if number not in self._groups:
            raise OSError(errno.EBADF, "no such control group")
        if number != self._joined:
            os.write(self._groups[number], b"0")
            self._joined = number

    def _done(self, asked: request.InitRequest, *fds: int) -> None:
        reply(self._sock, asked.number, DONE, fds=fds)

    def _start(self, asked: request.InitRequest, fds: list[int]) -> None:
        if self._main:
            raise OSError(errno.EBUSY, "a command is running")
        self._rests = bool(asked.flags & request.RESTS)
        if asked.flags & request.MOVES:
            self._join(asked.mode)
        # Before the start: we may get our core back only when the program has ended.
        began_at = time.monotonic()
        self._cpu_before = processes.children_cpu_s()
        try:
            self._main = self._spawn_with_outlets(asked, fds)
        except OSError as error:
            reply(self._sock, asked.number, NOT_STARTED, status=error.errno or errno.EIO)
            return
        self._request, self._flags = asked.number, 0
        self._keep = bool(asked.flags & request.KEEP)
        self._num_ended = 0
        self._began_at = began_at
        self._ends_at = began_at + asked.timeout_s

    def _start_parallel(self, asked: request.InitRequest, fds: list[int]) -> None:
        before = self._joined
        if asked.flags & request.MOVES:
            self._join(asked.mode)
        try:
            one, ours = self._parallels.start(asked, fds, self._spawn)
        except OSError as error:
            reply(self._sock, asked.number, NOT_STARTED, status=error.errno or errno.EIO)
            return
        finally:
            if asked.flags & request.MOVES and request.REST in self._groups:
                self._join(before if before >= 0 else request.REST)  # only the command is there
        figures = (one.pid, *(0,) * 8)
        reply(self._sock, asked.number, OUTPUT, figures=figures, fds=(ours,) if ours >= 0 else ())
        if ours >= 0:
            os.close(ours)

    def _spawn_with_outlets(self, asked: request.InitRequest, fds: list[int]) -> int:
        """Output is always the caller's to read."""
        stdin = fds[0] if asked.flags & request.HAS_STDIN else 0  # ours is /dev/null
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        try:
            for outlet, _ in pipes:
                os.set_blocking(outlet, False)
            pid = self._spawn(asked, [stdin, *(inlet for _, inlet in pipes)], self._fork)
            reply(self._sock, asked.number, OUTPUT, fds=tuple(outlet for outlet, _ in pipes))
            return pid
        finally:
            for ends in pipes:
                os.close(ends[0])
                os.close(ends[1])

    def _spawn(self, asked: request.InitRequest, stdio: list[int], fork: parallel.Fork) -> int:
        # The kernel's out-of-memory choice must fall on the command, not on PID 1.
        os.pwrite(self._score_file, self._exposed, 0)
        environ = dict(text.split(b"=", 1) for text in asked.environ)
        most = self._open_files
        try:
            processes.enter(asked.path)
            with processes.LoweredLimits({resource.RLIMIT_NOFILE: most, **asked.rlimits}):
                pid = fork(list(asked.words), environ, stdio)
            processes.forbid_more(pid, resource.RLIMIT_NOFILE, most)
            return pid
        finally:
            os.chdir("/")
            os.pwrite(self._score_file, self._sheltered, 0)

    def _fork(self, words: list[bytes], environ: dict[bytes, bytes], stdio: list[int]) -> int:
        self._main_adopts = bool(self._kept or self._parallels)
        if not self._main_adopts:
            return processes.spawn(words, environ, stdio)
        told, telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            pid = processes.spawn_apart(words, environ, stdio, telling=telling)
        except OSError:
            os.close(told)
            raise
        finally:
            os.close(telling)
        self._told = told
        return pid

    def _take_told(self) -> int:
        """Why the command that has ended was none; 0 if it was one."""
        if self._told < 0:
            return 0
        told, self._told = self._told, -1
        problem = os.read(told, 16)
        os.close(told)
        return int(problem or b"0")

    def _reap(self) -> None:
        os.read(self._children, 4096)
        while pid := self._wait(-1, os.WNOHANG):
            if self._flags and pid != self._main:
                self._num_ended += 1  # by us: see _end_main
        self._settle()

    def _wait(self, pid: int, options: int) -> int:
        """Reap one, 0 if no child has ended; how a command ended is noted for `_settle`."""
        try:
            found, status, usage = os.wait4(pid, options | linux.WALL)
        except ChildProcessError:
            return 0
        if found and not self._parallels.note(found, status, usage) and found == self._main:
            self._ended = status, usage.ru_maxrss
        return found

    def _settle(self) -> None:
        """Answer for every command that was reaped; to end what one left may reap another."""
        while self._ended is not None or (one := self._parallels.take_dead()) is not None:
            if self._ended is not None:
                self._finish(*self._ended)
            elif one is not None:
                self._finish_parallel(one)

    def _finish(self, status: int, max_rss_kb: int) -> None:
        problem = self._take_told()
        if problem and not self._flags:
            self._main, self._ended = 0, None
            reply(self._sock, self._request, NOT_STARTED, status=problem)
            return
        run_us = int((time.monotonic() - self._began_at) * 1e6)
        killed = 0
        if self._keep and not self._flags:
            found, commands = processes.alive(self._others.pids()), self._commands()
            free = [one for one in found if not commands.owner_of(one.pid)]
            self._kept = processes.KeptProcesses(free)
        else:
            killed = self._num_ended + self._end_others()
        cpu_us = int((processes.children_cpu_s() - self._cpu_before) * 1e6)
        figures = (cpu_us, max_rss_kb, killed, len(self._kept), run_us, UNKNOWN, UNKNOWN, 0, 0)
        number, self._main, self._ended = self._request, 0, None
        reply(self._sock, number, EXITED, status=status, flags=self._flags, figures=figures)
        self._flags = 0
        if self._end_request:
            reply(self._sock, self._end_request, DONE)
            self._end_request = 0

    def _end_others(self) -> int:
        """What belongs to no command that runs, and is not kept, ends; how many that were."""
        killed, self._kept = processes.end_others(
            self._others, self._kept, self._commands(), self._wait
        )
        return killed

    def _finish_parallel(self, one: parallel.ParallelCommand) -> None:
        problem = one.take_told()
        if problem and not one.flags:
            reply(self._sock, one.number, NOT_STARTED, status=problem)
            return
        run_us = int((time.monotonic() - one.began_at) * 1e6)
        killed = self._end_others()
        figures = (*one.usage, killed, len(self._kept), run_us, UNKNOWN, UNKNOWN, 0, 0)
        reply(self._sock, one.number, EXITED, status=one.status, flags=one.flags, figures=figures)
