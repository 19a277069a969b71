"""Warm workers, from zero to a ceiling and back.

- Never more processes than `ceiling`, whatever runs in them.
- A call takes the worker that became idle last, so that the others can end after `idle_s`.
- A hedge (a second copy of a late call) has a worker only while no call wants it: the scheduler
  knows nothing of guests, so a call that finds the ceiling reached makes one leave.
"""

import asyncio
import math
import os
import socket
from collections import deque
from collections.abc import Callable

from artangram.forkserver.client import ForkedProcess, ForkServer
from artangram.functions.inside.records import WorkerRequest, owner_terms
from artangram.link import Link, LinkUser, dial

TARGET = "artangram.functions.inside.worker:live"

ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
"""A worker is one slot; and a process with threads cannot be forked safely."""


def a_fork_server() -> ForkServer:
    """A fork server of function workers."""
    return ForkServer(TARGET, environ={**ONE_THREAD, **os.environ})


class FunctionWorker:
    """One worker process, as its owner sees it."""

    __slots__ = ("_link", "_process")

    def __init__(self, process: ForkedProcess) -> None:
        self._process = process
        self._link: Link[None] | None = None

    def __repr__(self) -> str:
        return f"<FunctionWorker {self._process.number}>"

    def is_gone(self) -> bool:
        """Did it end while idle? Looks at the socket: the loop may not have heard of it yet."""
        try:
            return not self._process.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def start(self) -> None:
        """Wait until it has started. Raises `LinkEnded` or `OSError` if it never will."""
        if self._link is None:
            connection = self._process.connection
            self._link = await dial(connection, owner_terms, LinkUser(), patience_s=math.inf)

    async def ask(self, request: WorkerRequest) -> bytes:
        """Its answer. Raises `CallFailed`, `InfraFailed`, or `LinkEnded` if it is gone."""
        assert self._link is not None, f"{self!r} has not started"
        return await self._link.ask(request, bytes)

    def end(self) -> None:
        """End it, whatever it does, and everything it started."""
        self._process.kill()

    def close(self) -> None:
        """Close the connection. No call may be waiting for an answer."""
        if self._link is None:
            self._process.connection.close()
        else:
            self._link.close()


class Workers:
    """The workers of this machine."""

    def __init__(self, forkserver: ForkServer, *, ceiling: int, idle_s: float) -> None:
        self._forkserver = forkserver
        self.ceiling = ceiling
        self.idle_s = idle_s
        self.num_cold_starts = 0
        self._busy: set[FunctionWorker] = set()
        #: Ascending times; the last one became idle last.
        self._idle: deque[tuple[float, FunctionWorker]] = deque()
        self._guests: dict[FunctionWorker, Callable[[], object]] = {}
        #: Bounded by the number of callers; empty where a scheduler books the slots.
        self._waiting: deque[asyncio.Future[FunctionWorker]] = deque()
        self._expiry: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        busy, idle = len(self._busy), len(self._idle)
        return f"<Workers: {busy} busy, {idle} idle of {self.ceiling}>"

    @property
    def num_alive(self) -> int:
        return len(self._busy) + len(self._idle)

    @property
    def num_busy(self) -> int:
        return len(self._busy)

    async def take(self) -> FunctionWorker:
        """A worker for a call; waits for one if the ceiling is reached by other calls."""
        if not self._has_room() and self._guests:
            self._evict()
        if self._has_room():
            return self._take()
        turn: asyncio.Future[FunctionWorker] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(turn.result())
            raise

    def take_spare(self) -> FunctionWorker | None:
        """A worker for a hedge, if no call needs it."""
        return self._take() if self._has_room() else None

    def lend(self, worker: FunctionWorker, leave: Callable[[], object]) -> None:
        """`worker` has a hedge. `leave` is called when a call needs the room: then end it."""
        self._guests[worker] = leave

    def promote(self, worker: FunctionWorker) -> None:
        """The hedge in `worker` stands for its call now: the other copy is gone."""
        self._guests.pop(worker, None)

    def give_back(self, worker: FunctionWorker) -> None:
        """`worker` is idle."""
        self._release(worker)
        if self.num_alive >= self.ceiling:  # It was lowered meanwhile.
            self._discard(worker)
        else:
            self._idle.append((asyncio.get_running_loop().time(), worker))
            self._expire_later()
        self._serve_waiting()

    def end(self, worker: FunctionWorker) -> None:
        """`worker` is gone, or must go. The call that talks to it closes the connection."""
        if worker in self._busy:  # Else it was a hedge that had to leave.
            self._release(worker)
            worker.end()
            self._serve_waiting()

    def resize(self, ceiling: int) -> None:
        """There may be more or fewer; those that are busy stay until their calls have ended."""
        self.ceiling = ceiling
        while self._idle and self.num_alive > ceiling:
            self._discard(self._idle.popleft()[1])
        self._serve_waiting()

    def close(self) -> None:
        """Let go of those that are idle."""
        if self._expiry is not None:
            self._expiry.cancel()
        for _, worker in self._idle:
            worker.close()
        self._idle.clear()

    def _has_room(self) -> bool:
        return len(self._busy) < self.ceiling

    def _take(self) -> FunctionWorker:
        worker = self._warm()
        if worker is None:
            self.num_cold_starts += 1
            worker = FunctionWorker(self._forkserver.spawn())
        self._busy.add(worker)
        return worker

    def _warm(self) -> FunctionWorker | None:
        """The worker that became idle last and is still there."""
        while self._idle:
            worker = self._idle.pop()[1]
            if not worker.is_gone():
                return worker
            self._discard(worker)
        return None

    def _discard(self, worker: FunctionWorker) -> None:
        worker.end()
        worker.close()

    def _release(self, worker: FunctionWorker) -> None:
        self._busy.remove(worker)
        self._guests.pop(worker, None)

    def _evict(self) -> None:
        """The youngest hedge leaves: it has done least."""
        worker, leave = self._guests.popitem()
        self.end(worker)
        leave()

    def _serve_waiting(self) -> None:
        while self._waiting and self._has_room():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(self._take())

    def _expire_later(self) -> None:
        if self._expiry is None and self._idle:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_at(self._idle[0][0] + self.idle_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now = asyncio.get_running_loop().time()
        while self._idle and self._idle[0][0] + self.idle_s <= now:
            self._discard(self._idle.popleft()[1])
        self._expire_later()
