"""An event loop whose time jumps: whenever nothing is left to do, it is the next timer's turn.

Everything that waits on the loop's time runs on it unchanged, and the same program gives the same
events in the same order. Threads and sockets do not work here: the loop would not wait for them.
"""

import asyncio
import gc
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from math import ulp
from typing import Any, TypeVar

T = TypeVar("T")


class StuckError(RuntimeError):
    """A task waits for something that cannot happen any more."""


class _Jumping(selectors.SelectSelector):
    """Advances the time instead of waiting. There are no sockets to poll."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StuckError("a task waits, but no timer or callback is left")
        if timeout > 0.0:
            self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def _run_once(self) -> None:
        # A timer is due when it is nearer than this; nearer than a float can tell is due, too.
        self._clock_resolution = max(1e-9, 2.0 * ulp(self._jumping.now))
        super()._run_once()  # type: ignore[misc]


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns, however long it takes on its own clock."""
    with _rare_collections(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cycles less often: hundreds of thousands of objects live to the end of a run."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
