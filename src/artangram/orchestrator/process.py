"""A started process as its caller holds it: stdin to write, output as it comes, signals, its end.

- A task reads what the process prints into a buffer. When the buffer is full, the oldest output is
  dropped and counted, so that a server whose log is not read goes on; with `lossless` the process
  waits for its reader instead.
- The process is an action: it holds its lease until it ends, and it ends with its trajectory.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Protocol

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId
from artangram.orchestrator.records import ActionResult
from artangram.sandbox.process import (
    WINDOW_BYTES,
    ProcessBegan,
    ProcessInput,
    TerminalSize,
    check_signal,
)
from artangram.sandbox.protocol import Output

KEPT_BYTES = 1 << 20
"""Of output that was not read."""
PIECE_BYTES = 256 << 10
"""Input that travels at once."""
SIGTERM, SIGKILL = 15, 9
END_PATIENCE_S = 10.0
"""How long a closed trajectory's processes may take to tell their end."""

Printed = Output | ProcessBegan | ActionResult


class ProcessTransport(Protocol):
    """What a process needs of the way to its orchestrator."""

    async def feed(self, action_id: ActionId, given: ProcessInput) -> None: ...

    async def signal(self, action_id: ActionId, number: int) -> None: ...


class OutputBuffer:
    """What was printed and not read; `most` bytes of it at the most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._pieces: deque[Output] = deque()
        self._size = 0
        self.num_dropped = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, piece: Output, *, is_lossy: bool) -> None:
        self._pieces.append(piece)
        self._size += len(piece.data)
        while is_lossy and self._size > self.most:
            self._drop(self._size - self.most)

    def _drop(self, size: int) -> None:
        oldest = self._pieces.popleft()
        kept = oldest.data[size:]
        if kept:
            self._pieces.appendleft(structs.replace(oldest, data=kept))
        self._size -= len(oldest.data) - len(kept)
        self.num_dropped += len(oldest.data) - len(kept)

    def take(self) -> Output:
        piece = self._pieces.popleft()
        self._size -= len(piece.data)
        return piece


class ProcessHandle:
    """A program that runs beside others in a trajectory's sandbox; `start` gives one."""

    def __init__(
        self,
        transport: ProcessTransport,
        pieces: AsyncGenerator[Printed, None],
        *,
        output_bytes: int,
        lossless: bool,
    ) -> None:
        self.pid = 0
        """As the sandbox numbers its processes; 0 if it did not start."""
        self.action_id = ActionId("")
        self._transport = transport
        self._lossless = lossless
        self._buffer = OutputBuffer(output_bytes)
        self._changed = asyncio.Event()
        self._began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writing = asyncio.Lock()
        self._written = self._taken = self._told_taken = 0
        self._result: ActionResult | None = None
        self._reading = asyncio.create_task(self._read(pieces))

    def __repr__(self) -> str:
        state = "running" if self._result is None else self._result.outcome.value
        return f"<Process {self.pid}: {state}>"

    async def begun(self) -> None:
        """Returns when it runs or has ended. Raises what kept it from being submitted."""
        await asyncio.wait({self._began, self._reading}, return_when=asyncio.FIRST_COMPLETED)
        if self._reading.done():
            self._reading.result()

    async def _read(self, pieces: AsyncGenerator[Printed, None]) -> None:
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    await self._on_piece(piece)
        finally:
            self._changed.set()

    async def _on_piece(self, piece: Printed) -> None:
        if isinstance(piece, ProcessBegan):
            self.pid, self.action_id = piece.pid, ActionId(piece.action_id)
            if not self._began.done():
                self._began.set_result(None)
        elif isinstance(piece, ActionResult):
            self._result = piece
        else:
            self._buffer.add(piece, is_lossy=not self._lossless)
            if not self._lossless:
                await self._take(len(piece.data))
        self._changed.set()

    async def _take(self, size: int) -> None:
        """That much more of its output was taken; tells so before the process has to wait."""
        self._taken += size
        if self._taken - self._told_taken >= WINDOW_BYTES // 4 and self._result is None:
            self._told_taken = self._taken
            await self._transport.feed(self.action_id, ProcessInput(taken=self._taken))

    async def read(self) -> Output | None:
        """The next piece of what it printed, as soon as there is one; `None` after the last."""
        while not self._buffer:
            if self._reading.done():
                self._reading.result()
                return None
            self._changed.clear()
            await self._changed.wait()
        piece = self._buffer.take()
        if self._lossless:
            await self._take(len(piece.data))
        return piece

    async def __aiter__(self) -> AsyncIterator[Output]:
        while (piece := await self.read()) is not None:
            yield piece

    @property
    def num_dropped(self) -> int:
        """Bytes of output that were dropped because they were not read in time."""
        return self._buffer.num_dropped

    async def write(self, data: bytes | str) -> None:
        """Write to its stdin; returns when it is there. Raises `OSError` if that is closed."""
        view = memoryview(data.encode() if isinstance(data, str) else data)
        async with self._writing:
            while view:
                piece, view = bytes(view[:PIECE_BYTES]), view[PIECE_BYTES:]
                given = ProcessInput(stdin=piece, stdin_at=self._written)
                await self._transport.feed(self.action_id, given)
                self._written += len(piece)

    async def close_stdin(self) -> None:
        """Its stdin ends; on a terminal, as Ctrl-D does it."""
        async with self._writing:
            given = ProcessInput(closes_stdin=True, stdin_at=self._written)
            await self._transport.feed(self.action_id, given)

    async def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal."""
        size = TerminalSize(rows=rows, columns=columns)
        await self._transport.feed(self.action_id, ProcessInput(terminal=size))

    async def signal(self, number: int = SIGTERM) -> None:
        """Send a signal to its process group. Nothing happens if it has ended."""
        check_signal(number)
        if self._result is None:
            await self._transport.signal(self.action_id, int(number))

    async def kill(self) -> None:
        """End it and everything that descends from it."""
        await self.signal(SIGKILL)

    async def wait(self) -> ActionResult:
        """How it ended, with the output that was not read; of that, what the buffer holds."""
        printed: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        rest = OutputBuffer(self._buffer.most)
        while (piece := await self.read()) is not None:
            rest.add(piece, is_lossy=True)
        while rest:
            piece = rest.take()
            printed[piece.channel].append(piece.data)
        result = self._result
        assert result is not None, f"{self!r} ended without a result"
        if result.command is None:
            return result
        stdout, stderr = (b"".join(printed[name]) for name in ("stdout", "stderr"))
        dropped = self.num_dropped + rest.num_dropped
        command = structs.replace(
            result.command, stdout=stdout, stderr=stderr, truncated_bytes=dropped
        )
        self._result = structs.replace(result, command=command)
        return self._result

    @property
    def is_over(self) -> bool:
        """Has it ended?"""
        return self._reading.done()

    async def abandon(self) -> None:
        """Stop reading, which cancels it."""
        self._reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._reading

    async def aclose(self) -> None:
        """Its trajectory is closed: stop reading."""
        await asyncio.wait({self._reading}, timeout=END_PATIENCE_S)
        await self.abandon()


def check_kept(output_bytes: int) -> None:
    """Raises `BadInput` for a buffer that could hold nothing."""
    if type(output_bytes) is not int or output_bytes < 1:
        raise BadInput("output_bytes", f"{output_bytes!r} is not a size", "give 1 or more")
