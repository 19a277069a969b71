"""Keeps Python's collector of garbage cycles from stalling the loop of a head with many objects.

- A full collection looks at every object: 0.16 s of a blocked loop with 20,000 trajectories. So
  what has lived for a second is put aside (`gc.freeze`); collections look at young objects alone.
- Objects that were put aside are freed like all others when their last reference goes. Only cycles
  among them stay, until one full collection an hour.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

EVERY_S = 1.0
FULL_EVERY_S = 3600.0


class _Aside:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: list[asyncio.TimerHandle] = []
        self._collect_all()

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        gc.unfreeze()

    def _collect_all(self) -> None:
        self.stop()
        full = self._loop.call_later(FULL_EVERY_S, self._collect_all)
        self._timers = [full]
        self._collect_young()

    def _collect_young(self) -> None:
        gc.collect()
        gc.freeze()
        self._timers[1:] = [self._loop.call_later(EVERY_S, self._collect_young)]


@asynccontextmanager
async def old_objects_aside() -> AsyncIterator[None]:
    """While the block lasts. For a process that does nothing else."""
    aside = _Aside()
    try:
        yield
    finally:
        aside.stop()
