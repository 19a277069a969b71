"""The embedded engine in a process of its own: its own core, its own lock, its own death.

- Weights travel as the path of their directory, tokens as msgpack over a pair of sockets.
- When the process dies, every verb and every stream raises `EngineGone`.
- A process that does not answer is as good as dead: it is killed, so that it really is.
- When we die, it ends: the socket is its only tie.
"""

import asyncio
import contextlib
import socket
import sys
from asyncio.subprocess import DEVNULL, Process

import msgspec

from artangram.gateway.engines.protocol import EngineGone
from artangram.gateway.engines.torchclient import TorchClient
from artangram.gateway.engines.torchwire import FrameReader, News, Order, TorchEngineSettings, frame

END_PATIENCE_S = 5.0
"""How long the process may take to leave before it is killed: far longer than a step."""

SILENCE_S = 120.0
"""How long it may not answer: far longer than a step of a busy machine, or loading weights."""

_READ_BYTES = 2**18


class TorchEngineProcess(TorchClient):
    """See `protocol.Engine`. Made by `start`, ended by `aclose`."""

    def __init__(
        self,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        name: str,
        version: int,
        silence_s: float,
    ) -> None:
        super().__init__(name, version)
        self._process = process
        self._writer = writer
        self._reading = asyncio.create_task(self._read(reader))
        self._watching = asyncio.create_task(self._watch(silence_s))

    @classmethod
    async def start(
        cls, settings: TorchEngineSettings, *, name: str = "torch", silence_s: float = SILENCE_S
    ) -> "TorchEngineProcess":
        """Start the process and load the model. Raises `EngineGone` when that fails."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await _spawned(theirs)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        version = settings.version
        engine = cls(process, reader, writer, name=name, version=version, silence_s=silence_s)
        try:
            writer.write(frame([settings]))
            await engine._is_ready
        except BaseException:
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
        self._writer.close()
        self._watching.cancel()
        await asyncio.wait({self._reading, self._watching})
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
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

    def _send(self, order: Order) -> None:
        if not self._gone:
            self._writer.write(frame([order]))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decode = msgspec.msgpack.Decoder(list[News]).decode
        frames = FrameReader()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_READ_BYTES):
                for body in frames.fed(data):
                    self._on_news(decode(body))
        self.crash("its process ended")

    async def _watch(self, silence_s: float) -> None:
        await asyncio.wait({self._is_ready})
        with contextlib.suppress(EngineGone):
            while True:
                try:
                    async with asyncio.timeout(silence_s):
                        await self.ping()
                except TimeoutError:
                    self._kill()
                    self.crash(f"it did not answer for {silence_s:g} s")
                await asyncio.sleep(silence_s / 3)


async def _spawned(owner: socket.socket) -> Process:
    """The process at the other end of the socket. A signal to our group does not reach it."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "artangram.gateway.engines.torchchild",
        str(owner.fileno()),
        stdin=DEVNULL,
        stdout=DEVNULL,
        pass_fds=[owner.fileno()],
        start_new_session=True,
    )
