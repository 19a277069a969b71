"""Keys of agents: one for each trajectory, valid while the rollout lets it run.

A request with such a key belongs to the trajectory's session, whatever its address says. It may
use the model and nothing else: no other session, and no verb that opens or closes one.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from artangram.gateway.gateway import ContextFull
from artangram.gateway.session import Session


class Visitor:
    """An agent that may use the model."""

    def __init__(self, session: Session, before_turn: Callable[[], Awaitable[None]]) -> None:
        self.session = session
        self.is_full = False
        """A prompt of it left no room for an answer."""
        self._before_turn = before_turn

    def __repr__(self) -> str:
        return f"<Visitor of {self.session.id}>"

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Session]:
        """Around one request; `before_turn` may wait, or refuse it."""
        await self._before_turn()
        self.is_full = False
        try:
            yield self.session
        except ContextFull:
            self.is_full = True
            raise


class Visitors:
    """See the module."""

    def __init__(self) -> None:
        self._by_key: dict[str, Visitor] = {}

    def __repr__(self) -> str:
        return f"<Visitors: {len(self._by_key)}>"

    @contextmanager
    def admitted(
        self, session: Session, *, before_turn: Callable[[], Awaitable[None]]
    ) -> Iterator[tuple[str, Visitor]]:
        """A key and the visitor that it stands for, while the block lasts."""
        key, visitor = f"sk-{secrets.token_urlsafe(24)}", Visitor(session, before_turn)
        self._by_key[key] = visitor
        try:
            yield key, visitor
        finally:
            del self._by_key[key]

    def of(self, headers: Mapping[str, str]) -> Visitor | None:
        """The visitor whose key the headers of a request carry."""
        given = headers.get("authorization", "").removeprefix("Bearer ")
        # 192 random bits: what a lookup reveals by its time helps no caller to guess one.
        return self._by_key.get(given or headers.get("x-api-key", ""))
