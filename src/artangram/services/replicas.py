"""Replicas as processes, seen from the host: spawned, asked, ended; each exactly once.

A forked process waits on its connection to hear what it is. One such process is kept to spare, so
that no restore waits for a fork; and one that has dropped its model and holds next to nothing, for
another of the same loader: forking torch and ending it costs more than loading a model that is in
memory. `ForkedProcess.ended` is done only when a process is gone, and its memory with it.
"""

import asyncio
import math
import os

from artangram.aio import Background, uncancelled
from artangram.core.errors import InfraFailed
from artangram.forkserver.client import ForkedProcess, ForkServer
from artangram.link import Link, LinkEnded, LinkUser, PeerFailed, dial
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


class WaitingProcess:
    """A process that waits for its spec, and the link to it."""

    def __init__(self, process: ForkedProcess) -> None:
        self.process = process
        self.link: Link[None] | None = None

    async def met(self) -> Link[None]:
        """The link, once the process is there. `LinkEnded` if it never will be."""
        if self.link is None:
            connection = self.process.connection
            self.link = await dial(connection, wire.host_terms, LinkUser(), patience_s=math.inf)
        return self.link

    async def end(self) -> None:
        """Kill it; return when it is gone."""
        self.process.kill()
        try:
            await asyncio.wait({self.process.ended})
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        if self.link is None:
            self.process.connection.close()
        else:
            self.link.close()


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
        return WaitingProcess(self._server.spawn())

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
            waiting.hang_up()
        elif self._used is not None and waiting is self._used[1]:
            self._used = None
            waiting.hang_up()

    async def _loaded(
        self, waiting: WaitingProcess, spec: wire.ReplicaSpec
    ) -> tuple["ProcessReplica", wire.Loaded]:
        try:
            loaded = await (await waiting.met()).ask(spec, wire.Loaded)
        except LinkEnded:
            waiting.process.kill()
            status = await asyncio.shield(waiting.process.ended)
            reason = waiting.process.problem or f"it {_told(status)} while it loaded"
            raise ReplicaLost(reason) from None
        except MemoryError as error:
            raise ReplicaLost(f"it ran out of memory while it loaded: {error}") from None
        except PeerFailed as error:
            raise ReplicaLost(f"it failed while it loaded: {error}") from None
        pid = await waiting.process.started()
        return ProcessReplica(self, waiting, spec, pid=pid), loaded


class ProcessReplica:
    """See `devices.ServiceReplica`."""

    def __init__(
        self, spawner: ReplicaSpawner, waiting: WaitingProcess, spec: wire.ReplicaSpec, *, pid: int
    ) -> None:
        self.pid = pid
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._spawner = spawner
        self._waiting = waiting
        assert waiting.link is not None, "it has loaded"
        self._link = waiting.link
        self._spec = spec
        self._is_asked = False
        self._reason = ""
        self._ending: asyncio.Task[None] | None = None
        self._watching = asyncio.create_task(self._watch())

    def __repr__(self) -> str:
        return f"<ProcessReplica {self.pid}>"

    async def predict(self, items: list[bytes]) -> list[Answer]:
        if self.lost.done():
            raise ReplicaLost("it was ended" if self.lost.cancelled() else self.lost.result())
        assert not self._is_asked, f"{self!r} is asked twice at once"
        self._is_asked = True
        try:
            return await self._link.ask(wire.Predict(items), list[Answer])
        except (LinkEnded, MemoryError) as error:
            if isinstance(error, MemoryError):
                self._reason = f"it ran out of memory: {error}"
            await asyncio.wait({self._watching})
            raise ReplicaLost(self._reason) from None
        finally:
            self._is_asked = False

    async def end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.wait({self._ending})

    async def _end(self) -> None:
        is_well = not self.lost.done() and not self._is_asked
        self.lost.cancel()  # It ends on request: that is no loss.
        if is_well and self._spec.may_follow and await self._is_empty():
            self._watching.cancel()
            await asyncio.wait({self._watching})
            if self._spawner.keep(self._waiting, self._spec):
                return
        await self._waiting.end()
        await asyncio.wait({self._watching})

    async def _is_empty(self) -> bool:
        """Drop the model; does its process hold next to nothing then?"""
        try:
            async with asyncio.timeout(DROP_PATIENCE_S):
                return await self._link.ask(wire.Drop(), float) <= wire.MOST_LEFT_MB
        except (TimeoutError, LinkEnded):
            return False

    async def _watch(self) -> None:
        """Say that it is lost when its link has ended and it is gone."""
        await asyncio.wait({self._link.closed})
        self._waiting.process.kill()  # A process that hung up cannot be asked again.
        status = await asyncio.shield(self._waiting.process.ended)
        self._reason = self._reason or f"its process {_told(status)}"
        if not self.lost.done():
            self.lost.set_result(self._reason)


def _told(status: int) -> str:
    if status == wire.OUT_OF_MEMORY:
        return "ran out of memory"
    return f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
