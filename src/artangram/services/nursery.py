"""Replicas as processes, seen from the host: born, asked, ended; each exactly once.

The nursery listens on a socket in its directory; a replica connects and says its number. Whatever
happens to a process, its `ended` future is done only when it is gone, and its memory with it.
"""

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from artangram.aio import uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.home import Home
from artangram.services import wire
from artangram.services.cradles import Cradle
from artangram.services.devices import Answer, ReplicaLost

SHARED_MEMORY = Path("/dev/shm")

LOAD_PATIENCE_S = 120.0
"""How long a loader may take; a restore maps what is in memory already."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Expected:
    """A process that was started: when it connects, and when it is gone."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[tuple[int, _Streams]] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()


class Nursery:
    """Bears replicas from a cradle. Open it with `opened`."""

    def __init__(self, home: Home, cradle: Cradle) -> None:
        self.directory = home.directory
        self._home = home
        self.cradle = cradle
        self.cradle.on_ended = self._on_ended
        self._numbers = itertools.count(1)
        self._expected: dict[int, _Expected] = {}
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<Nursery {self.directory}: {len(self._expected)} replicas>"

    async def open(self) -> None:
        """Listen for replicas."""
        self._server = await asyncio.start_unix_server(self._on_connection, self._socket)

    async def bear(self, birth: wire.Birth) -> tuple["ProcessReplica", wire.Loaded]:
        """Start a replica and wait until it has loaded.

        `BadInput` if its service is no good, `ReplicaLost` if it died on the way.
        """
        if self._server is None:
            raise InfraFailed("the host of the model services is closed")
        birth = structs.replace(birth, number=next(self._numbers), host=self._socket)
        expected = self._expected[birth.number] = _Expected()
        try:
            await self.cradle.start(birth)
        except BaseException:
            del self._expected[birth.number]
            raise
        try:
            async with asyncio.timeout(LOAD_PATIENCE_S):
                return await self._loaded(birth.number, expected)
        except TimeoutError:
            await uncancelled(self.end(birth.number))
            raise ReplicaLost(f"it did not load within {LOAD_PATIENCE_S:g} s") from None
        except BaseException:
            await uncancelled(self.end(birth.number))
            raise

    async def end(self, number: int) -> None:
        """Kill a replica; return when it is gone."""
        expected = self._expected.get(number)
        if expected is not None:
            self.cradle.kill(number)
            await asyncio.wait({expected.ended})
            self._expected.pop(number, None)

    async def aclose(self) -> None:
        """End all replicas and the cradle, and forget the weights."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        await self.cradle.aclose()
        await asyncio.to_thread(self._home.close)

    @property
    def _socket(self) -> str:
        return str(self.directory / "host.sock")

    async def _loaded(
        self, number: int, expected: _Expected
    ) -> tuple["ProcessReplica", wire.Loaded]:
        either: set[asyncio.Future[Any]] = {expected.connected, expected.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not expected.connected.done():
            status = expected.ended.result()
            if status not in wire.AFTER_WORDS:
                raise ReplicaLost(f"it {_told(status)} before it could load")
            await asyncio.shield(expected.connected)  # What it said is still on its way.
        pid, (reader, writer) = expected.connected.result()
        try:
            body = await wire.next_frame(reader)
            if body is None:
                raise ReplicaLost(f"it {_told(await expected.ended)} while it loaded")
            match msgspec.msgpack.decode(body, type=wire.Report):
                case wire.Loaded() as loaded:
                    replica = ProcessReplica(self, number, pid, (reader, writer), expected.ended)
                    return replica, loaded
                case wire.Refused(field, problem, fix):
                    raise BadInput(field, problem, fix)
                case wire.OutOfMemory(problem):
                    raise ReplicaLost(f"it ran out of memory while it loaded: {problem}")
                case other:
                    raise ReplicaLost(f"it said {other} instead of loading")
        except BaseException:
            writer.close()
            raise

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        body = await wire.next_frame(reader)
        hello = None if body is None else msgspec.msgpack.decode(body, type=wire.Hello)
        expected = None if hello is None else self._expected.get(hello.number)
        if hello is None or expected is None or expected.connected.done():
            writer.close()  # It was ended meanwhile, or is none of ours.
        else:
            expected.connected.set_result((hello.pid, (reader, writer)))

    def _on_ended(self, number: int, status: int) -> None:
        expected = self._expected.get(number)
        if expected is None:
            return
        expected.ended.set_result(status)
        if expected.connected.done():
            del self._expected[number]  # Else its words may still be on their way.


class ProcessReplica:
    """See `devices.Replica`."""

    def __init__(
        self,
        nursery: Nursery,
        number: int,
        pid: int,
        streams: _Streams,
        ended: asyncio.Future[int],
    ) -> None:
        self.pid = pid
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._nursery = nursery
        self._number = number
        self._reader, self._writer = streams
        self._ended = ended
        self._asked: asyncio.Future[list[Answer]] | None = None
        self._listening = asyncio.create_task(self._listen())

    def __repr__(self) -> str:
        return f"<ProcessReplica {self.pid}>"

    async def predict(self, items: list[bytes]) -> list[Answer]:
        if self.lost.done():
            raise ReplicaLost("it was ended" if self.lost.cancelled() else self.lost.result())
        assert self._asked is None, f"{self!r} is asked twice at once"
        self._asked = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(wire.frame(wire.Predict(items)))
            return await self._asked
        finally:
            self._asked = None

    async def end(self) -> None:
        if not self.lost.done():
            self.lost.cancel()  # It goes because it should; nobody has to be told.
        await self._nursery.end(self._number)
        await asyncio.wait({self._listening})

    async def _listen(self) -> None:
        decode = msgspec.msgpack.Decoder(wire.Report).decode
        reason = ""
        while (body := await wire.next_frame(self._reader)) is not None:
            match decode(body):
                case wire.Answers(answers):
                    if self._asked is not None and not self._asked.done():
                        self._asked.set_result(answers)
                case wire.OutOfMemory(problem):
                    reason = f"it ran out of memory: {problem}"
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        self._nursery.cradle.kill(self._number)  # Whoever hangs up cannot be asked again.
        status = await asyncio.shield(self._ended)
        self._lose(reason or f"its process {_told(status)}")

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(ReplicaLost(reason))


def _told(status: int) -> str:
    if status == wire.OUT_OF_MEMORY:
        return "ran out of memory"
    return f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
