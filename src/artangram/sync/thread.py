"""A thread that runs an event loop with one open client in it, and takes calls from other threads.

- The thread starts when the client is opened and ends when it is closed. One task opens and closes
  the client, as `async with` does.
- `wait` blocks the calling thread until a coroutine has ended in the loop. When the calling thread
  is interrupted (Ctrl-C), the call is cancelled, and `wait` raises when the call has ended.
- Calls that are under way when the client is closed are cancelled and raise `Refused`.
- Clients that are open when the main thread ends are closed then, before Python stops the thread
  pools that closing needs.
"""

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - its own exit hook has to be older than ours
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from artangram.core.errors import BadInput
from artangram.orchestrator.client import Client
from artangram.orchestrator.records import Refused

T = TypeVar("T")

GRACE_S = 30.0
"""How long an interrupted opening may take to undo what it has begun."""

_log = logging.getLogger(__name__)


class LoopThread:
    """See the module. Making one opens the client; use `client` in the loop only."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self._opening = opening
        self._opened: Future[Client] = Future()
        self._closed: Future[None] = Future()
        self._calls: set[asyncio.Task[Any]] = set()
        self._main: asyncio.Task[None] | None = None
        self._pid = os.getpid()
        #: Reentrant, for the garbage collector may call `later` at any moment.
        self._gate = threading.RLock()
        self._is_ending = False
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._closing = asyncio.Event()
        # A daemon: Python would wait for any other thread before it runs `_close_all`.
        self._thread = threading.Thread(target=self._run, name="artangram.sync", daemon=True)
        try:
            self._thread.start()
            self.client = self._opened.result()
        except BaseException:
            self._soon(self._abandon)
            wait_for([self._closed], timeout=GRACE_S)
            raise
        _open.add(self)

    @property
    def is_ending(self) -> bool:
        """Has `close` been called? Then every further call is refused."""
        return self._is_ending

    @property
    def is_current(self) -> bool:
        """Is the caller in this thread, where waiting would never end?"""
        return threading.current_thread() is self._thread

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run `call` in the loop; returns what it returns and raises what it raises."""
        ended: Future[T] = Future()
        started: list[asyncio.Task[T]] = []
        try:
            with self._gate:
                self._check()
                self._soon(lambda: started.append(self._start(call, ended)))
        except BaseException:
            call.close()
            raise
        try:
            return ended.result()
        except CancelledError:
            raise Refused("this client was closed during the call; open another one") from None
        except BaseException:
            if not ended.done():  # The caller was interrupted, the call goes on.
                self._soon(lambda: started[0].cancel())
                wait_for([ended])
            raise

    def later(self, call: Coroutine[Any, Any, None]) -> None:
        """Run `call` in the loop without waiting for it, unless the client is being closed."""
        with self._gate:
            if self._is_ending or self._pid != os.getpid():
                call.close()
            else:
                self._soon(lambda: self._start(call, Future()))

    def ask(self, question: Callable[[], T]) -> T:
        """What `question` returns in the loop; asked directly when the loop has ended."""

        async def asked() -> T:
            return question()

        return question() if self._closed.done() else self.wait(asked())

    def close(self) -> None:
        """Close the client and end the thread; returns when both have happened."""
        if self._pid != os.getpid():
            return  # A forked process has the object and not the thread.
        with self._gate:
            is_first, self._is_ending = not self._is_ending, True
        self._soon(self._closing.set)
        self._thread.join()
        _open.discard(self)
        if is_first:
            self._closed.result()

    def _check(self) -> None:
        if self._pid != os.getpid():
            problem = "was opened in another process, before a fork"
            raise BadInput("client", problem, "open one in this process")
        if self.is_current:
            raise BadInput("client", "is called in its own thread", "call it in another one")
        if self._is_ending:
            raise Refused("this client is closed; open another one")

    def _soon(self, act: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _start(self, call: Coroutine[Any, Any, T], ended: Future[T]) -> asyncio.Task[T]:
        running = self._loop.create_task(call)
        self._calls.add(running)

        def on_end(_: asyncio.Task[T]) -> None:
            self._calls.discard(running)
            if running.cancelled():
                ended.cancel()
                ended.set_running_or_notify_cancel()
            elif (error := running.exception()) is not None:
                ended.set_exception(error)
            else:
                ended.set_result(running.result())

        running.add_done_callback(on_end)
        return running

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            with self._runner:
                self._runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
            failure = error
        if not self._opened.done():
            self._opened.set_exception(failure or Refused("the client did not open"))
        if failure is None:
            self._closed.set_result(None)
        else:
            self._closed.set_exception(failure)

    async def _serve(self) -> None:
        self._main = asyncio.current_task()
        if self._closing.is_set():
            return
        async with self._opening() as client:
            self._opened.set_result(client)
            await self._closing.wait()
            # Calls that came before `close` have started by now, and no more can come.
            for call in self._calls:
                call.cancel()
            if self._calls:
                await asyncio.wait(self._calls)

    def _abandon(self) -> None:
        """Its opener was interrupted."""
        self._closing.set()
        if self._main is not None:
            self._main.cancel()


_open: set[LoopThread] = set()


def _close_all() -> None:
    """Close what the program left open; it ends, so a failure is only logged."""
    for thread in list(_open):
        try:
            thread.close()
        except Exception:  # noqa: BLE001 - every client gets its turn
            _log.exception("a client that was open at exit did not close cleanly")


# `atexit` would be too late: Python has stopped its thread pools by then.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
