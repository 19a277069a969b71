"""The process that workers are forked from: the modules of the functions are imported here, once.

- Single-threaded. A worker is a fork, so it starts in milliseconds and shares the modules' memory.
- A worker is ended here, with everything it started, because only its parent can be sure that a
  process id is still that worker's.
- Ends when its socket closes, and takes every worker with it.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback

from artangram.functions.inside.worker import live

MESSAGE_BYTES = 64 << 10
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


class FunctionZygote:
    """The loop: load, fork and end on request."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._born: dict[int, int] = {}

    def serve(self) -> None:
        while True:
            data, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 1)
            if not data:
                break
            match json.loads(data):
                case ["load", module]:
                    _load(module)
                case ["fork", number]:
                    self._fork(number, fds[0])
                case ["end", number]:
                    self._end(number)
        for number in list(self._born):
            self._end(number)

    def _fork(self, number: int, fd: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            # The owner sees the worker's socket close, and that is all it needs to know.
            print(f"artangram: no new worker: {error}", file=sys.stderr)
            os.close(fd)
            return
        if pid == 0:
            self._be_worker(number, fd)
        self._born[number] = pid
        os.close(fd)

    def _be_worker(self, number: int, fd: int) -> None:
        """Never returns: what is above on the stack belongs to the zygote."""
        try:
            parent = os.getppid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                self._control.close()
                os.setsid()
                with socket.socket(fileno=fd) as sock:
                    live(sock, number)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The owner let go while we answered.
        except BaseException:  # noqa: BLE001 - a fork must not go on as a second zygote
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)

    def _end(self, number: int) -> None:
        pid = self._born.pop(number, None)
        if pid is None:
            return  # It could not be forked.
        # Before its `setsid` it has no group yet; after it, its children are in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _load(module: str) -> None:
    """Import what workers will need. One that raises does so again in the worker, which tells."""
    with contextlib.suppress(Exception, SystemExit):
        importlib.import_module(module)
    # Forks must not copy pages only because the collector looked at them.
    gc.collect()
    gc.freeze()


def main(control_fd: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner.
    with socket.socket(fileno=control_fd) as control:
        control.set_inheritable(False)
        FunctionZygote(control).serve()
