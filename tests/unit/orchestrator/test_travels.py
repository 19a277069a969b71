"""Snapshots travel to where their siblings live, and away from nodes that leave."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S
from many_nodes import Machines, a_life, node_of, opened, ran

from artangram.core.ids import NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.managers.agent import SandboxSpec, SnapshotArchive
from artangram.managers.archives import LocalArchives
from artangram.orchestrator import travels
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.records import Opening
from artangram.sandbox import SandboxError, SandboxGone
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import HELD, SnapshotTerms


@pytest.fixture
async def machines() -> AsyncIterator[Machines]:
    machines = Machines()
    yield machines
    await machines.aclose()


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The snapshots that were packed, in order."""
    names: list[str] = []
    pack = LocalArchives.pack

    async def counted(self: LocalArchives, snapshot: Snapshot) -> SnapshotArchive:
        names.append(snapshot.name)
        return await pack(self, snapshot)

    monkeypatch.setattr(LocalArchives, "pack", counted)
    return names


async def a_snapshot(backend: Embedded, name: str = "t") -> Snapshot:
    """Of a trajectory with a note, which stays open."""
    await opened(backend, name)
    await ran(backend, name)
    await backend.write(TrajectoryId(name), "note", data=b"kept")
    return await backend.snapshot(TrajectoryId(name), HELD)


async def a_sibling(backend: Embedded, source: Snapshot, name: str, memory_mb: int = 500) -> None:
    place = SandboxSpec(source=source)
    await backend.open(Opening(trajectory=TrajectoryId(name), memory_mb=memory_mb, place=place))


async def closed(backend: Embedded, *names: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for name in names:
            await backend.orchestrator.close(TrajectoryId(name))


async def until_gone(backend: Embedded, node: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while node in backend.orchestrator.nodes:
            await backend.orchestrator.written()


async def test_a_sibling_lives_where_the_snapshot_is_if_there_is_room(
    tmp_path: Path, machines: Machines, packed: list[str]
) -> None:
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=2) as backend:
        await a_snapshot(backend)
        source = await a_snapshot(backend, "u")
        assert source.node == "cpu-1"
        await closed(backend, "t", "u")
        await a_sibling(backend, source, "sibling")
        assert (await ran(backend, "sibling", "cat", "note")).outcome is Outcome.SUCCEEDED
        assert (node_of(backend, "sibling"), packed) == ("cpu-1", [])


async def test_a_snapshot_travels_once_to_each_node_that_needs_it(
    tmp_path: Path, machines: Machines, packed: list[str]
) -> None:
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=3) as backend:
        source = await a_snapshot(backend)
        names = [f"sibling-{number}" for number in range(8)]
        for name in names:
            await a_sibling(backend, source, name, memory_mb=1000)
        ended = await asyncio.gather(*(ran(backend, name, "cat", "note") for name in names))
        assert [one.command and one.command.stdout for one in ended] == [b"kept"] * 8
        assert {node_of(backend, name) for name in names} == {"cpu-0", "cpu-1", "cpu-2"}
        assert packed == [source.name] * 2
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=3) as backend:
        await closed(backend, "t", *names)
        await opened(backend, "fills")
        await ran(backend, "fills")  # The next process knows which nodes have the snapshot.
        await a_sibling(backend, source, "sibling", memory_mb=2000)
        assert (await ran(backend, "sibling", "cat", "note")).outcome is Outcome.SUCCEEDED
        assert packed == [source.name] * 2


async def test_a_sibling_of_a_draining_node_starts_elsewhere(
    tmp_path: Path, machines: Machines
) -> None:
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=2) as backend:
        source = await a_snapshot(backend)
        await backend.drain(NodeId("cpu-0"), is_on=True)
        await a_sibling(backend, source, "sibling")
        ended = await ran(backend, "sibling", "cat", "note")
        assert ended.command is not None
        assert (ended.command.stdout, node_of(backend, "sibling")) == (b"kept", "cpu-1")


