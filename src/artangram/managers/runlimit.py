"""The time limit of one run: it passes at a pace that changes with the cores the run has.

The scheduler says how fast (`core.scheduling.limits`); the agent, which is beside the program,
counts. So a program is stopped on time even if the orchestrator is away, and not early because it
was squeezed or preempted.
"""

import asyncio
from collections.abc import Callable


class RunLimit:
    """Counts from `begin` on, and calls `on_over` once when the limit is over."""

    __slots__ = ("_left_s", "_loop", "_on_over", "_pace", "_since", "_timer", "limit_s")

    def __init__(self, limit_s: float, *, pace: float, on_over: Callable[[], None]) -> None:
        self.limit_s = limit_s
        self._left_s = limit_s
        self._pace = pace
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The program begins now."""
        self._since = self._loop.time()
        self._arm()

    def set_pace(self, pace: float) -> None:
        """From now on `pace` seconds of the limit pass in a second."""
        if self._since is not None:
            now = self._loop.time()
            self._left_s -= (now - self._since) * self._pace
            self._since = now
        self._pace = pace
        if self._since is not None:
            self._arm()

    def end(self) -> None:
        """The program has ended."""
        self._since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pace > 0.0:
            self._timer = self._loop.call_later(max(0.0, self._left_s) / self._pace, self._on_over)
