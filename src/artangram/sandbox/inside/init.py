"""The init of a sandbox: starts commands, ends what they leave, answers one socket.

- Dies when its socket closes, and every process of the sandbox with it.
- Replies to a command only after what it left is dead, or was asked to be kept.
- Holds the deadline itself, so that a busy caller cannot make a command run longer.
- Runs as the sandbox's own user, without any capability, and installs no signal handler.
- `init.c` is the same loop for namespaces, where a compiler was there to build it.
"""

# ruff: noqa: SIM105 - `contextlib` would be imported into every sandbox

from __future__ import annotations

import errno
import os
import resource
import select
import struct
import time
from _socket import socket as RawSocket

from artangram.sandbox.inside import channel, files, linux, processes, request

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
NO_DIRECTORY = 1 << 16
"""Beside the error number of NOT_STARTED: it is about the directory to start in."""
UNKNOWN = -1
MORE_EXPOSED = 500
LONGEST_WAIT_MS = 1 << 30
"""Not much longer would be more than the kernel can count."""
MANY_FILES = 1 << 20
"""What kernels allow to a process at the most, unless told otherwise."""


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


def allow_more_files() -> None:
    """Let this process have as many open files as it may allow itself, if it comes to that.

    Descriptors that wait in sockets count for all of one user. A program may have as many there
    as it may have open, and those of one more message with each process that waits to send one:
    with no more than that allowed to init, the kernel would keep it from answering.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, MANY_FILES)))
    except (ValueError, OSError):
        pass  # only root may have more than is allowed already


def take_all_files() -> int:
    """From now on have what `allow_more_files` allowed; returns what a command may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft // 2


class Init:
    """The loop. At most one command at a time; files are served meanwhile."""

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
        self._open_files = take_all_files()
        self._children = linux.child_signals()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self._poll.register(self._children, select.POLLIN)
        self._kept = processes.KeptProcesses()
        self._main = 0
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
        if not ready and time.monotonic() >= self._ends_at:
            self._end_main(TIMED_OUT)
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
        if not self._main or self._flags:
            return None
        return min(LONGEST_WAIT_MS, max(0.0, (self._ends_at - time.monotonic()) * 1000))

    def _end_main(self, flag: int) -> None:
        """Time is up or the caller is: everything in the sandbox ends, kept or not."""
        self._flags |= flag
        self._keep = False
        self._kept = processes.KeptProcesses()
        self._others.signal(linux.SIGKILL)

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
            case request.RUN:
                self._start(asked, fds)
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
        self._cpu_before = _children_cpu_s()
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

    def _spawn_with_outlets(self, asked: request.InitRequest, fds: list[int]) -> int:
        """Output is always the caller's to read."""
        stdin = fds[0] if asked.flags & request.HAS_STDIN else 0  # ours is /dev/null
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        try:
            for outlet, _ in pipes:
                os.set_blocking(outlet, False)
            pid = self._spawn(asked, [stdin, *(inlet for _, inlet in pipes)])
            reply(self._sock, asked.number, OUTPUT, fds=tuple(outlet for outlet, _ in pipes))
            return pid
        finally:
            for ends in pipes:
                os.close(ends[0])
                os.close(ends[1])

    def _spawn(self, asked: request.InitRequest, stdio: list[int]) -> int:
        # The kernel's out-of-memory choice must fall on the command, not on PID 1.
        os.pwrite(self._score_file, self._exposed, 0)
        environ = dict(text.split(b"=", 1) for text in asked.environ)
        most = self._open_files
        try:
            _enter(asked.path)
            with processes.LoweredLimits({resource.RLIMIT_NOFILE: most, **asked.rlimits}):
                pid = self._fork(list(asked.words), environ, stdio)
            processes.forbid_more(pid, resource.RLIMIT_NOFILE, most)
            return pid
        finally:
            os.chdir("/")
            os.pwrite(self._score_file, self._sheltered, 0)

    def _fork(self, words: list[bytes], environ: dict[bytes, bytes], stdio: list[int]) -> int:
        if not self._kept:
            return processes.spawn(words, environ, stdio)
        told, telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            pid = processes.spawn_beside_kept(words, environ, stdio, telling=telling)
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
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | linux.WALL)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._main:
                self._finish(status, usage.ru_maxrss)
            elif self._flags:
                self._num_ended += 1  # by us: see _end_main

    def _finish(self, status: int, max_rss_kb: int) -> None:
        problem = self._take_told()
        if problem and not self._flags:
            self._main = 0
            reply(self._sock, self._request, NOT_STARTED, status=problem)
            return
        run_us = int((time.monotonic() - self._began_at) * 1e6)
        killed = 0
        if self._flags:
            killed = self._num_ended + self._others.end()
        elif self._keep:
            self._kept = processes.KeptProcesses(processes.alive(self._others.pids()))
        else:
            killed, self._kept = processes.end_others(self._others, self._kept)
        cpu_us = int((_children_cpu_s() - self._cpu_before) * 1e6)
        figures = (cpu_us, max_rss_kb, killed, len(self._kept), run_us, UNKNOWN, UNKNOWN, 0, 0)
        number, self._main = self._request, 0
        reply(self._sock, number, EXITED, status=status, flags=self._flags, figures=figures)
        self._flags = 0
        if self._end_request:
            reply(self._sock, self._end_request, DONE)
            self._end_request = 0


def _enter(directory: bytes) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise OSError((error.errno or errno.EIO) | NO_DIRECTORY, "chdir") from None


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
