"""A TCP relay between two ends whose network can be cut, healed and reset."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Relay:
    """While it is cut, what comes waits here: nothing arrives, and neither end hears why."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open = asyncio.Event()
        self._open.set()
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self.num_connections = 0

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    def reset(self) -> None:
        """Every connection ends; new ones are welcome."""
        for pair in self._pairs:
            for writer in pair:
                writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its last."""
        self.num_connections += 1
        ends = [writer]
        try:
            await self._open.wait()
            there, away = await asyncio.open_connection("127.0.0.1", self._to)
            ends.append(away)
            self._pairs.add((writer, away))
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, away))
                both.create_task(self._pump(there, writer))
        except* OSError:
            pass
        finally:
            self._pairs = {pair for pair in self._pairs if writer not in pair}
            for one in ends:
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # One direction that ends takes the other along.


@asynccontextmanager
async def a_relay(port: int) -> AsyncIterator[tuple[Relay, int]]:
    """A relay to `port`, and the port to dial instead."""
    relay = Relay(port)
    handlers: set[asyncio.Task[None]] = set()

    def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(relay.carry(reader, writer))
        handlers.add(task)
        task.add_done_callback(handlers.discard)

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    try:
        yield relay, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await asyncio.sleep(0)  # Aborted transports close in the next turn.
