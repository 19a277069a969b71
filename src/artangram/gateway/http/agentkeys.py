"""Keys of agents: one for each trajectory, valid while the rollout lets it run, or for a session
that a caller opened, valid until it is closed.

A request with such a key belongs to that session, whatever its address says. It may use the model
and nothing else: no other session, and no verb that opens or closes one.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

from artangram.gateway.gateway import ContextFull
from artangram.gateway.session import Session


class KeyHolder:
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


class AgentKeys:
    """See the module."""

    def __init__(self) -> None:
        self._by_key: dict[str, KeyHolder] = {}
        self._opened: WeakValueDictionary[str, Session] = WeakValueDictionary()
        """The gateway holds them until they are closed."""

    def __repr__(self) -> str:
        return f"<Visitors: {len(self._by_key)}>"

    @contextmanager
    def admitted(
        self, session: Session, *, before_turn: Callable[[], Awaitable[None]]
    ) -> Iterator[tuple[str, KeyHolder]]:
        """A key and its holder, while the block lasts."""
        key, holder = _a_key(), KeyHolder(session, before_turn)
        self._by_key[key] = holder
        try:
            yield key, holder
        finally:
            del self._by_key[key]

    def key_of(self, session: Session) -> str:
        """A key for a session that a caller opened."""
        key = _a_key()
        self._opened[key] = session
        return key

    def of(self, headers: Mapping[str, str]) -> KeyHolder | None:
        """The holder of the key that the headers of a request carry."""
        given = headers.get("authorization", "").removeprefix("Bearer ")
        key = given or headers.get("x-api-key", "")
        # 192 random bits: what a lookup reveals by its time helps no caller to guess one.
        if (session := self._opened.get(key)) is not None:
            return KeyHolder(session, _at_once)
        return self._by_key.get(key)


def _a_key() -> str:
    return f"sk-{secrets.token_urlsafe(24)}"


async def _at_once() -> None:
    """Nothing is waited for before a turn."""
