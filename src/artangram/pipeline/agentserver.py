"""The gateway behind HTTP, for the agents of a run: a key for each attempt, and no other caller."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from artangram.envs.agents import AgentTask
from artangram.envs.protocol import ModelAccess, Task
from artangram.gateway import FinishReason, Gateway, Session
from artangram.gateway.rules import SamplingRules
from artangram.models.tokenizer import Tokenizer
from artangram.orchestrator.client import Client
from artangram.sandbox.network import split_port

INSIDE_NAME = "model.internal"
"""Of the gateway, for sandboxes; they take loopback addresses for their own."""

if TYPE_CHECKING:
    from artangram.gateway.http.agentkeys import AgentKeys, KeyHolder


class ServedAgent:
    """See `rollout.agents.AdmittedAgent`."""

    def __init__(self, llm: ModelAccess, holder: "KeyHolder") -> None:
        self.llm = llm
        self._holder = holder

    @property
    def is_full(self) -> bool:
        return self._holder.is_full

    @property
    def is_cut(self) -> bool:
        return self._holder.session.last_finish is FinishReason.LENGTH


class ServedGateway:
    """See `rollout.agents.AgentGateway`."""

    def __init__(self, agent_keys: "AgentKeys", *, url: str, model: str, sandbox_url: str) -> None:
        self._agent_keys = agent_keys
        self._url = url
        self._model = model
        self._sandbox_url = sandbox_url

    def __repr__(self) -> str:
        return f"<ServedDoor {self._url}: {self._agent_keys!r}>"

    @contextmanager
    def admitted(
        self, session: Session, *, before_turn: Callable[[], Awaitable[None]], rules: SamplingRules
    ) -> Iterator[ServedAgent]:
        session.rules = rules
        with self._agent_keys.admitted(session, before_turn=before_turn) as (key, holder):
            llm = ModelAccess(
                base_url=f"{self._url}/v1",
                api_key=key,
                model=self._model,
                sandbox_url=self._sandbox_url,
            )
            yield ServedAgent(llm, holder)


@asynccontextmanager
async def agent_gateway(
    tasks: Sequence[Task],
    gateway: Gateway,
    *,
    tokenizer: Tokenizer,
    model: str,
    client: Client | None = None,
    address: str = "",
) -> AsyncIterator[ServedGateway | None]:
    """Serve the gateway while the block lasts, if a task has agents.

    It listens on `address` (HOST:PORT), or for this machine only. Sandboxes of a cluster in this
    process are led there under a name of their own; those of others need the address.
    """
    if not any(isinstance(task, AgentTask) for task in tasks):
        yield None
        return
    # Needs an extra, which runs without agents do without.
    from artangram.gateway.http.agentkeys import AgentKeys
    from artangram.gateway.http.server import ServerLimits, application, serving

    agent_keys = AgentKeys()
    app = application(
        gateway,
        tokenizer=tokenizer,
        model=model,
        token=secrets.token_urlsafe(24),  # Only keys of attempts are given away.
        limits=ServerLimits(opens_sessions=False),
        agent_keys=agent_keys,
    )
    host, port = split_port(address or "127.0.0.1:0")
    async with serving(app, host=host, port=port or 0) as url:
        with _led(client, url, is_open=bool(address)) as sandbox_url:
            yield ServedGateway(agent_keys, url=url, model=model, sandbox_url=sandbox_url)


@runtime_checkable
class Permitting(Protocol):
    """A cluster in this process; see `Embedded.permitting`."""

    def permitting(self, private: str) -> AbstractContextManager[None]: ...


@contextmanager
def _led(client: Client | None, url: str, *, is_open: bool) -> Iterator[str]:
    """The base URL inside of sandboxes, or nothing. A loopback address would be their own."""
    backend = None if client is None else client.backend
    if isinstance(backend, Permitting):
        with backend.permitting(f"{INSIDE_NAME}={url.removeprefix('http://')}"):
            yield f"http://{INSIDE_NAME}/v1"
    else:
        yield f"{url}/v1" if is_open else ""
