"""First turns of sessions, which wait until a replica has room for what the session will become.

They begin in the order of asking. `core/rollout/workingset.py` says why, and when there is room.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from artangram.gateway.counters import Counters
from artangram.gateway.turn import Turn


class FirstTurns:
    """See the module. Call `admit` whenever room may have come."""

    def __init__(self, may_begin: Callable[[Turn], bool], counters: Counters) -> None:
        self._may_begin = may_begin
        self._counters = counters
        self._line: deque[tuple[Turn, asyncio.Event]] = deque()

    async def begin(self, turn: Turn) -> None:
        """Return when the session may have this turn, its first."""
        if not self._line and self._may_begin(turn):
            return
        now = asyncio.get_running_loop().time
        self._counters.paced += 1
        turn.waits(now())
        waiting = (turn, asyncio.Event())
        self._line.append(waiting)
        try:
            await waiting[1].wait()
        finally:
            self._line.remove(waiting)
            turn.goes_on(now())

    def admit(self) -> None:
        """Let the first of the line begin if there is room; the next one when this one has it."""
        if self._line:
            turn, may_begin = self._line[0]
            if self._may_begin(turn):
                may_begin.set()

    def give_up(self, turn: Turn) -> None:
        """The turn is aborted: it need not wait any longer."""
        for waiting, may_begin in self._line:
            if waiting is turn:
                may_begin.set()
