"""Our end of the zygote and of the workers it forks.

- Nothing here blocks; what the zygote has no time for waits in the outbox.
- A worker that died is an `EOFError` for whoever asks it. A dead zygote takes its workers along and
  is replaced when the next worker is wanted.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections import deque
from itertools import count

from artangram.functions.inside import frames

_START = """
import sys
sys.path[:] = {path!r}
from artangram.functions.inside.zygote import main
main({fd})
"""
_ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
"""A worker is one slot; and a process with threads cannot be forked safely."""
END_PATIENCE_S = 10.0


class FunctionWorker:
    """One worker process, as its owner sees it."""

    __slots__ = ("_sock", "has_started", "number")

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.has_started = False
        self._sock = sock

    def __repr__(self) -> str:
        return f"<Worker {self.number}>"

    def is_gone(self) -> bool:
        """Did it end while idle?"""
        return _is_hung_up(self._sock)

    async def birth(self) -> None:
        """Wait until it is there. Raises `EOFError` or `OSError` if it never will be."""
        if not self.has_started:
            await self._frame()
            self.has_started = True

    async def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """The kind of its answer and the answer. Raises `EOFError` or `OSError` if it is gone."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._sock, frames.framed(b"r", request))
        return await self._frame()

    def close(self) -> None:
        """Let go of it. Nobody may be waiting for its answer."""
        self._sock.close()

    async def _frame(self) -> tuple[bytes, bytes]:
        kind, size = frames.HEAD.unpack(await self._exactly(frames.HEAD.size))
        return kind, await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray(size)
        view = memoryview(data)
        while view:
            num_read = await loop.sock_recv_into(self._sock, view)
            if not num_read:
                raise EOFError(f"{self!r} is gone")
            view = view[num_read:]
        return bytes(data)


class FunctionForkServer:
    """One zygote at a time, started when first needed."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._modules: dict[str, None] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._outbox: deque[tuple[bytes, socket.socket | None]] = deque()
        self._is_closed = False

    def load(self, module: str) -> None:
        """Have `module` imported before workers need it."""
        if module not in self._modules:
            self._modules[module] = None
            if self._control is not None:
                self._send(["load", module])

    def fork(self) -> FunctionWorker:
        """A new worker; it comes to life while we go on, or never does when all is closed."""
        if self._control is not None and _is_hung_up(self._control):
            self._drop()  # The loop would have told us next.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        worker = FunctionWorker(next(self._numbers), ours)
        if self._is_closed:
            theirs.close()
            return worker
        if self._control is None:
            self._start()
        self._send(["fork", worker.number], passed=theirs)
        return worker

    def end(self, worker: FunctionWorker) -> None:
        """End a worker, whatever it does, and all it started."""
        if self._control is not None:
            self._send(["end", worker.number])

    async def aclose(self) -> None:
        """End all of them, and start no more."""
        self._is_closed = True
        if self._control is not None:
            self._drop()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait, END_PATIENCE_S)
            self._process = None

    def _start(self) -> None:
        if self._process is not None:
            self._process.wait()  # It is gone already: its socket was closed.
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=sys.path, fd=theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # What functions print is for people: standard output may carry our own results.
                stdout=2,
                env={**_ONE_THREAD, **os.environ},
            )
        self._control.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), self._drop)
        for module in self._modules:
            self._send(["load", module])

    def _send(self, message: list[object], *, passed: socket.socket | None = None) -> None:
        self._outbox.append((json.dumps(message).encode(), passed))
        self._flush()

    def _flush(self) -> None:
        """Send what the zygote has room for; a full socket calls this again."""
        loop = asyncio.get_running_loop()
        while self._outbox and self._control is not None:
            data, passed = self._outbox[0]
            try:
                socket.send_fds(self._control, [data], [passed.fileno()] if passed else [])
            except BlockingIOError:
                loop.add_writer(self._control.fileno(), self._flush)
                return
            except OSError:
                self._drop()
                return
            self._outbox.popleft()
            if passed is not None:
                passed.close()
        if self._control is not None:
            loop.remove_writer(self._control.fileno())

    def _drop(self) -> None:
        """The zygote is dead, or shall be. It never speaks: a readable socket means the former."""
        assert self._control is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._control.fileno())
        loop.remove_writer(self._control.fileno())
        self._control.close()
        self._control = None
        while self._outbox:
            _, passed = self._outbox.popleft()
            if passed is not None:
                passed.close()  # Its worker was never born, and whoever waits for it learns so.


def _is_hung_up(sock: socket.socket) -> bool:
    """Is nobody at the other end any more?"""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