async def test_a_node_that_leaves_brings_the_snapshots_of_live_groups_elsewhere(
    tmp_path: Path, machines: Machines, packed: list[str]
) -> None:
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=2) as backend:
        other = Opening(trajectory=TrajectoryId("other"), problem="p", memory_mb=3000)
        source = await a_snapshot(backend)
        await backend.open(other)
        await ran(backend, "other")
        assert (node_of(backend, "t"), node_of(backend, "other")) == ("cpu-0", "cpu-1")
        alien = Opening(trajectory=TrajectoryId("alien"), problem="q", memory_mb=500)
        await backend.open(alien)
        await ran(backend, "alien")
        assert node_of(backend, "alien") == "cpu-0"
        unneeded = await backend.snapshot(TrajectoryId("alien"), HELD)
        await opened(backend, "waits")  # Of the group of `t`; it has no node yet.
        await backend.drain(NodeId("cpu-0"), is_on=True)
        await closed(backend, "t", "alien")
        await until_gone(backend, "cpu-0")
        assert packed == [source.name]
        with pytest.raises(SandboxGone, match="cpu-0 was lost, and its snapshots with it"):
            await a_sibling(backend, unneeded, "late")
        await a_sibling(backend, source, "sibling")
        ended = await ran(backend, "sibling", "cat", "note")
        assert ended.command is not None
        assert (ended.command.stdout, node_of(backend, "sibling")) == (b"kept", "cpu-1")


async def test_a_node_stays_while_no_other_can_take_what_is_needed(
    tmp_path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(travels, "RETRY_S", 0.01)
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=1) as backend:
        await a_snapshot(backend)
        await opened(backend, "waits")
        await backend.drain(NodeId("cpu-0"), is_on=True)
        await closed(backend, "t")
        await asyncio.sleep(0.1)
        assert [node.state for node in (await backend.status()).nodes] == ["draining"]
        await closed(backend, "waits")  # The last one of the group.
        await until_gone(backend, "cpu-0")


async def test_a_snapshot_that_cannot_travel_fails_what_waits_for_it(
    tmp_path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: LocalArchives, snapshot: Snapshot) -> SnapshotArchive:
        raise SandboxError("its disk is broken")

    monkeypatch.setattr(LocalArchives, "pack", broken)
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=2) as backend:
        source = await a_snapshot(backend)
        await backend.drain(NodeId("cpu-0"), is_on=True)
        await a_sibling(backend, source, "sibling")
        ended = await ran(backend, "sibling")
        assert ended.outcome is Outcome.INFRA_FAILED
        assert "could not be brought to cpu-1: its disk is broken" in ended.record.reason


async def test_an_action_that_is_cancelled_while_its_snapshot_travels_ends_once(
    tmp_path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrives, pack = asyncio.Event(), LocalArchives.pack

    async def slowly(self: LocalArchives, snapshot: Snapshot) -> SnapshotArchive:
        await arrives.wait()
        return await pack(self, snapshot)

    monkeypatch.setattr(LocalArchives, "pack", slowly)
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=2) as backend:
        source = await a_snapshot(backend)
        await backend.drain(NodeId("cpu-0"), is_on=True)
        await a_sibling(backend, source, "sibling")
        running = asyncio.create_task(ran(backend, "sibling", "sleep", "100"))
        await asyncio.sleep(0.1)
        closing = asyncio.create_task(closed(backend, "sibling"))
        await asyncio.sleep(0.1)
        arrives.set()
        assert (await running).outcome is Outcome.CANCELLED
        await closing


async def test_a_name_that_moved_is_copied_again(
    tmp_path: Path, machines: Machines, packed: list[str]
) -> None:
    terms, source = SnapshotTerms(name="deps"), Snapshot(name="deps")
    async with a_life(tmp_path / "journal.sqlite", machines, nodes=2) as backend:
        await a_snapshot(backend)
        for content in (b"1", b"2"):
            await backend.drain(NodeId("cpu-0"), is_on=False)
            await backend.write(TrajectoryId("t"), "note", data=content)
            await backend.snapshot(TrajectoryId("t"), terms)
            await backend.drain(NodeId("cpu-0"), is_on=True)
            for number in range(2):
                name = f"sibling-{number}"
                await a_sibling(backend, source, name)
                ended = await ran(backend, name, "cat", "note")
                assert ended.command is not None
                assert (ended.command.stdout, node_of(backend, name)) == (content, "cpu-1")
                await closed(backend, name)
        assert packed == ["deps"] * 2
        await closed(backend, "t")
        await until_gone(backend, "cpu-0")
        assert [one.node for one in await backend.snapshots()] == ["cpu-1"]
