"""The line to the init of one sandbox: numbered requests, and the callbacks for their answers.

A request has either one answer, for a future, or several, for a listener. When init is gone, every
future fails, and `on_gone` is told.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.inside import channel
from artangram.sandbox.inside.request import InitRequest
from artangram.sandbox.namespace.results import InitReply

OnReply = Callable[[InitReply], None]


class InitLine:
    """See the module. `sock` does not block, and is closed here."""

    def __init__(self, name: str, sock: socket.socket, *, on_gone: Callable[[str], None]) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._on_gone = on_gone
        self._last_number = 0
        #: Init announces itself as the answer to a request with the number 0.
        self.ready: asyncio.Future[InitReply] = self._loop.create_future()
        self._waiting: dict[int, asyncio.Future[InitReply]] = {0: self.ready}
        self.listeners: dict[int, OnReply] = {}
        """By the number of their request; each removes itself with its last answer."""
        self.gone = ""
        """Why it is closed; empty while it is not."""
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def number(self) -> int:
        """For the next request."""
        self._last_number += 1
        return self._last_number

    def tell(self, verb: int, *, path: bytes = b"", mode: int = 0) -> asyncio.Future[InitReply]:
        return self.ask(InitRequest(self.number(), verb, path=path, mode=mode))

    def ask(self, asked: InitRequest, fds: Sequence[int] = ()) -> asyncio.Future[InitReply]:
        future: asyncio.Future[InitReply] = self._loop.create_future()
        self._waiting[asked.number] = future
        try:
            self.send(asked.encode(), fds)
        except SandboxError:
            self._waiting.pop(asked.number, None)
            raise
        return future

    def send(self, data: bytes, fds: Sequence[int]) -> None:
        """Every request goes through here; if init is gone, all waiting requests fail."""
        self.check()
        try:
            channel.send_message(self._sock, data, fds)
        except BlockingIOError as error:
            raise SandboxError(f"{self._name} does not take requests") from error
        except OSError:
            self._on_gone("its first process is gone")

    def check(self) -> None:
        """Raises `SandboxGone` if it is closed."""
        if self.gone:
            raise SandboxGone(f"{self._name}: {self.gone}")

    def close(self, reason: str) -> None:
        """Close our end and fail every waiting request."""
        self.gone = reason
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(SandboxGone(f"{self._name}: {reason}"))
                future.exception()  # looked at: its caller may have been cancelled

    def _on_readable(self) -> None:
        try:
            data, fds = channel.receive_bytes(self._sock)
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self._on_gone("its first process is gone")
            return
        reply = InitReply(data, fds)
        listener = self.listeners.get(reply.request)
        if listener is not None:
            listener(reply)
            return
        future = self._waiting.pop(reply.request, None)
        if future is None or future.done():
            reply.close()
        else:
            future.set_result(reply)
