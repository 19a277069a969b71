"""What every agent in a process of its own promises about function calls on its node."""

# ruff: noqa: ASYNC110 - other processes tell by files

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from busy_machine import PATIENCE_S
from joining_world import NODE, a_joining_world, joined

from artangram.core.errors import CallFailed, InfraFailed
from artangram.functions import Function
from artangram.managers.local import LocalAgent
from artangram.managers.remote import RemoteAgent, spawn
from artangram.sandbox import FakeProvider
from integration.functions import subjects


class Silent:
    """A listener of an agent that runs nothing."""

    def on_ended(self, *_: Any) -> None: ...

    def on_lost(self, *_: Any) -> None: ...

    def on_output(self, *_: Any) -> None: ...


@asynccontextmanager
async def remote_agent(tmp_path: Path) -> AsyncIterator[RemoteAgent]:
    options = ("--provider", "fake", "--grace-s", "5", "--function-slots", "2")
    agent = await spawn(NODE, tmp_path / "agent.sock", now=time.time, options=options)
    await agent.attach(Silent())
    yield agent
    await agent.aclose()


@asynccontextmanager
async def joined_agent(tmp_path: Path) -> AsyncIterator[RemoteAgent]:
    async with (
        a_joining_world(tmp_path, fence_s=60.0, silence_s=30.0) as world,
        joined(world, world.machine(silence_s=30.0)) as agent,
    ):
        await agent.attach(Silent())
        yield agent


@pytest.fixture(params=[remote_agent, joined_agent], ids=lambda maker: maker.__name__)
async def agent(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RemoteAgent]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    async with request.param(tmp_path) as agent:
        yield agent


async def called(agent: RemoteAgent, function: Function[..., Any], *args: object) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        body = await agent.functions.call(function.spec, function.encode(*args))
    return function.decode(body)


async def test_a_call_is_answered(agent: RemoteAgent) -> None:
    begun = asyncio.Event()
    body = subjects.add.encode(1, 2)
    answer = await agent.functions.call(subjects.add.spec, body, on_begun=begun.set)
    assert (subjects.add.decode(answer), begun.is_set()) == (3, True)
    assert await asyncio.gather(*(called(agent, subjects.add, n, n) for n in range(8))) == [
        2 * n for n in range(8)
    ]


async def test_what_a_function_raises_reaches_its_caller(agent: RemoteAgent) -> None:
    with pytest.raises(CallFailed, match="not today"):
        await called(agent, subjects.fail, "not today")


async def test_a_call_that_is_cancelled_ends(agent: RemoteAgent, tmp_path: Path) -> None:
    never = tmp_path / "never"
    waiting = [asyncio.create_task(called(agent, subjects.wait_for, str(never))) for _ in range(2)]
    await asyncio.sleep(0.3)
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    assert await called(agent, subjects.add, 1) == 2  # A slot is free again.


async def test_a_node_without_slots_says_so(tmp_path: Path) -> None:
    agent = LocalAgent(NODE, FakeProvider(), now=time.time)
    with pytest.raises(InfraFailed, match="no function slots"):
        await agent.calls.begin("a", subjects.add.spec, subjects.add.encode(1), hedged=False)
    with pytest.raises(InfraFailed, match="does not know the call"):
        await agent.calls.answer("a")
    await agent.aclose()


async def test_a_link_that_breaks_begins_no_call_twice(tmp_path: Path) -> None:
    folder, go = tmp_path / "begun", tmp_path / "go"
    folder.mkdir()
    stuck, waits = subjects.stuck_once, subjects.wait_for
    async with (
        a_joining_world(tmp_path, fence_s=60.0, silence_s=30.0) as world,
        joined(world, world.machine(silence_s=30.0)) as agent,
    ):
        await agent.attach(Silent())
        call = agent.functions.call
        never = asyncio.create_task(call(stuck.spec, stuck.encode(str(folder))))
        later = asyncio.create_task(call(waits.spec, waits.encode(str(go))))
        async with asyncio.timeout(PATIENCE_S):
            while not list(folder.iterdir()):
                await asyncio.sleep(0.02)
        for _ in range(3):
            world.relay.reset()
            await asyncio.sleep(0.3)
        go.touch()
        async with asyncio.timeout(PATIENCE_S):
            await later
        assert len(list(folder.iterdir())) == 1
        never.cancel()
        await asyncio.wait({never})
