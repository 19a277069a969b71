"""Replicas as processes, seen from the host: born, asked, ended; each exactly once.

The nursery listens on a socket in its directory; a process connects, says its number, and waits to
hear what it is. One such process is kept to spare, so that no restore waits for a fork; and one
that has dropped its model and holds next to nothing, for another of the same loader: forking torch
and ending it costs more than loading a model that is in memory. Whatever happens to a process, its
`ended` future is done only when it is gone, and its memory with it.
"""

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import msgspec

from artangram.aio import Background, uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.scratchdir import ScratchDir
from artangram.services import wire
from artangram.services.devices import Answer, ReplicaLost
from artangram.services.starters import ProcessStarter

SHARED_MEMORY = Path("/dev/shm")

LOAD_PATIENCE_S = 120.0
"""How long a loader may take; a restore maps what is in memory already."""

DROP_PATIENCE_S = 2.0
"""How long a process may take to drop its model; then it is killed."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Expected:
    """A process that was started: when it connects, and when it is gone."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[tuple[int, _Streams]] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()
        self.has_started = False
        """Was it told what it is? Else nobody waits for its words."""

    def close(self) -> None:
        """It is gone, and nobody ever talked to it."""
        if self.connected.done():
            _, (_, writer) = self.connected.result()
            writer.close()


