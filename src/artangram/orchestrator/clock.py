"""Time as the orchestrator sees it: Unix time that never goes back, and timers on it."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Everything that waits in the orchestrator waits here, so tests can run on virtual time."""

    def now(self) -> float: ...

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer: ...

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back when all that happens at this instant was told."""
        ...

    def now_or_soon(self, callback: Callable[[], None]) -> None:
        """As `soon`; at once on a clock on which no two things end at the same instant."""
        ...


class WallClock:
    """Unix time when it was made, and the event loop's steady clock from there.

    It begins at `not_before` if the machine's clock was set back behind that: who goes on from a
    journal would otherwise stand still until the clock has come there again.
    """

    def __init__(self, *, not_before: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset = max(time.time(), not_before) - self._loop.time()

    def now(self) -> float:
        return self._loop.time() + self._offset

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_at(at - self._offset, callback)

    def soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    def now_or_soon(self, callback: Callable[[], None]) -> None:
        callback()
