"""Freezes a large state in a forked child, so that decisions go on meanwhile.

- The child has the memory of the moment of the fork. It pickles, writes the bytes into a pipe and
  exits; it closes every other file first, so that no connection outlives its parent through it.
- `on_frozen` is called in the loop, once, with the bytes, or with `None` if the child failed or was
  cancelled. Memory that the parent changes meanwhile exists twice.
"""

import asyncio
import gc
import os
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress

CHUNK_BYTES = 1 << 20

OnFrozen = Callable[[bytes | None], None]


class FrozenAside:
    """One child that freezes."""

    def __init__(self, freeze: Callable[[], bytes], on_frozen: OnFrozen) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_frozen = on_frozen
        self._reading, writing = os.pipe()
        with warnings.catch_warnings():
            # The child touches nothing that a thread of its parent may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            _write_and_exit(freeze, writing)
        os.close(writing)
        threading.Thread(target=self._read, name="frozen aside", daemon=True).start()

    def cancel(self) -> None:
        """Its bytes are not wanted any more."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def _read(self) -> None:
        parts: list[bytes] = []
        with open(self._reading, "rb", buffering=0) as pipe:
            while part := pipe.read(CHUNK_BYTES):
                parts.append(part)
        _, status = os.waitpid(self._pid, 0)
        body = b"".join(parts) if status == 0 else None
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._on_frozen, body)


def _write_and_exit(freeze: Callable[[], bytes], writing: int) -> None:
    """The child: never returns, whatever happens."""
    try:
        gc.disable()  # It would write to memory that is shared with the parent.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        body = memoryview(freeze())
        while body:
            body = body[os.write(writing, body) :]
        os._exit(0)
    finally:
        os._exit(1)
