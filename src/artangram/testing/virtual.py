"""A virtual clock for orchestrators in tests: exact instants, no waiting.

Use it on a loop whose own time jumps when nothing is left to do (`looptime`). The clock goes to
its next timer only then, so everything that happens at one instant happens before the next, and
an instant is exactly the number that was asked for.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

_A_MOMENT_S = 0.001
"""On the loop's clock: a timer this far away fires when nothing else is left to do."""


class _VirtualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """See `orchestrator.driver.Clock`."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._timers: list[tuple[float, int, _VirtualTimer]] = []
        self._soon: list[Callable[[], None]] = []
        self._seq = 0
        self._is_armed = False

    def __repr__(self) -> str:
        return f"<VirtualClock {self._now}: {len(self._timers)} timers>"

    def now(self) -> float:
        return self._now

    def call_at(self, at: float, callback: Callable[[], None]) -> _VirtualTimer:
        timer = _VirtualTimer(callback)
        self._seq += 1
        heappush(self._timers, (at, self._seq, timer))
        self._arm()
        return timer

    def now_or_soon(self, callback: Callable[[], None]) -> None:
        self.soon(callback)

    def soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)
        self._arm()

    async def sleep_until(self, at: float) -> None:
        """Return at `at`."""
        reached = asyncio.Event()
        self.call_at(at, reached.set)
        await reached.wait()

    def _arm(self) -> None:
        if not self._is_armed and (self._soon or self._timers):
            self._is_armed = True
            asyncio.get_running_loop().call_later(_A_MOMENT_S, self._go_on)

    def _go_on(self) -> None:
        """Nothing is left to do: finish this instant, or go to the next."""
        self._is_armed = False
        if self._soon:
            soon, self._soon = self._soon, []
            for callback in soon:
                callback()
        else:
            self._next_instant()
        self._arm()

    def _next_instant(self) -> None:
        self._now = max(self._now, self._timers[0][0])
        due = []
        while self._timers and self._timers[0][0] <= self._now:
            due.append(heappop(self._timers)[2])
        for timer in due:
            if timer.callback is not None:
                timer.callback()
