"""Frames over a socket between the controller and one worker.

- A frame is a kind, a number and a body of JSON. `RUN` and `FINISH` go to the worker, all others
  come from it. `ENDED` and `FAILED` carry the reports of the test with that number, complete.
- The worker blocks when it reads; the controller never does.
- Only the worker itself speaks: a copy of it that a test made and did not end, ends instead.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any, NamedTuple

RUN = b"r"
FINISH = b"f"
READY = b"R"
ENDED = b"e"
FAILED = b"F"
LATE = b"l"
"""A report about a test that had ended: tearing down what it shared failed."""
WARNED = b"w"
STOPPED = b"s"
"""A test wants the whole run to stop."""
DONE = b"d"

_HEAD = struct.Struct("!cII")


class Frame(NamedTuple):
    kind: bytes
    number: int
    body: bytes

    def value(self) -> Any:
        return json.loads(self.body)


class WorkerChannel:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = bytearray()
        self._speaker: int | None = None
        self.is_closed = False

    def belong_to(self, pid: int) -> None:
        """Any other process that tries to send through this end ends instead."""
        self._speaker = pid

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, kind: bytes, number: int = 0, value: Any = None) -> None:
        """Raises `OSError` when the other end is gone."""
        if self._speaker not in (None, os.getpid()):
            os._exit(1)
        body = json.dumps(value, default=repr).encode()
        self._socket.sendall(_HEAD.pack(kind, number, len(body)) + body)

    def receive(self) -> Frame | None:
        """Wait for a frame; `None` when the other end is gone."""
        while True:
            frame = self._cut()
            if frame is not None or self.is_closed:
                return frame
            self._read(0)

    def waiting(self) -> list[Frame]:
        """All complete frames that are there, without waiting."""
        while not self.is_closed and self._read(socket.MSG_DONTWAIT):
            pass
        frames = []
        while (frame := self._cut()) is not None:
            frames.append(frame)
        return frames

    def _read(self, flags: int) -> bool:
        try:
            data = self._socket.recv(1 << 16, flags)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self.is_closed = not data
        self._buffer += data
        return bool(data)

    def _cut(self) -> Frame | None:
        if len(self._buffer) < _HEAD.size:
            return None
        kind, number, size = _HEAD.unpack_from(self._buffer)
        end = _HEAD.size + size
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEAD.size : end])
        del self._buffer[:end]
        return Frame(kind, number, body)


def pair() -> tuple[WorkerChannel, WorkerChannel]:
    """Two ends of one channel."""
    ours, theirs = socket.socketpair()
    return WorkerChannel(ours), WorkerChannel(theirs)
