"""The process that forks: imports the target and the preloaded modules once, forks on request.

- It has one thread, always: a fork copies only the thread that forks.
- A forked process leads its own session, calls `target(connection, number)` and exits with what
  that returns.
- Only the zygote kills and reaps: a process id stays reserved until its parent has reaped it.
- When its owner closes the connection, it kills its processes, removes `directory` and exits.
"""

import contextlib
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable

from artangram.forkserver import records
from artangram.forkserver.pdeathsig import die_with

Target = Callable[[socket.socket, int], int]
"""What a forked process does with its connection and its number; returns the exit code."""


class Zygote:
    """Forks processes and reports when they have ended."""

    def __init__(self, control: socket.socket, target: Target) -> None:
        self._control = control
        self._target = target
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._pids: dict[int, int] = {}

    def serve(self) -> None:
        """Obey orders until the owner closes the connection."""
        self._report(records.ZygoteReady())
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._reap(key.fd, key.data)
                    continue
                data, fds, _, _ = socket.recv_fds(self._control, records.PACKET_BYTES, 1)
                if not data:
                    return
                self._obey(data, fds)

    def end_all(self) -> None:
        """Kill the processes that are left; return when they are gone."""
        for number in self._pids:
            self._kill(number)
        for pid in self._pids.values():
            os.waitpid(pid, 0)

    def _obey(self, data: bytes, fds: list[int]) -> None:
        match records.decode_order(data):
            case records.Fork(number):
                self._fork(number, fds[0])
            case records.Kill(number):
                self._kill(number)
            case records.Preload(module):
                preload(module)

    def _fork(self, number: int, fd: int) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._report(records.ProcessEnded(number, 1, f"cannot fork: {error}"))
            os.close(fd)
            return
        if pid == 0:
            self._run_target(number, fd, parent)
        os.close(fd)
        self._pids[number] = pid
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, number)
        self._report(records.ProcessStarted(number, pid))

    def _run_target(self, number: int, fd: int, parent: int) -> None:
        """Never returns: the stack above belongs to the zygote."""
        code = 1
        try:
            die_with(parent)
            os.setsid()
            self._close_own()
            with socket.socket(fileno=fd) as connection:
                connection.set_inheritable(False)
                code = self._target(connection, number)
        except ConnectionError:
            code = 0  # The owner closed the connection while this process answered.
        except BaseException:  # noqa: BLE001 - a fork must not go on as a second zygote
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _close_own(self) -> None:
        """Close the zygote's descriptors, but not those that preloaded modules opened."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
        self._selector.close()
        self._control.close()

    def _kill(self, number: int) -> None:
        pid = self._pids.get(number)
        if pid is not None:
            # Before its `setsid` it has no group; after it, its children are in its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)

    def _reap(self, pidfd: int, number: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        self._kill(number)  # It is a zombie; what it started may be alive.
        _, status = os.waitpid(self._pids.pop(number), 0)
        self._report(records.ProcessEnded(number, os.waitstatus_to_exitcode(status)))

    def _report(self, record: object) -> None:
        self._control.send(records.encode(record))


def preload(module: str) -> None:
    """Import `module` for all forks. One that raises does so again in the process that needs it."""
    with contextlib.suppress(Exception, SystemExit):
        importlib.import_module(module)
    # Collected now and never again: a collection in a fork would copy every page it looks at.
    gc.collect()
    gc.freeze()


def main(control_fd: int, target: str, directory: str | None, modules: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The owner decides when this process ends.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=control_fd) as control:
        control.set_inheritable(False)
        module, _, name = target.partition(":")
        zygote = Zygote(control, getattr(importlib.import_module(module), name))
        for each in modules:
            preload(each)
        try:
            zygote.serve()
        except ConnectionError:
            pass  # The owner is gone.
        finally:
            zygote.end_all()
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
