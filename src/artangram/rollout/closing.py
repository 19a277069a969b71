"""What an attempt opened is closed once, and holds up nothing for long."""

import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from artangram.envs.protocol import Env
from artangram.rollout.phases import RunawayTasks, within

logger = logging.getLogger(__name__)


class ClosableSession(Protocol):
    async def close(self) -> None: ...


class AttemptClosing:
    """What an attempt opened, each closed once, none waited for too long."""

    def __init__(self, env: Env, strays: RunawayTasks, *, limit_s: float) -> None:
        self._strays = strays
        self._limit_s = limit_s
        self._env: Env | None = env
        self.session: ClosableSession | None = None

    async def close(self) -> None:
        await self.close_session()
        await self.close_env()

    async def close_session(self) -> None:
        if self.session is not None:
            session, self.session = self.session, None
            await self._within(session.close())

    async def close_env(self) -> None:
        if self._env is not None:
            env, self._env = self._env, None
            await self._within(env.aclose())

    async def _within(self, closing: Coroutine[Any, Any, None]) -> None:
        """Whatever goes wrong here changes nothing about how the attempt ended."""
        try:
            await within(closing, self._limit_s, of=None, what="closing", strays=self._strays)
        except Exception:
            logger.warning("an environment or a session did not close", exc_info=True)
