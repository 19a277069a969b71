"""The caller's end of a zygote: asks for sandboxes, learns of their ends.

- Messages queue while the zygote is busy; nothing here blocks.
- The death of a zygote is reported once; the next `create` starts another one.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import socket
import subprocess
from typing import Any, Protocol

from artangram.sandbox.inside import channel
from artangram.sandbox.namespace.launch import ZygoteTraits, start_zygote
from artangram.sandbox.namespace.rundir import RunDir

END_PATIENCE_S = 10.0


class Parent(Protocol):
    """The provider that asked for the sandboxes."""

    def on_created(self, name: str, pid: int) -> None: ...

    def on_failed(self, name: str, reason: str) -> None: ...

    def on_exited(self, name: str, num_ooms: int) -> None: ...

    def on_zygote_gone(self) -> None: ...


class ZygoteClient:
    """One zygote at a time, started when first needed."""

    def __init__(self, parent: Parent, run_dir: RunDir, traits: ZygoteTraits) -> None:
        self._parent = parent
        self._run_dir = run_dir
        self._traits = traits
        self._loop = asyncio.get_running_loop()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._outbox: collections.deque[tuple[Any, socket.socket | None]] = collections.deque()

    @property
    def pid(self) -> int:
        """0 before the first sandbox."""
        return self._zygote.pid if self._zygote is not None else 0

    def create(self, plan: dict[str, Any], control: socket.socket) -> None:
        """Start a sandbox that is served over `control`, which is closed here once it is sent."""
        if self._sock is None:
            self._zygote, self._sock = start_zygote(
                self._run_dir.path, lock=self._run_dir.lock, traits=self._traits
            )
            self._loop.add_reader(self._sock.fileno(), self._on_readable)
        self._outbox.append((("create", plan), control))
        self._flush()

    def use_library(self, library: str) -> None:
        """Have sandboxes that start from now on use the compiled init."""
        self._traits = dataclasses.replace(self._traits, library=library)
        if self._sock is not None:
            self._outbox.append((("library", library), None))
            self._flush()

    def kill(self, name: str) -> None:
        """End a sandbox from outside, whatever it does."""
        if self._sock is not None:
            self._outbox.append((("kill", name), None))
            self._flush()

    async def close(self) -> None:
        if self._sock is not None:
            self._drop_socket(self._sock)
        if self._zygote is not None:
            await asyncio.to_thread(self._zygote.wait, END_PATIENCE_S)

    def _flush(self) -> None:
        assert self._sock is not None
        while self._outbox:
            message, passed = self._outbox[0]
            try:
                channel.send(self._sock, message, [passed.fileno()] if passed else [])
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            except OSError:
                pass  # it is gone: `_on_readable` is about to learn that, too
            self._outbox.popleft()
            if passed is not None:
                passed.close()
        self._loop.remove_writer(self._sock.fileno())

    def _on_readable(self) -> None:
        assert self._sock is not None
        try:
            message, _ = channel.receive(self._sock)
        except BlockingIOError:
            return
        except (EOFError, OSError):
            self._on_gone(self._sock)
            return
        match message:
            case ("created", name, pid):
                self._parent.on_created(name, pid)
            case ("failed", name, reason):
                self._parent.on_failed(name, reason)
            case ("exited", name, num_ooms):
                self._parent.on_exited(name, num_ooms)

    def _on_gone(self, sock: socket.socket) -> None:
        assert self._zygote is not None
        self._drop_socket(sock)
        self._zygote.wait()
        self._parent.on_zygote_gone()

    def _drop_socket(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock.fileno())
        self._loop.remove_writer(sock.fileno())
        sock.close()
        self._sock = None
