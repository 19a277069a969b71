"""The versions of the weights as the rollout sees them, and waiting for fresh ones."""

import asyncio

from artangram.core.rollout.weights import Staleness, Versions


class Updates:
    """Announced by the trainer's side, asked by everything that samples."""

    def __init__(self, staleness: Staleness, *, version: int = 0) -> None:
        self.staleness = staleness
        self.versions = Versions(version)
        self._changed = asyncio.Event()

    @property
    def current(self) -> int:
        return self.versions.current

    @property
    def live(self) -> int:
        return self.versions.live

    def announce(self, version: int) -> None:
        self.versions.announce(version)
        self._wake()

    def go_live(self, version: int) -> None:
        self.versions.go_live(version)
        self._wake()

    def is_stale(self, oldest: int | None) -> bool:
        return self.staleness.is_stale(oldest, current=self.current)

    async def until_fresh(self) -> None:
        """Return when tokens sampled now would not be stale at once."""
        while self.is_stale(self.live):
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
