"""The phase of an agent: what it waits for, how many turns it takes, how it reaches the model."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from artangram.core.errors import BadInput
from artangram.envs.protocol import ModelAccess
from artangram.gateway.rules import SamplingRules

BeforeTurn = Callable[[], Awaitable[None]]


class AdmittedAgent(Protocol):
    """An agent that may use the model."""

    @property
    def llm(self) -> ModelAccess: ...

    @property
    def is_full(self) -> bool:
        """A prompt of it left no room for an answer."""
        ...

    @property
    def is_cut(self) -> bool:
        """Its last answer ended at a limit of tokens."""
        ...


class AgentGateway(Protocol):
    """Lets agents use sessions over HTTP."""

    def admitted(
        self, session: Any, *, before_turn: BeforeTurn, rules: SamplingRules
    ) -> AbstractContextManager[AdmittedAgent]:
        """While the block lasts, an agent may use the session; `before_turn` precedes each turn."""
        ...


class TurnsUsedUp(BadInput):
    """The agent has made as many requests as its task allows."""


class AgentTurns:
    """Counts the turns of one attempt, and what it spends in lines: for replicas, weights, cores.

    Lines are added up. An agent whose turns wait side by side is charged for less than it works.
    """

    def __init__(self, env: object, session: object, *, most: int, fresh: BeforeTurn) -> None:
        self._env = env
        self._session = session
        self._most = most
        self._fresh = fresh
        self._weights_s = 0.0
        self.count = 0
        self.are_used_up = False

    @property
    def queued_s(self) -> float:
        lines = (getattr(one, "queued_s", 0.0) for one in (self._env, self._session))
        return self._weights_s + float(sum(lines))

    async def before_turn(self) -> None:
        if self.count >= self._most:
            self.are_used_up = True
            raise TurnsUsedUp("max_turns", f"{self._most} turns are used up", "answer in fewer")
        self.count += 1
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            await self._fresh()
        finally:
            self._weights_s += loop.time() - began_at
