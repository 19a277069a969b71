"""Sandboxes of an agent that sleep and wake, and those it keeps ready, for real."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from busy_machine import PATIENCE_S, eventually

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.lease import Cores, Lease
from artangram.managers.agent import Run, RunId, RunResult, SandboxSpec
from artangram.managers.local import LocalAgent
from artangram.sandbox import Command, NamespaceProvider, NotCapable, Output
from artangram.sandbox.namespace.sandbox import LocalSandbox

pytestmark = pytest.mark.asyncio(loop_scope="package")

NODE = NodeId("cpu-0")
ONE, TWO = TrajectoryId("one"), TrajectoryId("two")


class Guest:
    """Runs commands through an agent, one after the other."""

    def __init__(self, agent: LocalAgent) -> None:
        self.agent = agent
        self._ended: asyncio.Queue[RunResult] = asyncio.Queue()
        self._number = 0

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        self._ended.put_nowait(ended)

    def on_output(self, run: RunId, output: Output) -> None:
        raise AssertionError(run)

    def on_lost(self, node: NodeId, reason: str) -> None:
        raise AssertionError(reason)

    async def run(self, trajectory: TrajectoryId, *argv: str, keep: bool = False) -> bytes:
        self._number += 1
        lease = Lease(
            action_id=ActionId(str(self._number)),
            allocations=(Cores(Resource("cpu"), NODE, (0,)),),
        )
        command = Command(argv=argv, cores=(0,), keep=keep)
        run = Run(lease=lease, trajectory=trajectory, place=SandboxSpec(), command=command)
        self.agent.start(run)
        ended = await self._ended.get()
        assert ended.result is not None, ended.reason
        return ended.result.stdout


class Machine:
    """Has as much free memory as it is told, one figure after the other; the last one stays."""

    def __init__(self) -> None:
        self.figures = [1000]

    def free_mb(self) -> int:
        return self.figures.pop(0) if len(self.figures) > 1 else self.figures[0]


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest_asyncio.fixture(loop_scope="package")
async def boxes(state_dir: Path) -> NamespaceProvider:
    """The agent's own provider, which the agent closes."""
    try:
        return await NamespaceProvider.open(state_dir=state_dir)
    except NotCapable as problem:
        pytest.skip(str(problem))


@pytest_asyncio.fixture(loop_scope="package")
async def guest(boxes: NamespaceProvider, machine: Machine) -> AsyncIterator[Guest]:
    agent = LocalAgent(
        NODE, boxes, now=time.monotonic, warm=1, least_free_mb=100, free_mb=machine.free_mb
    )
    guest = Guest(agent)
    await agent.attach(guest)
    yield guest
    await agent.aclose()
    assert not boxes.live
    assert not boxes.run_path.exists()


async def test_sandbox_at_rest_sleeps_and_wakes_with_its_files(
    guest: Guest, machine: Machine, boxes: NamespaceProvider
) -> None:
    await guest.run(ONE, "sh", "-c", "echo kept > file; id -u > user")
    first = next(iter(boxes.live))
    machine.figures = [50]
    assert await guest.agent.relieve() == 1
    assert first not in boxes.live
    show = "cat file; test $(cat user) = $(id -u) && echo same"
    assert await guest.run(ONE, "sh", "-c", show) == b"kept\nsame\n"


async def test_files_of_a_sleeper_can_be_read_and_written(
    guest: Guest, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The agent's own look after a run would be first on a busy machine.
    monkeypatch.setattr("artangram.managers.memorywatch.LOOK_EVERY_S", 1000.0)
    await guest.run(ONE, "sh", "-c", "echo old > file")
    machine.figures = [50]
    assert await guest.agent.relieve() == 1
    assert await guest.agent.read(ONE, "file") == b"old\n"
    assert await guest.agent.relieve() == 1
    await guest.agent.write(ONE, "file", data=b"new")
    machine.figures = [1000]
    assert await guest.run(ONE, "cat", "file") == b"new"


async def test_one_with_kept_processes_stays_awake(guest: Guest, machine: Machine) -> None:
    await guest.run(ONE, "setsid", "-f", "sleep", "100", keep=True)
    machine.figures = [50]
    assert await guest.agent.relieve() == 0


async def test_the_longest_at_rest_goes_first_and_only_while_memory_is_short(
    guest: Guest, machine: Machine
) -> None:
    await guest.run(ONE, "true")
    await guest.run(TWO, "sh", "-c", "mkfifo pipe")  # A pipe does not survive sleep.
    await guest.run(ONE, "sh", "-c", "mkfifo pipe")
    assert await guest.agent.relieve() == 0
    machine.figures = [50, 200]
    assert await guest.agent.relieve() == 1
    show = ("sh", "-c", "test -p pipe && echo pipe")
    assert await guest.run(ONE, *show) == b"pipe\n"
    assert await guest.run(TWO, *show) == b""


async def test_one_that_cannot_be_put_to_sleep_keeps_nobody_awake(
    guest: Guest, machine: Machine
) -> None:
    dig = "import os\nfor _ in range(200): os.mkdir('d'); os.chdir('d')"
    await guest.run(ONE, "python3", "-I", "-S", "-c", dig)
    await guest.run(TWO, "true")
    machine.figures = [50]
    assert await guest.agent.relieve() == 1
    assert (await guest.agent.ping()).hibernated == 1
    assert await guest.run(ONE, "echo", "awake") == b"awake\n"


async def test_short_memory_is_noticed_at_the_end_of_a_run(
    guest: Guest, machine: Machine, boxes: NamespaceProvider
) -> None:
    await guest.run(ONE, "true")
    first = boxes.live[next(iter(boxes.live))]
    machine.figures = [50]
    await guest.run(TWO, "true")
    await asyncio.wait_for(first.ended.wait(), PATIENCE_S)


async def test_closing_a_sleeper_leaves_no_files(
    guest: Guest, machine: Machine, boxes: NamespaceProvider
) -> None:
    await guest.run(ONE, "true")
    machine.figures = [50]
    await guest.agent.relieve()
    shelf = boxes.run_path / "snapshots" / "layers"
    assert os.listdir(shelf)
    await guest.agent.close(ONE)
    assert await eventually(lambda: not os.listdir(shelf))


async def test_the_second_of_a_kind_was_ready_before_it_was_asked_for(
    guest: Guest, boxes: NamespaceProvider
) -> None:
    await guest.run(ONE, "touch", "one")
    assert await eventually(lambda: len(boxes.live) == 2)
    (ready,) = [box for box in boxes.live.values() if not await has(box, "one")]
    await guest.run(TWO, "touch", "two")
    assert await has(ready, "two")


async def has(sandbox: LocalSandbox, name: str) -> bool:
    """Once it is ready: does it have this file?"""
    try:
        await sandbox.read(name)
    except FileNotFoundError:
        return False
    return True
