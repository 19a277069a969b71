"""Nodes that come and go: over restarts, and drained while the orchestrator runs."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from busy_machine import PATIENCE_S
from many_nodes import Machines, a_life, node_of, opened, ran

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.managers.agent import SandboxSpec
from artangram.orchestrator.records import Opening
from artangram.sandbox import SandboxGone
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotTerms


@pytest.fixture
async def machines() -> AsyncIterator[Machines]:
    machines = Machines()
    yield machines
    await machines.aclose()


async def test_a_restart_with_more_nodes_goes_on_with_what_is_open(tmp_path, machines):
    path = tmp_path / "journal.sqlite"
    async with a_life(path, machines, nodes=1) as backend:
        await opened(backend, "t")
        assert (await ran(backend, "t")).outcome is Outcome.SUCCEEDED
    for _ in range(2):  # Once more: the journal still tells of both nodes.
        async with a_life(path, machines, nodes=2) as backend:
            assert (await ran(backend, "t")).outcome is Outcome.SUCCEEDED
            assert node_of(backend, "t") == "cpu-0"
            await opened(backend, "u")
            assert (await ran(backend, "u")).outcome is Outcome.SUCCEEDED
            assert node_of(backend, "u") == "cpu-1"
            async with asyncio.timeout(PATIENCE_S):
                await backend.orchestrator.close(TrajectoryId("u"))


async def test_a_restart_with_fewer_nodes_loses_only_what_lived_on_the_others(tmp_path, machines):
    path = tmp_path / "journal.sqlite"
    async with a_life(path, machines, nodes=2) as backend:
        for name in ("t", "u"):
            await opened(backend, name)
            await ran(backend, name)
        assert [node_of(backend, name) for name in ("t", "u")] == ["cpu-0", "cpu-1"]
    async with a_life(path, machines, nodes=1) as backend:
        assert (await ran(backend, "t")).outcome is Outcome.SUCCEEDED
        assert backend.orchestrator.status().nodes[0].node == "cpu-0"
        async with asyncio.timeout(PATIENCE_S):
            await backend.orchestrator.close(TrajectoryId("t"))


async def test_a_node_that_may_come_back_after_a_restart_is_suspect(tmp_path, machines):
    path = tmp_path / "journal.sqlite"
    async with a_life(path, machines, nodes=2) as backend:
        for name in ("t", "u"):
            await opened(backend, name)
            await ran(backend, name)
    async with a_life(path, machines, nodes=1, awaits_nodes=True) as backend:
        await backend.orchestrator.written()
        first, second = (await backend.status()).nodes
        assert (first.node, first.state, first.population.sandboxes) == ("cpu-0", "trusted", 1)
        assert (second.node, second.state, second.population) == ("cpu-1", "suspect", None)
        assert (second.cores, second.memory_used_mb, second.memory_mb) == (2, 3000, 4096)


async def test_a_drained_node_gets_no_new_trajectory_and_goes_when_it_is_empty(tmp_path, machines):
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=2) as backend:
        orchestrator = backend.orchestrator
        await opened(backend, "t")
        await ran(backend, "t")
        assert node_of(backend, "t") == "cpu-0"
        with pytest.raises(BadInput, match="this cluster has no 'cpu-9'"):
            orchestrator.drain_node(NodeId("cpu-9"))
        orchestrator.drain_node(NodeId("cpu-0"))
        await opened(backend, "u")
        assert [n.state for n in (await backend.status()).nodes] == ["draining", "trusted"]
        assert (await ran(backend, "u")).outcome is Outcome.SUCCEEDED
        assert (await ran(backend, "t")).outcome is Outcome.SUCCEEDED
        assert node_of(backend, "u") == "cpu-1"
        async with asyncio.timeout(PATIENCE_S):
            await orchestrator.close(TrajectoryId("t"))
            while "cpu-0" in orchestrator.nodes:
                await orchestrator.written()
        assert list(orchestrator.nodes) == ["cpu-1"]


async def test_an_undrained_node_takes_trajectories_again(tmp_path, machines):
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=1) as backend:
        await opened(backend, "t")
        await ran(backend, "t")
        backend.orchestrator.drain_node(NodeId("cpu-0"))
        backend.orchestrator.drain_node(NodeId("cpu-0"), is_on=False)
        await backend.orchestrator.written()
        assert [n.state for n in (await backend.status()).nodes] == ["trusted"]
        async with asyncio.timeout(PATIENCE_S):
            await backend.orchestrator.close(TrajectoryId("t"))
        await opened(backend, "u")
        assert (await ran(backend, "u")).outcome is Outcome.SUCCEEDED


async def test_a_trajectory_that_rests_too_long_is_closed(tmp_path, machines):
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=1) as backend:
        await backend.open(Opening(trajectory=TrajectoryId("t"), idle_s=0.2))
        assert (await ran(backend, "t")).outcome is Outcome.SUCCEEDED
        live = backend.orchestrator.ledger.trajectories[TrajectoryId("t")]
        async with asyncio.timeout(PATIENCE_S):
            while live.closing is None:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
            await live.closing
        with pytest.raises(BadInput, match="'t' is not open"):
            await ran(backend, "t")


def test_a_limit_is_a_time() -> None:
    with pytest.raises(BadInput, match="idle_s: 0 is not a time limit; give seconds above 0"):
        Opening(trajectory=TrajectoryId("t"), idle_s=0)


async def test_a_name_is_found_on_the_node_that_used_it_last(tmp_path, machines):
    deps = SnapshotTerms(name="deps")
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=2) as backend:
        for name in ("t", "u"):
            await opened(backend, name)
            await ran(backend, name)
            taken = await backend.snapshot(TrajectoryId(name), deps)
        assert [(one.name, one.node) for one in await backend.snapshots()] == [("deps", "cpu-1")]
        place = SandboxSpec(source=Snapshot(name="deps"))
        await backend.open(Opening(trajectory=TrajectoryId("v"), place=place))
        assert (await ran(backend, "v")).outcome is Outcome.SUCCEEDED
        assert node_of(backend, "v") == taken.node == "cpu-1"
        await backend.forget(Snapshot(name="deps"))
        with pytest.raises(BadInput, match="snapshot: there is no 'deps'"):
            await backend.open(Opening(trajectory=TrajectoryId("w"), place=place))
        with pytest.raises(BadInput, match="snapshot: there is no 'deps' on cpu-0"):
            await backend.forget(Snapshot(name="deps", node="cpu-0"))


async def test_a_snapshot_of_a_node_that_is_gone_is_refused(tmp_path, machines):
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=1) as backend:
        place = SandboxSpec(source=Snapshot(name="s", node="cpu-9"))
        with pytest.raises(SandboxGone, match="cpu-9 was lost, and its snapshots with it"):
            await backend.open(Opening(trajectory=TrajectoryId("t"), place=place))
