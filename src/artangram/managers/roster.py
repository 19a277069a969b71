"""Where agents dial in: which may join, which node each of them is, and when one is given up.

- The connection is the discovery: no inventory is typed in, and nodes need no open port.
- `membership` decides; this carries it out with links and timers, and tells the orchestrator
  through a `RosterListener`. Fences are counted on a clock that cannot be set.
"""

import asyncio
import hmac
import logging
import re
from collections.abc import Callable
from ssl import SSLContext
from typing import Protocol

from artangram.aio import Background
from artangram.core.ids import NodeId
from artangram.link import Link, LinkEnded, LinkRefused, listen
from artangram.managers import wire
from artangram.managers.joined import JoinedAgent, JoinedLink
from artangram.managers.membership import Admitted, Membership, Rejected, Resumed

logger = logging.getLogger(__name__)

SILENCE_S = 6.0
"""How long an agent may be silent until its node is suspect. A glitch of a few seconds costs
nothing: its actions go on."""
FENCE_S = 30.0
"""An orchestrator that was restarted is back within this."""
MARGIN_S = 5.0
"""For an agent to end everything after its fence, and for clocks that run at different speeds."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class RosterListener(Protocol):
    """Hears which nodes there are."""

    def on_joined(self, agent: JoinedAgent, hello: wire.JoinHello) -> None:
        """A new, empty node; `attach` to its agent."""
        ...

    def on_suspect(self, node: NodeId) -> None:
        """Start nothing there until it is trusted or lost."""
        ...

    def on_trusted(self, node: NodeId) -> None: ...


class Roster:
    """See the module. `lose` of an agent reaches its own listener."""

    def __init__(
        self,
        listener: RosterListener,
        *,
        token: str,
        now: Callable[[], float],
        fence_s: float = FENCE_S,
        margin_s: float = MARGIN_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._listener = listener
        self._token = token
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._fence_s = fence_s
        self._silence_s = silence_s
        self._members = Membership(fence_s=fence_s, margin_s=margin_s)
        self._agents: dict[NodeId, JoinedAgent] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._background = Background(self._on_error)

    def __repr__(self) -> str:
        return f"<Roster: {self._members!r}>"

    async def open(self, host: str, port: int, *, tls: SSLContext | None) -> int:
        """Listen; the port."""
        terms = wire.orchestrator_terms(self._silence_s)
        self._server = await listen((host, port), terms, self._greet, tls=tls)
        return int(self._server.sockets[0].getsockname()[1])

    def expect(self, node: NodeId, machine: str, incarnation: str) -> JoinedAgent:
        """After a restart of the orchestrator: an agent that may come back within its fence."""
        agent = self._new_agent(node, incarnation)
        self._members.expect(node, machine, incarnation, self._loop.time())
        self._set_timer()
        return agent

    def _new_agent(self, node: NodeId, incarnation: str) -> JoinedAgent:
        agent = self._agents[node] = JoinedAgent(
            node,
            incarnation,
            now=self._now,
            on_dropped=self._on_dropped,
            on_left=self._on_agent_left,
        )
        return agent

    async def close(self) -> None:
        """Accept no more agents. Those that joined are ended by `aclose` or `detach`."""
        if self._server is not None:
            self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        await self._background.close()

    def _greet(self, link: Link[wire.Report]) -> tuple[JoinedLink, wire.Welcome]:
        hello = link.peer(wire.JoinHello)
        if not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            raise LinkRefused("the join token is wrong; copy it from what `artangram up` prints")
        node = _checked(hello)
        match self._members.greet(node, hello.machine, hello.incarnation):
            case Rejected(reason):
                raise LinkRefused(reason)
            case Resumed():
                agent = self._agents[node]
                agent.use(link)
                self._background.start(self._resume(agent))
            case Admitted(replaces):
                if replaces is not None:
                    self._agents.pop(node).lose("its agent was started anew")
                agent = self._new_agent(node, hello.incarnation)
                agent.use(link)
                self._loop.call_soon(self._listener.on_joined, agent, hello)
        return JoinedLink(agent, link), wire.Welcome(fence_s=self._fence_s)

    async def _resume(self, agent: JoinedAgent) -> None:
        try:
            is_back = await agent.resume()
        except LinkEnded:
            return  # It was dropped again, and may come back again.
        if is_back:
            logger.info("%s is back and lost nothing", agent.node)
            self._listener.on_trusted(agent.node)

    def _on_dropped(self, agent: JoinedAgent) -> None:
        if self._agents.get(agent.node) is not agent:
            return
        if self._members.dropped(agent.node, agent.incarnation, self._loop.time()):
            logger.warning("%s is suspect: its link broke or it fell silent", agent.node)
            self._listener.on_suspect(agent.node)
            self._set_timer()

    def _on_agent_left(self, agent: JoinedAgent) -> None:
        """It was let go of: its name is free, and this incarnation is refused from now on."""
        if self._agents.get(agent.node) is agent:
            del self._agents[agent.node]
            self._members.left(agent.node)
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = self._members.next_at()
        if at is not None:
            self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        for node in self._members.take_lost(self._loop.time()):
            self._agents.pop(node).lose("it was silent for longer than its fence")
        self._set_timer()

    def _on_error(self, error: BaseException) -> None:
        logger.error("an agent could not be taken up again: %r", error)


def _checked(hello: wire.JoinHello) -> NodeId:
    """The name of the node. `LinkRefused` for a hello that makes no sense."""
    shape = hello.shape
    if not _NAME.fullmatch(hello.node):
        raise LinkRefused(f"{hello.node!r} cannot be a node's name; use letters, digits, . _ -")
    if not shape.cores or shape.memory_mb <= 0 or len(set(shape.cores)) != len(shape.cores):
        raise LinkRefused(f"{hello.node} says it has {len(shape.cores)} cores and no sound memory")
    if shape.numa < 1 or len(shape.cores) % shape.numa:
        raise LinkRefused(f"{hello.node} says that {shape.numa} domains share its cores")
    return hello.node
