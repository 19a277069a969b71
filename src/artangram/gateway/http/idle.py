"""Closes sessions that callers opened and have not used for a while.

A session in use never expires, however long its turn takes. Sessions that other code opened, such
as a rollout, are closed by that code.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from artangram.aio import Background
from artangram.gateway.counters import Counters
from artangram.gateway.session import Session

logger = logging.getLogger(__name__)


class IdleSessions:
    """See the module. Holds sessions weakly, so closed ones disappear by themselves."""

    def __init__(self, limit_s: float, counters: Counters) -> None:
        self._limit_s = limit_s
        self._counters = counters
        self._uses: WeakKeyDictionary[Session, int] = WeakKeyDictionary()
        self._since: WeakKeyDictionary[Session, float] = WeakKeyDictionary()
        """Idle sessions, the longest idle first."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing = Background(lambda error: logger.error("a session", exc_info=error))

    def add(self, session: Session) -> None:
        """A caller opened it."""
        self._uses[session] = 0
        self._rest(session)

    @contextmanager
    def used(self, session: Session) -> Iterator[None]:
        """A caller uses it while the block lasts."""
        if session not in self._uses:
            yield
            return
        self._uses[session] += 1
        self._since.pop(session, None)
        try:
            yield
        finally:
            self._uses[session] -= 1
            if not self._uses[session]:
                self._rest(session)

    def _rest(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        self._since[session] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._limit_s, self._expire)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for session, since in list(self._since.items()):
            if loop.time() < since + self._limit_s:
                self._timer = loop.call_at(since + self._limit_s, self._expire)
                return
            del self._since[session]
            self._counters.expired += 1
            logger.info("%r was not used for %g s and is closed", session, self._limit_s)
            self._closing.start(session.close())
