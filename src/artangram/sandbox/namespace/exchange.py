"""The host's end of what leaves a sandbox: pipes of a command, output caps, files.

- Output beyond the cap is counted and thrown away, but always read: a program must never block
  because it printed too much.
- The end of a command is its reply, not the end of its pipes: a daemon that keeps them open
  delays nothing.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Literal

from artangram.aio import uncancelled
from artangram.sandbox.protocol import Output

CHUNK_BYTES = 64 << 10
MAX_DRAIN_BYTES = 2 << 20
"""A pipe holds at most 1 MiB, so what a finished command printed fits."""
MAX_QUEUED_CHUNKS = 16
READ_IN_LINE_BYTES = 1 << 20

Channel = Literal["stdout", "stderr"]


class OutputPipe:
    """Where one channel of a command is read; `fd`, which does not block, is closed here."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, *, cap: int) -> None:
        self._loop = loop
        self._room = cap
        self._reading = False
        self._chunks: list[bytes] = []
        self.num_truncated = 0
        self.on_chunk: Callable[[bytes], None] | None = None
        self._fd = fd

    @property
    def data(self) -> bytes:
        return b"".join(self._chunks)

    def resume(self) -> None:
        if self._fd >= 0 and not self._reading:
            self._loop.add_reader(self._fd, self._pump)
            self._reading = True

    def pause(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._reading = False

    def _pump(self) -> None:
        if not self._take():
            self.close()

    def _take(self) -> int:
        """Read once; 0 at the end of the pipe. BlockingIOError when nothing is there."""
        chunk = _read(self._fd)
        kept = chunk[: self._room]
        self._room -= len(kept)
        self.num_truncated += len(chunk) - len(kept)
        if kept and self.on_chunk is not None:
            self.on_chunk(kept)
        elif kept:
            self._chunks.append(kept)
        return len(chunk)

    def drain(self) -> None:
        """Take what a finished command left in the pipe, without waiting, and close."""
        taken = 0
        try:
            while self._fd >= 0 and taken < MAX_DRAIN_BYTES:
                size = self._take()
                if not size:
                    break
                taken += size
        except BlockingIOError:
            pass
        self.close()

    def close(self) -> None:
        self.pause()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, CHUNK_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:
            return b""  # a terminal that no program has open any more
        raise


def resume(*outlets: OutputPipe) -> None:
    """Read from now on, as it comes."""
    for outlet in outlets:
        outlet.resume()


class Feed:
    """Output of both pipes in the order it was read; a full feed stops the reading."""

    def __init__(self) -> None:
        self._outlets: tuple[OutputPipe, ...] = ()
        self._queue: asyncio.Queue[Output | None] = asyncio.Queue()  # bounded by pausing

    def attach(self, *outlets: OutputPipe) -> None:
        """Stdout and stderr."""
        self._outlets = stdout, stderr = outlets
        stdout.on_chunk = lambda data: self._put("stdout", data)
        stderr.on_chunk = lambda data: self._put("stderr", data)

    def _put(self, channel: Channel, data: bytes) -> None:
        self._queue.put_nowait(Output(channel=channel, data=data))
        if self._queue.qsize() >= MAX_QUEUED_CHUNKS:
            for outlet in self._outlets:
                outlet.pause()

    def finish(self) -> None:
        self._queue.put_nowait(None)

    async def next(self) -> Output | None:
        """The next piece, or None when the command is over."""
        item = await self._queue.get()
        if self._queue.qsize() < MAX_QUEUED_CHUNKS:
            resume(*self._outlets)
        return item


async def read_all(fd: int, max_bytes: int, *, size: int) -> bytes:
    """All bytes of a regular file of about `size`, however it changes meanwhile."""
    if size <= READ_IN_LINE_BYTES:
        return _read_all(fd, max_bytes)
    # To the end, even if cancelled: the number may be another file's once it is closed.
    return await uncancelled(asyncio.to_thread(_read_all, fd, max_bytes))


def _read_all(fd: int, max_bytes: int) -> bytes:
    with open(fd, "rb", buffering=0, closefd=False) as file:
        chunks = []
        left = max_bytes
        while left > 0 and (chunk := file.read(min(left, 1 << 20))):
            chunks.append(chunk)
            left -= len(chunk)
    return b"".join(chunks)