class ReplicaSpawner:
    """Bears replicas from a cradle. Open it with `opened`."""

    def __init__(self, home: ScratchDir, starter: ProcessStarter) -> None:
        self.directory = home.directory
        self._home = home
        self.starter = starter
        self.starter.on_ended = self._on_ended
        self._numbers = itertools.count(1)
        self._expected: dict[int, _Expected] = {}
        self._server: asyncio.Server | None = None
        #: A process that has nothing to do yet.
        self._spare: int | None = None
        self._is_sparing = False
        #: A process that had a model of this loader.
        self._used: tuple[str, int] | None = None
        self._background = Background(lambda error: None)  # Who needs a process will hear of it.

    def __repr__(self) -> str:
        return f"<Nursery {self.directory}: {len(self._expected)} replicas>"

    async def open(self) -> None:
        """Listen for replicas."""
        self._server = await asyncio.start_unix_server(self._on_connection, self._socket)

    async def spawn(self, spec: wire.ReplicaSpec) -> tuple["ProcessReplica", wire.Loaded]:
        """Start a replica and wait until it has loaded.

        `BadInput` if its service is no good, `ReplicaLost` if it died on the way.
        """
        if self._server is None:
            raise InfraFailed("the host of the model services is closed")
        number = self._kept(spec)
        if number is None:
            number = await self._started()
        try:
            async with asyncio.timeout(LOAD_PATIENCE_S):
                return await self._loaded(number, spec)
        except TimeoutError:
            await uncancelled(self.end(number))
            raise ReplicaLost(f"it did not load within {LOAD_PATIENCE_S:g} s") from None
        except BaseException:
            await uncancelled(self.end(number))
            raise
        finally:
            if not self.starter.is_fresh:
                self._background.start(self._have_spare())

    def preload(self, module: str) -> None:
        """Import a module for all replicas that are born from now on."""
        if self.starter.preload(module) and self._spare is not None:
            self.starter.kill(self._spare)  # It has not imported it.
            self._spare = None

    def keep(self, number: int, spec: wire.ReplicaSpec) -> bool:
        """Keep a process that has dropped its model; `False` if it has to end."""
        expected = self._expected.get(number)
        is_gone = expected is None or expected.ended.done()
        if expected is None or is_gone or self._used is not None or self._server is None:
            return False
        expected.has_started = False
        self._used = spec.loader, number
        return True

    async def end(self, number: int) -> None:
        """Kill a replica; return when it is gone."""
        expected = self._expected.get(number)
        if expected is not None:
            self.starter.kill(number)
            await asyncio.wait({expected.ended})
            self._expected.pop(number, None)

    async def aclose(self) -> None:
        """End all replicas and the cradle, and forget the weights."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        await self._background.close()
        await self.starter.aclose()
        await asyncio.to_thread(self._home.close)

    @property
    def _socket(self) -> str:
        return str(self.directory / "host.sock")

    def _kept(self, spec: wire.ReplicaSpec) -> int | None:
        """A process that waits to hear that it is `spec`."""
        if spec.may_follow and self._used is not None and self._used[0] == spec.loader:
            (_, used), self._used = self._used, None
            return used
        spare, self._spare = self._spare, None
        return spare

    async def _started(self) -> int:
        """The number of a new process."""
        number = next(self._numbers)
        self._expected[number] = _Expected()
        try:
            await self.starter.start(wire.Fork(number, self._socket))
        except BaseException:
            del self._expected[number]
            raise
        return number

    async def _have_spare(self) -> None:
        if self._spare is not None or self._is_sparing or self._server is None:
            return
        self._is_sparing = True
        try:
            self._spare = await self._started()
        finally:
            self._is_sparing = False

    async def _loaded(
        self, number: int, spec: wire.ReplicaSpec
    ) -> tuple["ProcessReplica", wire.Loaded]:
        expected = self._expected[number]
        expected.has_started = True
        either: set[asyncio.Future[Any]] = {expected.connected, expected.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not expected.connected.done():
            status = expected.ended.result()
            if status not in wire.AFTER_WORDS:
                raise ReplicaLost(f"it {_told(status)} before it could load")
            await asyncio.shield(expected.connected)  # What it said is still on its way.
        pid, (reader, writer) = expected.connected.result()
        try:
            writer.write(wire.frame(spec))
            body = await wire.next_frame(reader)
            if body is None:
                raise ReplicaLost(f"it {_told(await expected.ended)} while it loaded")
            match msgspec.msgpack.decode(body, type=wire.Report):
                case wire.Loaded() as loaded:
                    streams = reader, writer
                    replica = ProcessReplica(
                        self, number, spec, pid=pid, streams=streams, ended=expected.ended
                    )
                    return replica, loaded
                case wire.LoaderRefused(field, problem, fix):
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
        if number == self._spare:
            self._spare = None
        if self._used is not None and number == self._used[1]:
            self._used = None
        if not expected.has_started:
            expected.close()
        if expected.connected.done() or not expected.has_started:
            del self._expected[number]  # Else its words may still be on their way.


class ProcessReplica:
    """See `devices.ServiceReplica`."""

    def __init__(
        self,
        spawner: ReplicaSpawner,
        number: int,
        spec: wire.ReplicaSpec,
        *,
        pid: int,
        streams: _Streams,
        ended: asyncio.Future[int],
    ) -> None:
        self.pid = pid
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._spawner = spawner
        self._number = number
        self._spec = spec
        self._reader, self._writer = streams
        self._ended = ended
        self._asked: asyncio.Future[list[Answer]] | None = None
        self._dropped: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._ending: asyncio.Task[None] | None = None
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
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.wait({self._ending})

    async def _end(self) -> None:
        is_well = not self.lost.done() and self._asked is None
        self.lost.cancel()  # It goes because it should; nobody has to be told.
        if is_well and self._spec.may_follow and await self._is_empty():
            self._listening.cancel()
            await asyncio.wait({self._listening})
            if self._spawner.keep(self._number, self._spec):
                return
        await self._spawner.end(self._number)
        await asyncio.wait({self._listening})
        self._writer.close()

    async def _is_empty(self) -> bool:
        """Drop the model; does its process hold next to nothing then?"""
        self._writer.write(wire.frame(wire.Drop()))
        either: set[asyncio.Future[Any]] = {self._dropped, self._listening}
        await asyncio.wait(either, timeout=DROP_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        return self._dropped.done() and self._dropped.result() <= wire.MOST_LEFT_MB

    async def _listen(self) -> None:
        decode = msgspec.msgpack.Decoder(wire.Report).decode
        reason = ""
        while (body := await wire.next_frame(self._reader)) is not None:
            match decode(body):
                case wire.Answers(answers):
                    if self._asked is not None and not self._asked.done():
                        self._asked.set_result(answers)
                case wire.ModelDropped(left_mb):
                    self._dropped.set_result(left_mb)
                case wire.OutOfMemory(problem):
                    reason = f"it ran out of memory: {problem}"
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        self._spawner.starter.kill(self._number)  # Whoever hangs up cannot be asked again.
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
