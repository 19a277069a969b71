"""An event loop whose time jumps: whenever nothing is left to do, it is the next timer's turn.

Everything that waits on the loop's time runs on it unchanged, and the same program gives the same
events in the same order. Threads and sockets do not belong here: nobody would wait for them.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from math import ulp
from typing import Any, TypeVar

T = TypeVar("T")


class StuckError(RuntimeError):
    """Somebody waits for what nobody will do."""


class _Jumping(selectors.SelectSelector):
    """Instead of waiting, lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise StuckError("nothing is left to do, and somebody waits")
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        now = self._jumping.now
        # A timer is due when it is nearer than this; nearer than a float can tell is due, too.
        self._clock_resolution = max(1e-9, 2.0 * ulp(now))
        return now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns, however long it takes on its own clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
