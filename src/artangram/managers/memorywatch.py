"""Looks at the machine's free memory while anything runs, and has room made when it is short."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from artangram.aio import Background

LOOK_EVERY_S = 0.2
"""Looking at the machine's memory takes as long as an action's whole way through an agent."""


class MemoryWatch:
    """Calls `relieve` when less than `least_mb` is free, one call at a time; 0 watches nothing."""

    def __init__(
        self,
        least_mb: int,
        free_mb: Callable[[], int],
        *,
        is_busy: Callable[[], bool],
        relieve: Callable[[], Coroutine[Any, Any, int]],
        background: Background,
    ) -> None:
        self._least_mb = least_mb
        self._free_mb = free_mb
        self._is_busy = is_busy
        self._relieve = relieve
        self._background = background
        self._next: asyncio.TimerHandle | None = None
        #: Does it look, or need not?
        self.is_awake = least_mb == 0
        self._is_relieving = False

    @property
    def is_short(self) -> bool:
        return self._free_mb() < self._least_mb

    def wake(self) -> None:
        """Something runs from now on."""
        if not self.is_awake:
            self._look_soon()

    def close(self) -> None:
        self._least_mb, self.is_awake = 0, True
        if self._next is not None:
            self._next.cancel()

    def _look_soon(self) -> None:
        self.is_awake = True
        self._next = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """Now and then while anything runs, and once after: only what runs takes more memory."""
        self.is_awake = False
        if self._is_busy():
            self._look_soon()
        if not self._is_relieving and self.is_short:
            self._is_relieving = True
            self._background.start(self._relieved())

    async def _relieved(self) -> None:
        try:
            await self._relieve()
        finally:
            self._is_relieving = False
