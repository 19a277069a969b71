"""A node that is lost takes its own runs with it and nothing else; on virtual time."""

import asyncio
import errno
from itertools import pairwise
from typing import Any

import pytest

from artangram.core.ids import NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.events import Event, NodeLost
from artangram.managers.agent import AgentGone, Listener, NodeAgent, NodeInventory
from artangram.managers.cpu import CpuManager
from artangram.managers.local import LocalAgent
from artangram.observe.journal import Entry, Then
from artangram.observe.journalmemory import MemoryJournal
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.driver import WallClock
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.executor import LiveExecutor
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.options import between
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.records import ActionResult, Opening
from artangram.orchestrator.recovery import Setup
from artangram.sandbox.fake import FakeProvider
from artangram.testing.fakes import NODE, FakeCluster, fake_cluster

pytestmark = pytest.mark.looptime


class FragileAgent(LocalAgent):
    """Is lost when it is told to be."""

    def __init__(self, node: NodeId = NODE) -> None:
        super().__init__(node, FakeProvider(), now=asyncio.get_running_loop().time)

    async def attach(self, listener: Listener) -> NodeInventory:
        self.listener = listener
        return await super().attach(listener)

    def lose(self) -> None:
        self.listener.on_lost(self.node, "planted")


def begun(trajectory: TrajectoryHandle, *argv: str, **more: object) -> "asyncio.Task[ActionResult]":
    return asyncio.create_task(trajectory.run(argv, **more))  # type: ignore[arg-type]


def cancel(client: FakeCluster) -> None:
    for action_id in client.orchestrator.ledger.actions:
        client.orchestrator.cancel(action_id)


def close(client: FakeCluster) -> None:
    for trajectory in client.orchestrator.ledger.trajectories:
        client.orchestrator.close(trajectory)


@pytest.mark.parametrize("stop", [cancel, close])
@pytest.mark.parametrize("is_lost_first", [False, True])
async def test_what_is_stopped_as_its_node_is_lost_ends_once(stop, is_lost_first) -> None:
    agent = FragileAgent()
    async with fake_cluster(agent=agent) as client, client.trajectory() as t:
        running = begun(t, "sleep", "1000")
        await asyncio.sleep(1)
        if is_lost_first:
            agent.lose()
        stop(client)
        if not is_lost_first:
            agent.lose()
        outcome = Outcome.INFRA_FAILED if is_lost_first else Outcome.CANCELLED
        assert (await running).outcome is outcome
        assert not client.orchestrator.status().is_draining
    await agent.aclose()


async def test_a_deadline_at_the_instant_of_a_loss_ends_once() -> None:
    agent = FragileAgent()
    async with fake_cluster(agent=agent) as client, client.trajectory() as t:
        running = begun(t, "sleep", "1000", deadline_s=10)
        asyncio.get_running_loop().call_later(10, agent.lose)
        assert (await running).outcome in (Outcome.INFRA_FAILED, Outcome.EXPIRED)
        assert not client.orchestrator.status().is_draining
    await agent.aclose()


class SlowJournal(MemoryJournal):
    """Takes a second to write anything down."""

    is_lasting = True

    def append(self, entry: Entry, *, then: Then | None = None, **more: Any) -> int:
        if then is not None:
            asyncio.get_running_loop().call_later(1, then, None)
        return super().append(entry, **more)


async def test_a_node_that_is_lost_before_a_start_there_is_written_is_told_nothing() -> None:
    first, second = FragileAgent(NODE), FragileAgent(NodeId("cpu-1"))
    spec = CpuSpec(nodes=2, cores=2, memory_mb=4096)
    orchestrator = Orchestrator(
        Setup(cluster=ClusterSpec(pools={Resource("cpu"): spec})),
        manager=CpuManager({agent.node: agent for agent in (first, second)}),
        journal=SlowJournal(),
        clock=WallClock(),
    )
    await orchestrator.begin()
    backend, name = Embedded(orchestrator), TrajectoryId("t")
    await backend.open(Opening(trajectory=name))
    wide = RunRequest(
        trajectory=name, argv=("true",), kind="x", cpu=between(1, 2), repeatable=True, key="k"
    )
    running = asyncio.create_task(backend.run(wide))
    await asyncio.sleep(0.1)
    narrow = RunRequest(trajectory=name, argv=("true",), kind="x", repeatable=True)
    backend.submit(narrow)  # For which the other one has to give up a core.
    await asyncio.sleep(0.1)
    first.lose()
    async with asyncio.timeout(10):
        result = await running
    assert (result.outcome, result.record.attempts) == (Outcome.SUCCEEDED, 2)
    await orchestrator.aclose()
    for agent in (first, second):
        await agent.aclose()


class GoneAgent(FragileAgent):
    """Dies between two words: it could be reached, and does not answer."""

    async def attach(self, listener: Listener) -> NodeInventory:
        raise AgentGone("planted")


async def test_an_agent_that_dies_as_a_cluster_opens_is_replaced() -> None:
    agents: list[FragileAgent] = [GoneAgent(), FragileAgent()]

    async def new_agent(node: NodeId) -> NodeAgent:
        return agents[1]

    async with (
        fake_cluster(agent=agents[0], new_agent=new_agent) as client,
        client.trajectory() as t,
    ):
        assert (await t.run(["true"])).ok
    await agents[1].aclose()


class StillbornAgent(FragileAgent):
    """Is lost as soon as it was attached to."""

    async def attach(self, listener: Listener) -> NodeInventory:
        found = await super().attach(listener)
        self.lose()
        return found


async def test_a_lost_node_is_replaced_however_often_that_fails() -> None:
    first, last, tried_at = FragileAgent(), FragileAgent(), []

    async def new_agent(node: NodeId) -> NodeAgent:
        tried_at.append(asyncio.get_running_loop().time())
        if len(tried_at) < 9:
            raise OSError(errno.EAGAIN, "no process can be started")
        return StillbornAgent() if len(tried_at) == 9 else last

    async with fake_cluster(agent=first, new_agent=new_agent) as client:
        first.lose()
        async with client.trajectory() as t:
            assert (await t.run(["true"])).ok
    pauses = [after - before for before, after in pairwise(tried_at)]
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30])
    await last.aclose()


async def test_a_replaced_node_is_replaced_again() -> None:
    agents = [FragileAgent() for _ in range(3)]
    coming = iter(agents[1:])

    async def new_agent(node: NodeId) -> NodeAgent:
        return next(coming)

    async with fake_cluster(agent=agents[0], new_agent=new_agent) as client:
        for agent in agents:
            async with client.trajectory() as t:
                async with asyncio.timeout(1000):
                    assert (await t.run(["true"])).ok
                if agent is not agents[-1]:
                    agent.lose()
    await agents[-1].aclose()


async def test_the_pool_of_a_node_is_a_value_and_not_read_from_its_name() -> None:
    agent, posted = FragileAgent(NodeId("big-box")), list[Event | None]()
    pools = {agent.node: Resource("fast-cpu")}
    manager, ledger = CpuManager({agent.node: agent}), Ledger()
    spec = CpuSpec(nodes=1, cores=2, memory_mb=64)
    setup = Setup(cluster=ClusterSpec(pools={Resource("fast-cpu"): spec}))
    executor = LiveExecutor(manager, ledger, pools=pools, now=asyncio.get_running_loop().time)
    await executor.attach(
        lambda event, **_: posted.append(event),
        None,
        setup.scheduler(),
    )
    agent.lose()
    assert posted[-1] == NodeLost(Resource("fast-cpu"), agent.node, "big-box was lost: planted")
    await executor.aclose()
    await agent.aclose()
