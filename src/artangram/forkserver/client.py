"""The owner's side of a fork server: spawn processes, hear of their ends, replace a dead zygote.

- Nothing here blocks the event loop; orders that the zygote has no time for wait in an outbox.
- A dead zygote takes its processes with it; the next `spawn` starts another with the same modules.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from artangram.core.errors import InfraFailed
from artangram.forkserver import records

END_PATIENCE_S = 10.0
"""How long a zygote may take to end its processes and itself; then it is killed."""

_PROGRAM = """
import sys
sys.path[:] = {path!r}
from artangram.forkserver.zygote import main
main(*{arguments!r})
"""


class ForkedProcess:
    """A process of a fork server, as its owner sees it."""

    def __init__(self, number: int, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.connection = connection
        """Our end; not blocking."""
        self.pid: int | None = None
        self.problem = ""
        """Why it never started."""
        self.ended: asyncio.Future[int] = loop.create_future()
        """Done once, when the process is gone: its exit code, or a signal's number, negated."""
        self._started: asyncio.Future[None] = loop.create_future()
        self._zygote: _ZygoteProcess | None = None

    def __repr__(self) -> str:
        return f"<ForkedProcess {self.number}: pid {self.pid}>"

    async def started(self) -> int:
        """Its pid, as soon as it has one. Raises `InfraFailed` if it could not be forked."""
        await asyncio.wait({self._started})
        if self.pid is None:
            raise InfraFailed(self.problem or "its fork server died before it could fork")
        return self.pid

    def kill(self) -> None:
        """Kill it and everything it started; `ended` tells when it is gone."""
        if self._zygote is not None and not self.ended.done():
            self._zygote.send(records.Kill(self.number))

    def _ordered_from(self, zygote: "_ZygoteProcess") -> None:
        self._zygote = zygote

    def _on_started(self, pid: int) -> None:
        self.pid = pid
        self._started.set_result(None)

    def _on_ended(self, status: int, problem: str = "") -> None:
        self.problem = problem
        if not self._started.done():
            self._started.set_result(None)
        self.ended.set_result(status)


