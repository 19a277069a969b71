"""The nodes of a cluster beyond this machine: agents that dial in, and come back after a restart.

What the next process has to know of a node is kept with its incarnation: the orchestrator waits for
the same agent for as long as its fence lets it go on.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct, structs

from artangram.aio import Background
from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.cluster import NodeSpec
from artangram.core.scheduling.scheduler import Scheduler
from artangram.managers.agent import AgentGone, Listener, NodeAgent, NodeInventory
from artangram.managers.joined import JoinedAgent
from artangram.managers.roster import FENCE_S, SILENCE_S, Roster
from artangram.managers.tls import server_context
from artangram.managers.wire import JoinHello
from artangram.observe.journal import Past
from artangram.orchestrator.providing import provider_labels

CPU = Resource("cpu")
FUNCTIONS = Resource("functions")

Now = Callable[[], float]


class JoinedNode(Struct, frozen=True, kw_only=True):
    """A node that joined, as the journal keeps it."""

    pool: Resource
    spec: NodeSpec
    machine: str
    cores: tuple[int, ...]
    """As the machine numbers them."""

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


class NodeTaker(Listener, Protocol):
    """See `executor.LiveExecutor`."""

    scheduler: Scheduler

    def add(self, agent: NodeAgent, node: JoinedNode) -> None: ...

    def keep(self, name: str, body: bytes) -> None: ...

    def joined(self, agent: NodeAgent, node: JoinedNode, found: NodeInventory) -> None: ...

    def returned(self, agent: NodeAgent, node: JoinedNode, found: NodeInventory) -> None: ...

    def suspect(self, node: NodeId) -> None: ...

    def trust(self, node: NodeId) -> None: ...


class AgentAddress(Struct, frozen=True, kw_only=True):
    """What an agent has to know to join."""

    host: str
    port: int
    fingerprint: str


class AgentEndpoint(Struct, frozen=True, kw_only=True):
    """Where agents of other machines may dial in."""

    host: str
    port: int
    token: str
    state_dir: Path
    """Where the certificate is."""
    on_open: Callable[[AgentAddress], None]
    fence_s: float = FENCE_S
    """Longer than a restart of the orchestrator takes."""

    def __post_init__(self) -> None:
        if not SILENCE_S < self.fence_s < math.inf:
            problem = f"{self.fence_s:g} s is not longer than the {SILENCE_S:g} s of a glitch"
            raise BadInput("fence_s", problem, f"leave it out: {FENCE_S:g} s is the default")


class JoinedNodes:
    """See `roster.RosterListener`."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, endpoint: AgentEndpoint, executor: NodeTaker, *, past: Past | None, now: Now
    ) -> AsyncIterator[None]:
        """Let agents join while the block lasts."""
        nodes = cls(executor)
        tls, fingerprint = await asyncio.to_thread(server_context, endpoint.state_dir)
        roster = Roster(nodes, token=endpoint.token, now=now, fence_s=endpoint.fence_s)
        if past is not None:
            nodes._restore(past, roster, executor.scheduler)
        port = await roster.open(endpoint.host, endpoint.port, tls=tls)
        try:
            endpoint.on_open(AgentAddress(host=endpoint.host, port=port, fingerprint=fingerprint))
            yield
        finally:
            await roster.close()
            await nodes._background.close()

    def __init__(self, executor: NodeTaker) -> None:
        self._executor = executor
        self._background = Background(_on_error)
        self.on_suspect = executor.suspect
        self.on_trusted = executor.trust

    def on_joined(self, agent: JoinedAgent, hello: JoinHello) -> None:
        shape = hello.shape
        spec = NodeSpec(
            cores=len(shape.cores),
            memory_mb=shape.memory_mb,
            numa=shape.numa,
            labels=shape.labels,
            slots={FUNCTIONS: shape.function_slots} if shape.function_slots else {},
        )
        node = JoinedNode(pool=CPU, spec=spec, machine=hello.machine, cores=shape.cores)
        self._executor.add(agent, node)
        self._background.start(self._attach(agent, node, self._joined))

    def _joined(self, agent: NodeAgent, node: JoinedNode, found: NodeInventory) -> None:
        labels = node.spec.labels | provider_labels(one.kind for one in found.offers)
        spec = structs.replace(node.spec, labels=labels)
        self._executor.joined(agent, structs.replace(node, spec=spec), found)

    async def _attach(
        self,
        agent: NodeAgent,
        node: JoinedNode,
        then: Callable[[NodeAgent, JoinedNode, NodeInventory], None],
    ) -> None:
        with suppress(AgentGone):  # The executor hears of that as its listener.
            then(agent, node, await agent.attach(self._executor))

    def _restore(self, past: Past, roster: Roster, scheduler: Scheduler) -> None:
        """Wait for the agents that had joined before the restart."""
        found: dict[NodeId, str] = {}
        for name, record in past.kept.items():
            kind, _, rest = name.partition(":")
            node, _, incarnation = rest.rpartition(":")
            if kind == "agent" and record.body:
                found[NodeId(node)] = incarnation
        for known in scheduler.nodes():
            if known.id in found:
                name = f"agent:{known.id}:{found[known.id]}"
                kept = msgspec.json.decode(past.kept[name].body, type=JoinedNode)
                agent = roster.expect(known.id, kept.machine, found[known.id])
                self._executor.add(agent, kept)
                self._executor.keep(name, past.kept[name].body)  # It may be away for another life.
                self._background.start(self._attach(agent, kept, self._executor.returned))


def _on_error(error: BaseException) -> None:
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": "a node could not join", "exception": error})
