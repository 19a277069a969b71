"""A cluster that may go away and come back, as one behind HTTP does when it is started again.

- Calls made while it is away wait. A call that may run twice is made again when it is back; any
  other may have run, so it ends as an infrastructure failure and never runs twice.
- When it stays away for longer than `patience_s`, `lost` raises, so that a run can end instead of
  giving up one problem after the other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import JobId, TrajectoryId
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.calling import CallRequest
from artangram.orchestrator.records import (
    ActionResult,
    ClusterStatus,
    Draining,
    Opening,
    Unreachable,
)
from artangram.orchestrator.transport import Transport
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotTerms

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 600.0
"""As long as a service manager may take to start a cluster on another machine."""
LOOK_S = 0.5

_AWAY = (Unreachable, Draining)


class ReconnectingClient:
    """A `transport.Transport`; verbs that are not here go straight through."""

    def __init__(self, backend: Transport, *, patience_s: float = PATIENCE_S) -> None:
        self._backend = backend
        self._patience_s = patience_s
        self._coming: asyncio.Task[None] | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises when the cluster does not come back."""

    def __repr__(self) -> str:
        return repr(self._backend)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._backend, verb)

    async def open(self, opening: Opening) -> None:
        asked = 0

        async def ask() -> None:
            nonlocal asked
            asked += 1
            try:
                await self._backend.open(opening)
            except BadInput as error:
                # It is open already: the first time it was heard, and only the answer was lost.
                if asked == 1 or error.field != "trajectory":
                    raise

        await self._asked(ask)

    async def close(self, trajectory: TrajectoryId) -> None:
        await self._asked(lambda: self._backend.close(trajectory))

    async def close_job(self, job: JobId) -> None:
        await self._asked(lambda: self._backend.close_job(job))

    async def run(self, request: RunRequest) -> ActionResult:
        may_repeat = request.repeatable or request.key is not None
        return await self._asked(lambda: self._backend.run(request), may_repeat=may_repeat)

    async def call(self, request: CallRequest) -> ActionResult:
        may_repeat = request.repeatable or request.key is not None
        return await self._asked(lambda: self._backend.call(request), may_repeat=may_repeat)

    async def read(self, trajectory: TrajectoryId, path: str, *, max_bytes: int) -> bytes:
        return await self._asked(lambda: self._backend.read(trajectory, path, max_bytes=max_bytes))

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None:
        await self._asked(lambda: self._backend.write(trajectory, path, data=data))

    async def snapshot(self, trajectory: TrajectoryId, terms: SnapshotTerms) -> Snapshot:
        return await self._asked(lambda: self._backend.snapshot(trajectory, terms))

    async def status(self) -> ClusterStatus:
        return await self._asked(self._backend.status)

    async def aclose(self) -> None:
        """Stop waiting for the cluster."""
        self.lost.cancel()
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait({self._coming})

    async def _asked(self, ask: Callable[[], Awaitable[T]], *, may_repeat: bool = True) -> T:
        while True:
            try:
                return await ask()
            except _AWAY as error:
                await self._back(error)
                if not may_repeat:
                    text = "the cluster went away; it may have run"
                    raise InfraFailed(text) from error

    async def _back(self, error: Exception) -> None:
        """Return when the cluster answers again. Raises `InfraFailed` when it does not."""
        if self._coming is None or self._coming.done():
            logger.warning("%r is away (%s); waiting for it", self._backend, error)
            self._coming = asyncio.create_task(self._wait())
        # All callers wait for the same return; one that is cancelled does not end it.
        await asyncio.wait({self._coming})
        if self._coming.cancelled() or self._coming.exception() is not None:
            raise InfraFailed(f"{self._backend!r} did not come back") from error

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                while not await self._is_there():  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            text = f"{self._backend!r} was away for {self._patience_s:g} s"
            lost = BadInput("url", text, "start it again, then say --resume")
            if not self.lost.done():
                self.lost.set_exception(lost)
            raise
        logger.warning("%r is back", self._backend)

    async def _is_there(self) -> bool:
        try:
            return not (await self._backend.status()).is_draining
        except _AWAY:
            return False
