"""Several nodes of one orchestrator, with fake sandboxes, over restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from busy_machine import PATIENCE_S

from artangram.core.ids import NodeId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.managers.cpu import CpuManager
from artangram.managers.local import LocalAgent
from artangram.observe.journalfile import open_journal
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.driver import WallClock
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.records import ActionResult, Opening
from artangram.orchestrator.recovery import Setup
from artangram.sandbox.fake import FakeProvider

CPU = Resource("cpu")


class Machines:
    """Agents that outlive their orchestrators, by the number of their node."""

    def __init__(self) -> None:
        self._agents: dict[int, LocalAgent] = {}

    def agent(self, number: int) -> LocalAgent:
        if number not in self._agents:
            now = asyncio.get_running_loop().time
            self._agents[number] = LocalAgent(NodeId(f"cpu-{number}"), FakeProvider(), now=now)
        return self._agents[number]

    async def aclose(self) -> None:
        for agent in self._agents.values():
            await agent.aclose()


@asynccontextmanager
async def a_life(
    path: Path, machines: Machines, *, nodes: int, awaits_nodes: bool = False
) -> AsyncIterator[Embedded]:
    journal, past = await open_journal(path)
    spec = CpuSpec(nodes=nodes, cores=2, memory_mb=4096)
    agents = [machines.agent(number) for number in range(nodes)]
    orchestrator = Orchestrator(
        Setup(cluster=ClusterSpec(pools={CPU: spec})),
        manager=CpuManager({agent.node: agent for agent in agents}),
        journal=journal,
        clock=WallClock(not_before=0.0 if past is None else past.last_at),
        past=past,
    )
    orchestrator.executor.awaits_nodes = awaits_nodes
    try:
        await orchestrator.begin()
        yield Embedded(orchestrator)
    finally:
        await orchestrator.aclose()
        await journal.close()


async def ran(backend: Embedded, name: str, *argv: str) -> ActionResult:
    request = RunRequest(trajectory=TrajectoryId(name), argv=argv or ("true",), kind="x")
    async with asyncio.timeout(PATIENCE_S):
        return await backend.run(request)


async def opened(backend: Embedded, name: str) -> None:
    await backend.open(Opening(trajectory=TrajectoryId(name), memory_mb=3000))


def node_of(backend: Embedded, name: str) -> str:
    live = backend.orchestrator.ledger.trajectories[TrajectoryId(name)]
    return str(live.node)
