"""Stop and continue everything in one sandbox, one after the other.

- What is wanted by then is done: else a freeze could overtake a thaw that was asked for later.
- Without control groups it is done by signals that init sends; init itself goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from artangram.aio import uncancelled
from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.inside import request
from artangram.sandbox.namespace.execution import ExecutionSandbox


class Freezer:
    """`tell` sends a verb to init and waits for its answer."""

    def __init__(self, box: ExecutionSandbox, tell: Callable[[int], Awaitable[object]]) -> None:
        self._box = box
        self._tell = tell
        self._turn = asyncio.Lock()
        #: From the request on, so that every request that needs init awake thaws it.
        self.is_frozen = False

    async def set(self, frozen: bool) -> None:
        self.is_frozen = frozen
        await uncancelled(self._as_wanted())

    async def frozen_until(self, started: Callable[[], None]) -> None:
        """Thaw after `started`: until then nothing forks, so all kept processes can be moved."""
        await uncancelled(self._frozen_until(started))

    async def _as_wanted(self) -> None:
        async with self._turn:
            await self._carry_out(self.is_frozen)

    async def _frozen_until(self, started: Callable[[], None]) -> None:
        async with self._turn:
            try:
                await self._carry_out(True)
                started()
            finally:
                self.is_frozen = False
                await self._carry_out(False)

    async def _carry_out(self, frozen: bool) -> None:
        groups = self._box.traits.groups
        try:
            if groups is None:
                await self._tell(request.STOP if frozen else request.CONTINUE)
            elif frozen:
                await asyncio.to_thread(groups.freeze, self._box.pid)
            else:
                groups.thaw()
        except OSError as error:
            if not self._box.is_alive:
                raise SandboxGone(f"{self._box.name} ended meanwhile") from error
            problem = f"{self._box.name} cannot be frozen or thawed: {error}"
            raise SandboxError(problem) from error
