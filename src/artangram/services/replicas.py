"""Replicas as processes, seen from the host: spawned, asked, ended; each exactly once.

A forked process waits on its connection to hear what it is. One such process is kept to spare, so
that no restore waits for a fork; and one that has dropped its model and holds next to nothing, for
another of the same loader: forking torch and ending it costs more than loading a model that is in
memory. `ForkedProcess.ended` is done only when a process is gone, and its memory with it.
"""

import asyncio
import contextlib
import os
from typing import Any, NamedTuple

import msgspec

from artangram.aio import Background, uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.forkserver.client import ForkedProcess, ForkServer
from artangram.scratchdir import ScratchDir
from artangram.services import wire
from artangram.services.devices import Answer, ReplicaLost

TARGET = "artangram.services.replica:live"

START_PATIENCE_S = 120.0
"""How long a zygote may take to import torch on a busy machine."""

LOAD_PATIENCE_S = 120.0
"""How long a loader may take; a restore maps what is in memory already."""

DROP_PATIENCE_S = 2.0
"""How long a process may take to drop its model; then it is killed."""

ENVIRON = {
    # A library with threads of its own from the start could not be forked.
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # A module that asks torch for GPUs when it is imported must not start CUDA in the zygote.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


class WaitingProcess(NamedTuple):
    """A process that waits for its spec, and the connection to it."""

    process: ForkedProcess
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def end(self) -> None:
        """Kill it; return when it is gone."""
        self.process.kill()
        await asyncio.wait({self.process.ended})
        self.writer.close()


class ReplicaSpawner:
    """Starts replicas as forks of one fork server, or each from an interpreter of its own."""

    def __init__(
        self, scratch: ScratchDir, *, preload: tuple[str, ...], is_cold: bool = False
    ) -> None:
        self.directory = scratch.directory
        self._scratch = scratch
        self._server = ForkServer(
            TARGET,
            preload=preload,
            environ=os.environ | ENVIRON,
            directory=None if is_cold else scratch.directory,
            is_cold=is_cold,
        )
        self._is_closed = False
        #: A process that has had no model yet.
        self._spare: WaitingProcess | None = None
        self._is_sparing = False
        #: A process that had a model of this loader.
        self._used: tuple[str, WaitingProcess] | None = None
        self._background = Background(lambda error: None)  # The next spawn fails the same way.

    def __repr__(self) -> str:
        return f"<ReplicaSpawner {self.directory}>"

    async def spawn(self, spec: wire.ReplicaSpec) -> tuple["ProcessReplica", wire.Loaded]:
        """Start a replica and wait until it has loaded.

        `BadInput` if its service is no good, `ReplicaLost` if it died on the way.
        """
        if self._is_closed:
            raise InfraFailed("the host of the model services is closed")
        waiting = self._kept(spec)
        if waiting is None:
            waiting = await self._started()
        try:
            async with asyncio.timeout(LOAD_PATIENCE_S):
                return await self._loaded(waiting, spec)
        except TimeoutError:
            await uncancelled(waiting.end())
            raise ReplicaLost(f"it did not load within {LOAD_PATIENCE_S:g} s") from None
        except BaseException:
            await uncancelled(waiting.end())
            raise
        finally:
            if not self._server.is_cold:
                self._background.start(self._have_spare())

    def preload(self, module: str) -> None:
        """Import a module for all replicas that start from now on."""
        if self._server.preload(module) and self._spare is not None:
            spare, self._spare = self._spare, None
            self._background.start(spare.end())  # It has not imported the module.

    def keep(self, waiting: WaitingProcess, spec: wire.ReplicaSpec) -> bool:
        """Keep a process that has dropped its model; `False` if it has to end."""
        if waiting.process.ended.done() or self._used is not None or self._is_closed:
            return False
        self._used = spec.loader, waiting
        waiting.process.ended.add_done_callback(lambda _: self._forget(waiting))
        return True

    async def aclose(self) -> None:
        """End all replicas and the fork server, and remove the weights."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._background.close()
        await self._server.aclose()
        await asyncio.to_thread(self._scratch.close)

    def _kept(self, spec: wire.ReplicaSpec) -> WaitingProcess | None:
        """A process that waits to hear that it is `spec`."""
        if spec.may_follow and self._used is not None and self._used[0] == spec.loader:
            (_, used), self._used = self._used, None
            return used
        spare, self._spare = self._spare, None
        return spare

    async def _started(self) -> WaitingProcess:
        await self._server.ready(within_s=START_PATIENCE_S)
        process = self._server.spawn()
        try:
            streams = await asyncio.open_unix_connection(sock=process.connection)
        except BaseException:
            process.kill()
            process.connection.close()
            raise
        return WaitingProcess(process, *streams)

    async def _have_spare(self) -> None:
        if self._spare is not None or self._is_sparing or self._is_closed:
            return
        self._is_sparing = True
        try:
            spare = self._spare = await self._started()
            spare.process.ended.add_done_callback(lambda _: self._forget(spare))
        finally:
            self._is_sparing = False

    def _forget(self, waiting: WaitingProcess) -> None:
        """A process has ended; close its connection if it was still waiting for a spec."""
        if waiting is self._spare:
            self._spare = None
            waiting.writer.close()
        elif self._used is not None and waiting is self._used[1]:
            self._used = None
            waiting.writer.close()

    async def _loaded(
        self, waiting: WaitingProcess, spec: wire.ReplicaSpec
    ) -> tuple["ProcessReplica", wire.Loaded]:
        waiting.writer.write(wire.frame(spec))
        body = await wire.next_frame(waiting.reader)
        if body is None:
            waiting.process.kill()
            status = await asyncio.shield(waiting.process.ended)
            raise ReplicaLost(waiting.process.problem or f"it {_told(status)} while it loaded")
        match msgspec.msgpack.decode(body, type=wire.Report):
            case wire.Loaded() as loaded:
                pid = await waiting.process.started()
                return ProcessReplica(self, waiting, spec, pid=pid), loaded
            case wire.LoaderRefused(field, problem, fix):
                raise BadInput(field, problem, fix)
            case wire.OutOfMemory(problem):
                raise ReplicaLost(f"it ran out of memory while it loaded: {problem}")
            case other:
                raise ReplicaLost(f"it said {other} instead of loading")


class ProcessReplica:
    """See `devices.ServiceReplica`."""

    def __init__(
        self, spawner: ReplicaSpawner, waiting: WaitingProcess, spec: wire.ReplicaSpec, *, pid: int
    ) -> None:
        self.pid = pid
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._spawner = spawner
        self._waiting = waiting
        self._spec = spec
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
            self._waiting.writer.write(wire.frame(wire.Predict(items)))
            return await self._asked
        finally:
            self._asked = None

    async def end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.wait({self._ending})

    async def _end(self) -> None:
        is_well = not self.lost.done() and self._asked is None
        self.lost.cancel()  # It ends on request: that is no loss.
        if is_well and self._spec.may_follow and await self._is_empty():
            self._listening.cancel()
            await asyncio.wait({self._listening})
            if self._spawner.keep(self._waiting, self._spec):
                return
        await self._waiting.end()
        await asyncio.wait({self._listening})

    async def _is_empty(self) -> bool:
        """Drop the model; does its process hold next to nothing then?"""
        self._waiting.writer.write(wire.frame(wire.Drop()))
        either: set[asyncio.Future[Any]] = {self._dropped, self._listening}
        await asyncio.wait(either, timeout=DROP_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        return self._dropped.done() and self._dropped.result() <= wire.MOST_LEFT_MB

    async def _listen(self) -> None:
        decode = msgspec.msgpack.Decoder(wire.Report).decode
        reason = ""
        while (body := await wire.next_frame(self._waiting.reader)) is not None:
            match decode(body):
                case wire.Answers(answers):
                    if self._asked is not None and not self._asked.done():
                        self._asked.set_result(answers)
                case wire.ModelDropped(left_mb):
                    self._dropped.set_result(left_mb)
                case wire.OutOfMemory(problem):
                    reason = f"it ran out of memory: {problem}"
        self._waiting.writer.close()
        with contextlib.suppress(ConnectionError):
            await self._waiting.writer.wait_closed()
        self._waiting.process.kill()  # A process that hung up cannot be asked again.
        status = await asyncio.shield(self._waiting.process.ended)
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
