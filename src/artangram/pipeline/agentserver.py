"""The gateway behind HTTP, for the agents of a run: a key for each attempt, and no other caller."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from artangram.envs.agents import AgentTask
from artangram.envs.protocol import ModelAccess, Task
from artangram.gateway import FinishReason, Gateway, Session
from artangram.gateway.rules import SamplingRules
from artangram.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from artangram.gateway.http.visitors import Visitor, Visitors


class ServedGuest:
    """See `rollout.agents.AgentGuest`."""

    def __init__(self, llm: ModelAccess, visitor: "Visitor") -> None:
        self.llm = llm
        self._visitor = visitor

    @property
    def is_full(self) -> bool:
        return self._visitor.is_full

    @property
    def is_cut(self) -> bool:
        return self._visitor.session.last_finish is FinishReason.LENGTH


class ServedDoor:
    """See `rollout.agents.ModelDoor`."""

    def __init__(self, visitors: "Visitors", *, url: str, model: str) -> None:
        self._visitors = visitors
        self._url = url
        self._model = model

    def __repr__(self) -> str:
        return f"<ServedDoor {self._url}: {self._visitors!r}>"

    @contextmanager
    def admitted(
        self, session: Session, *, before_turn: Callable[[], Awaitable[None]], rules: SamplingRules
    ) -> Iterator[ServedGuest]:
        session.rules = rules
        with self._visitors.admitted(session, before_turn=before_turn) as (key, visitor):
            llm = ModelAccess(base_url=f"{self._url}/v1", api_key=key, model=self._model)
            yield ServedGuest(llm, visitor)


@asynccontextmanager
async def agent_door(
    tasks: Sequence[Task], gateway: Gateway, *, tokenizer: Tokenizer, model: str
) -> AsyncIterator[ServedDoor | None]:
    """Serve the gateway while the block lasts, on this machine only, if a task has agents."""
    if not any(isinstance(task, AgentTask) for task in tasks):
        yield None
        return
    # Needs an extra, which runs without agents do without.
    from artangram.gateway.http.server import ServerLimits, application, serving
    from artangram.gateway.http.visitors import Visitors

    visitors = Visitors()
    app = application(
        gateway,
        tokenizer=tokenizer,
        model=model,
        token=secrets.token_urlsafe(24),  # Only keys of attempts are given away.
        limits=ServerLimits(opens_sessions=False),
        visitors=visitors,
    )
    async with serving(app) as url:
        yield ServedDoor(visitors, url=url, model=model)
