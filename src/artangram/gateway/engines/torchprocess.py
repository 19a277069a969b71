"""The embedded engine in a process of its own: its own core, its own lock, its own death.

- Weights travel as the path of their directory, tokens over a link.
- When the process dies, every verb and every stream raises `EngineGone`.
- A process that does not answer is as good as dead: it is killed, so that it really is.
- When we die, it ends: the socket is its only tie.
"""

import asyncio
import contextlib
import socket
import sys
from asyncio.subprocess import DEVNULL, Process

from artangram.gateway.engines.torchclient import TorchClient
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.link import LinkEnded

END_PATIENCE_S = 5.0
"""How long the process may take to leave before it is killed: far longer than a step."""

SILENCE_S = 120.0
"""How long it may not answer: far longer than a step of a busy machine, or loading weights."""


class TorchEngineProcess(TorchClient):
    """See `protocol.Engine`. Made by `start`, ended by `aclose`."""

    def __init__(self, process: Process, *, name: str, version: int) -> None:
        super().__init__(name, version)
        self._process = process

    @classmethod
    async def start(
        cls, settings: TorchEngineSettings, *, name: str = "torch", silence_s: float = SILENCE_S
    ) -> "TorchEngineProcess":
        """Start the process and load the model. Raises `EngineGone` when that fails."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await _spawned(theirs)
        engine = cls(process, name=name, version=settings.version)
        try:
            await engine._open(ours, settings, silence_s=silence_s)
        except BaseException:
            ours.close()
            await engine.aclose()
            raise
        return engine

    @property
    def pid(self) -> int:
        return self._process.pid

    async def aclose(self) -> None:
        if self._gone:
            self._kill()  # It would not hear that it may leave.
        self.crash("it was closed")
        if self._link is not None:
            await self._link.aclose()
        try:
            async with asyncio.timeout(END_PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._kill()
            await self._process.wait()
        self._leave_home()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def on_silent(self, silent_s: float) -> None:
        if self.max_context:  # Loading the model may take as long as it needs.
            self._kill()
            self.crash(f"it did not answer for {silent_s:.3g} s")

    def on_end(self, error: LinkEnded) -> None:
        self.crash("its process ended")


async def _spawned(owner: socket.socket) -> Process:
    """The process at the other end of the socket. A signal to our group does not reach it."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "artangram.gateway.engines.torchworker",
        str(owner.fileno()),
        stdin=DEVNULL,
        stdout=DEVNULL,
        pass_fds=[owner.fileno()],
        start_new_session=True,
    )
