"""Sandboxes of one kind, made before they are asked for.

- `claim` hands over a ready sandbox at once, or makes one when none is ready.
- What was handed over belongs to the caller; what was not is closed with the pool.
- Refilling goes on in the background, one at a time, and stops at `size`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib

from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.protocol import DEFAULT_LIMITS, Limits, Sandbox, SandboxProvider, Source
from artangram.sandbox.user import BOX, SandboxUser


class Warm:
    """Ready sandboxes of one source and one set of limits, for any provider."""

    def __init__(
        self,
        provider: SandboxProvider,
        source: Source,
        *,
        size: int,
        limits: Limits = DEFAULT_LIMITS,
        user: SandboxUser = BOX,
    ) -> None:
        if size < 1:
            raise ValueError("a warm pool keeps at least one sandbox")
        self._provider = provider
        self._source = source
        self._limits = limits
        self._user = user
        self._size = size
        self._ready: collections.deque[Sandbox] = collections.deque()
        self._refilling: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Warm {self._source}: {len(self._ready)} of {self._size} ready>"

    @property
    def num_ready(self) -> int:
        return len(self._ready)

    async def fill(self) -> None:
        """Return when `size` sandboxes are ready."""
        while len(self._ready) < self._size:
            self._ready.append(await self._made())

    async def claim(self) -> Sandbox:
        if self._closed:
            raise SandboxGone("the warm pool is closed")
        sandbox = self._take()
        self._refill()
        if sandbox is None:
            return await self._made()
        return sandbox

    async def _made(self) -> Sandbox:
        return await self._provider.create(self._source, limits=self._limits, user=self._user)

    def _take(self) -> Sandbox | None:
        while self._ready:
            sandbox = self._ready.popleft()
            if sandbox.is_alive:
                return sandbox
        return None

    def _refill(self) -> None:
        if self._refilling is None or self._refilling.done():
            self._refilling = asyncio.create_task(self._fill_quietly())

    async def _fill_quietly(self) -> None:
        # No caller waits for this; the next claim meets the same error and raises it.
        with contextlib.suppress(SandboxError):
            await self.fill()

    async def close(self) -> None:
        self._closed = True
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.wait({self._refilling})
        while self._ready:
            await self._ready.popleft().close()
