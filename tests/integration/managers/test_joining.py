"""Machines that join a cluster over TCP and TLS, and what a bad network costs them: nothing."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S
from joining_world import NODE, JoiningWorld, a_joining_world, joined
from msgspec import structs

from artangram.core.ids import ActionId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.link import LinkRefused
from artangram.managers.agent import AgentGone
from artangram.managers.joining import JoiningAgent
from artangram.managers.local import LocalAgent
from artangram.sandbox import FakeProvider
from conformance.test_agent import Heard, a_run

T = TrajectoryId("t")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[JoiningWorld]:
    async with a_joining_world(tmp_path) as world:
        yield world


async def test_a_reset_costs_nothing(world: JoiningWorld) -> None:
    async with joined(world, world.machine()) as agent:
        heard = Heard()
        await agent.attach(heard)
        agent.start(a_run("long", "sleep", "0.5"))
        await asyncio.sleep(0.1)
        world.relay.reset()
        await world.heard.until("suspect", "trusted")
        ended = await heard.next()
        assert (ended.run.action_id, ended.outcome) == ("long", Outcome.SUCCEEDED)
        assert len(world.lives) == 1
        assert heard.lost.empty()


async def test_an_agent_that_is_let_go_joins_again_and_one_that_is_dismissed_does_not(
    world: JoiningWorld,
) -> None:
    machine = world.machine()
    running = asyncio.create_task(machine.run())
    async with asyncio.timeout(PATIENCE_S):
        first = await world.heard.next()
        await first.aclose()
        second = await world.heard.next()
        assert second.incarnation != first.incarnation
        await second.dismiss()
        await running
    assert machine.is_dismissed
    assert len(world.lives) == 2


async def test_the_name_of_a_dismissed_node_is_free_for_another_machine(
    world: JoiningWorld,
) -> None:
    running = asyncio.create_task(world.machine().run())
    await (await world.heard.next()).dismiss()
    await running
    world.identity = structs.replace(world.identity, machine="machine-2")
    async with joined(world, world.machine()) as agent:
        assert agent.is_connected


async def test_what_ended_during_a_glitch_is_told_once_after_it(world: JoiningWorld) -> None:
    async with joined(world, world.machine()) as agent:
        heard = Heard()
        await agent.attach(heard)
        agent.start(a_run("a", "sleep", "0.2"))
        await asyncio.sleep(0.05)
        world.relay.cut()
        await world.heard.until("suspect")
        world.relay.reset()
        world.relay.heal()
        assert (await heard.next()).run.action_id == "a"
        agent.start(a_run("b", "true"))
        assert (await heard.next()).run.action_id == "b"
        assert heard.ended.empty()


async def test_what_is_told_while_the_link_is_down_is_made_up_for(world: JoiningWorld) -> None:
    async with joined(world, world.machine()) as agent:
        heard = Heard()
        await agent.attach(heard)
        agent.start(a_run("stopped", "sleep", "100"))
        await asyncio.sleep(0.05)
        world.relay.reset()
        await world.heard.until("suspect")
        agent.start(a_run("started", "echo", "hi", trajectory=TrajectoryId("u")))
        agent.stop(ActionId("stopped"))
        reading = asyncio.create_task(agent.ping())
        ends = {(await heard.next()).run.action_id: None for _ in range(2)}
        assert set(ends) == {"stopped", "started"}
        assert (await reading).sandboxes == 2


async def test_an_agent_that_is_cut_off_ends_everything_before_its_node_is_lost(
    world: JoiningWorld,
) -> None:
    async with joined(world, world.machine()) as agent:
        heard = Heard()
        await agent.attach(heard)
        agent.start(a_run("a", "sleep", "100"))
        await asyncio.sleep(0.05)
        world.relay.cut()
        async with asyncio.timeout(PATIENCE_S):
            assert "fence" in await heard.lost.get()
        assert world.lives[0].inventory().running == ()
        with pytest.raises(AgentGone):
            await agent.ping()
        world.relay.heal()
        again = await world.heard.next()
        assert again.incarnation != agent.incarnation
        assert (await again.attach(heard)).trajectories == ()


async def test_a_machine_that_stops_is_gone_at_once(world: JoiningWorld) -> None:
    async with joined(world, world.machine()) as agent:
        heard = Heard()
        await agent.attach(heard)
    again = asyncio.create_task(world.machine().run())
    assert (await world.heard.next()).incarnation != agent.incarnation
    assert "started anew" in await heard.lost.get()
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again


async def test_a_wrong_token_is_refused_with_one_sentence(world: JoiningWorld) -> None:
    with pytest.raises(LinkRefused, match="the join token is wrong; copy it"):
        await world.machine(token="guess").run()


async def test_the_token_is_not_sent_to_another_orchestrator(world: JoiningWorld) -> None:
    with pytest.raises(LinkRefused, match="has the fingerprint sha256:"):
        await world.machine(fingerprint="sha256:" + "0" * 64).run()


async def test_two_machines_cannot_have_one_name(world: JoiningWorld) -> None:
    async with joined(world, world.machine()):
        world.identity = structs.replace(world.identity, machine="machine-2")
        with pytest.raises(LinkRefused, match="another --node"):
            await world.machine().run()


async def test_a_machine_that_claims_the_incarnation_of_another_is_refused(
    world: JoiningWorld,
) -> None:
    async with joined(world, world.machine()) as agent:

        async def a_liar() -> LocalAgent:
            made = LocalAgent(NODE, FakeProvider(), now=time.monotonic)
            made.incarnation = agent.incarnation
            return made

        identity = structs.replace(world.identity, machine="machine-2")
        with pytest.raises(LinkRefused, match="joined from another machine under the same"):
            await JoiningAgent(world.target, identity, a_liar, silence_s=0.3).run()
        assert agent.is_connected
