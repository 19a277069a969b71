"""A server in a sandbox as an address of this machine.

- A listener on the loopback of the caller's machine; what it accepts travels through the stdin and
  stdout of one relay in the sandbox, in frames: so it works embedded and over HTTP alike, with the
  rights of the caller, and opens no port to anyone else.
- The relay is one started process, so one action with a lease. It needs `python3` in the image.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

from artangram.core.errors import BadInput
from artangram.orchestrator.process import ProcessHandle

FRAME = struct.Struct("<II")
PIECE_BYTES = 64 << 10
READY = 0xFFFFFFFF

Start = Callable[[list[str]], Awaitable[ProcessHandle]]
"""Starts a program whose output is not dropped."""

_RELAY = r"""
import os, queue, socket, struct, sys, threading
frame, lock, lines = struct.Struct("<II"), threading.Lock(), {}
def tell(number, data):
    with lock:
        view = memoryview(frame.pack(number, len(data)) + data)
        while view:
            view = view[os.write(1, view):]
def receive(number, sock):
    try:
        while data := sock.recv(65536):
            tell(number, data)
    except OSError:
        pass
    tell(number, b"")
def serve(number, line):
    try:
        sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20)
        sock.settimeout(None)
    except OSError:
        return tell(number, b"")
    threading.Thread(target=receive, args=(number, sock), daemon=True).start()
    try:
        while data := line.get():
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass
source = sys.stdin.buffer
tell(0xFFFFFFFF, b"")
while head := source.read(8):
    number, size = frame.unpack(head)
    data = source.read(size)
    if number not in lines:
        lines[number] = queue.SimpleQueue()
        threading.Thread(target=serve, args=(number, lines[number]), daemon=True).start()
        continue
    lines[number].put(data)
    if not data:
        del lines[number]
"""


class ExposedPort:
    """A port of a sandbox; `async with` or `close` ends it, and so does its trajectory."""

    def __init__(self, process: ProcessHandle, port: int) -> None:
        self.port = port
        """Inside."""
        self.url = ""
        """Where it answers, for programs of this machine."""
        self._process = process
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._last = 0
        self._server: asyncio.Server | None = None
        self._reading: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<ExposedPort {self.port} at {self.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> Self:
        """Listen; returns when the relay inside runs."""
        self._reading = asyncio.create_task(self._read())
        await asyncio.wait({self._begun, self._reading}, return_when=asyncio.FIRST_COMPLETED)
        if not self._begun.done():
            result = await self._process.wait()
            raise OSError(f"no relay runs in the sandbox: {result.reason or result.stderr}")
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def close(self) -> None:
        """End it and every connection."""
        if self._server is not None:
            self._server.close()
        running = {*self._tasks, *([] if self._reading is None else [self._reading])}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        await self._process.kill()
        await self._process.wait()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._last = (self._last + 1) % READY
        self._writers[self._last] = writer
        task = asyncio.create_task(self._sent(self._last, reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sent(self, number: int, reader: asyncio.StreamReader) -> None:
        # The end of one that fails is told by the other side.
        with suppress(OSError):
            await self._process.write(FRAME.pack(number, 0))  # The first one opens it.
            while piece := await reader.read(PIECE_BYTES):
                await self._process.write(FRAME.pack(number, len(piece)) + piece)
            await self._process.write(FRAME.pack(number, 0))

    async def _read(self) -> None:
        """Give every connection what the relay says for it, until the relay ends."""
        waiting = bytearray()
        async for output in self._process:
            if output.channel != "stdout":
                continue
            waiting += output.data
            while len(waiting) >= FRAME.size:
                number, size = FRAME.unpack_from(waiting)
                if len(waiting) < FRAME.size + size:
                    break
                piece = bytes(waiting[FRAME.size : FRAME.size + size])
                del waiting[: FRAME.size + size]
                await self._received(number, piece)

    async def _received(self, number: int, piece: bytes) -> None:
        if number == READY and not self._begun.done():
            self._begun.set_result(None)
        writer = self._writers.get(number)
        if writer is None:
            return
        with suppress(OSError):
            if piece:
                writer.write(piece)
                await writer.drain()
                return
        del self._writers[number]
        writer.close()


async def expose(start: Start, port: int) -> ExposedPort:
    """Raises `BadInput` for what is not a port, `OSError` if no relay can run."""
    if type(port) is not int or not 0 < port < 65536:
        raise BadInput("port", f"{port!r} is not a port", "give 1 to 65535")
    process = await start(["python3", "-I", "-S", "-c", _RELAY, str(port)])
    exposed = ExposedPort(process, port)
    try:
        return await exposed.open()
    except BaseException:
        await exposed.close()
        raise
