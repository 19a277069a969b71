"""A head that is stopped and started twice knows the nodes of its first life."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from busy_machine import PATIENCE_S

from artangram.core.ids import NodeId
from artangram.managers.joining import JoiningAgent, JoinTarget, MachineIdentity
from artangram.managers.local import LocalAgent
from artangram.managers.wire import NodeShape
from artangram.orchestrator.joinednodes import AgentAddress, AgentEndpoint
from artangram.orchestrator.local import running
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.sandbox import FakeProvider

TOKEN = "join-token"
FAR = NodeId("far")


@asynccontextmanager
async def a_life(state: Path) -> AsyncIterator[tuple[Orchestrator, AgentAddress]]:
    """Of a head that is stopped as `artangram up` is."""
    opened: asyncio.Future[AgentAddress] = asyncio.get_running_loop().create_future()
    endpoint = AgentEndpoint(
        host="127.0.0.1", port=0, token=TOKEN, state_dir=state, on_open=opened.set_result
    )
    fake = ("--provider", "fake")
    async with running(state_dir=state, endpoint=endpoint, agent_options=fake) as (orchestrator, _):
        yield orchestrator, await opened
        await orchestrator.drain(1.0)


@asynccontextmanager
async def joined(orchestrator: Orchestrator, at: AgentAddress) -> AsyncIterator[None]:
    async def new_agent() -> LocalAgent:
        return LocalAgent(FAR, FakeProvider(), now=time.monotonic)

    shape = NodeShape(cores=(0,), numa=1, memory_mb=100)
    identity = MachineIdentity(node=FAR, machine="machine-1", shape=shape)
    target = JoinTarget(addresses=((at.host, at.port),), token=TOKEN, fingerprint=at.fingerprint)
    agent = JoiningAgent(target, identity, new_agent)
    staying = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while states(orchestrator).get(FAR) != "trusted":  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.02)
        yield
    finally:
        agent.stop()
        await staying


def states(orchestrator: Orchestrator) -> dict[str, str]:
    return {node.node: str(node.state) for node in orchestrator.status().nodes}


async def test_a_node_joins_anew_after_a_life_in_which_it_was_away(tmp_path: Path) -> None:
    async with a_life(tmp_path) as (first, at), joined(first, at):
        pass
    async with a_life(tmp_path) as (second, at):
        assert states(second)[FAR] == "suspect"
    async with a_life(tmp_path) as (third, at), joined(third, at):
        assert states(third)[FAR] == "trusted"