class ForkServer:
    """Forks processes that run `target`, "module:function"; see `zygote.Target`.

    The zygote starts at the first `spawn`. It removes `directory` when it ends. With `is_cold`
    every process has a zygote of its own that preloads nothing: the cost without a fork server.
    """

    def __init__(
        self,
        target: str,
        *,
        preload: tuple[str, ...] = (),
        environ: Mapping[str, str] | None = None,
        directory: Path | None = None,
        is_cold: bool = False,
    ) -> None:
        self.is_cold = is_cold
        self._target = target
        self._modules = dict.fromkeys(preload)
        self._environ = os.environ if environ is None else environ
        self._directory = directory
        self._numbers = count(1)
        self._zygote: _ZygoteProcess | None = None
        self._alive: set[_ZygoteProcess] = set()
        self._is_closed = False

    def preload(self, module: str) -> bool:
        """Import `module` for all processes that start later; was that new?"""
        if self.is_cold or module in self._modules:
            return False
        self._modules[module] = None
        if self._zygote is not None:
            self._zygote.send(records.Preload(module))
        return True

    def spawn(self) -> ForkedProcess:
        """A new process. It starts while the caller goes on; after `aclose`, it has ended."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        process = ForkedProcess(next(self._numbers), ours)
        if self._is_closed:
            theirs.close()
            process._on_ended(-signal.SIGKILL, "its fork server is closed")
        else:
            zygote = self._running()
            zygote.fork(process, theirs)
            if self.is_cold:
                process.ended.add_done_callback(lambda _: zygote.close())
        return process

    async def ready(self, *, within_s: float) -> None:
        """Wait until the zygote has imported its modules. Raises `InfraFailed` if it does not."""
        if self._is_closed or self.is_cold:
            return
        zygote = self._running()
        if not await zygote.is_ready(within_s=within_s):
            problem = "died" if zygote.is_gone else f"did not get ready within {within_s:g} s"
            zygote.close()
            raise InfraFailed(f"the fork server of {self._target} {problem}")

    async def aclose(self) -> None:
        """End all processes and start no more; returns when they are gone."""
        self._is_closed = True
        for zygote in list(self._alive):
            zygote.close()
        if self._alive:
            gone = {zygote.gone for zygote in self._alive}
            _, late = await asyncio.wait(gone, timeout=END_PATIENCE_S)
            if late:
                for zygote in list(self._alive):
                    zygote.kill()
                await asyncio.wait(late)

    def _running(self) -> "_ZygoteProcess":
        if self._zygote is not None and not self.is_cold:
            self._zygote.read_reports()  # The loop would have told us next that it is gone.
            if not self._zygote.is_gone:
                return self._zygote
        modules = [] if self.is_cold else list(self._modules)
        directory = None if self._directory is None else str(self._directory)
        zygote = _ZygoteProcess((self._target, directory, modules), self._environ)
        self._alive.add(zygote)
        zygote.gone.add_done_callback(lambda _: self._alive.discard(zygote))
        self._zygote = zygote
        return zygote


class _ZygoteProcess:
    """One zygote and the connection to it."""

    def __init__(self, arguments: tuple[object, ...], environ: Mapping[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_gone = False
        """Nothing can be ordered from it any more."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when it and its processes are gone."""
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._processes: dict[int, ForkedProcess] = {}
        self._outbox: deque[tuple[bytes, socket.socket | None]] = deque()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = _PROGRAM.format(path=sys.path, arguments=(theirs.fileno(), *arguments))
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # What models and functions print is for people; our standard output carries data.
                stdout=2,
                env=environ,
                # A signal to the owner's process group must not reach it: it ends after its owner.
                start_new_session=True,
            )
        self._pidfd = os.pidfd_open(self._process.pid)
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self.read_reports)
        self._loop.add_reader(self._pidfd, self._on_exit)

    async def is_ready(self, *, within_s: float) -> bool:
        either = {self._ready, self.gone}
        await asyncio.wait(either, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return self._ready.done() and not self.is_gone

    def fork(self, process: ForkedProcess, theirs: socket.socket) -> None:
        self._processes[process.number] = process
        process._ordered_from(self)
        self.send(records.Fork(process.number), passed=theirs)

    def send(self, record: object, *, passed: socket.socket | None = None) -> None:
        self._outbox.append((records.encode(record), passed))
        self._flush()

    def close(self) -> None:
        """Have it end its processes and itself."""
        if not self._ready.done():
            self.kill()  # It would look at its connection only after its imports.
        self._hang_up()

    def kill(self) -> None:
        if not self.gone.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def read_reports(self) -> None:
        """Handle all reports that have arrived."""
        while not self.is_gone:
            try:
                data = self._control.recv(records.PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.kill()
                self._hang_up()
                return
            self._on_report(data)

    def _on_report(self, data: bytes) -> None:
        match records.decode_report(data):
            case records.ZygoteReady():
                self._ready.set_result(None)
            case records.ProcessStarted(number, pid):
                self._processes[number]._on_started(pid)
            case records.ProcessEnded(number, status, problem):
                self._processes.pop(number)._on_ended(status, problem)

    def _on_exit(self) -> None:
        self.read_reports()
        self._hang_up()
        self._loop.remove_reader(self._pidfd)
        self._process.wait()
        os.close(self._pidfd)
        self.gone.set_result(None)
        for process in self._processes.values():  # The kernel killed them with their zygote.
            process._on_ended(-signal.SIGKILL)
        self._processes.clear()

    def _flush(self) -> None:
        """Send what the zygote has room for; a full socket calls this again."""
        while self._outbox and not self.is_gone:
            data, passed = self._outbox[0]
            try:
                socket.send_fds(self._control, [data], [passed.fileno()] if passed else [])
            except BlockingIOError:
                self._loop.add_writer(self._control.fileno(), self._flush)
                return
            except OSError:
                self._hang_up()  # It is gone, and its pidfd will say so.
                return
            self._outbox.popleft()
            if passed is not None:
                passed.close()
        if self.is_gone:
            self._drop_outbox()
        else:
            self._loop.remove_writer(self._control.fileno())

    def _hang_up(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._loop.remove_reader(self._control.fileno())
            self._loop.remove_writer(self._control.fileno())
            self._control.close()
            self._drop_outbox()

    def _drop_outbox(self) -> None:
        """Close the connections of processes that will never start: their owners read EOF."""
        for _, passed in self._outbox:
            if passed is not None:
                passed.close()
        self._outbox.clear()
