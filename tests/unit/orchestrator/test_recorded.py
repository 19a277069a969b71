"""A live run, recorded as a trace, is the run that was."""

import asyncio

import pytest

from artangram.core.errors import BadInput
from artangram.core.policies.catalog import policy
from artangram.observe.journalmemory import MemoryJournal
from artangram.observe.journaltrace import trace_of
from artangram.observe.trace import Trace
from artangram.orchestrator.client import between
from artangram.sim.beliefs import Exact
from artangram.sim.driver import Simulation
from artangram.testing.fakes import FakeHouse, a_setup, fake_house

pytestmark = pytest.mark.looptime


def recorded(house: FakeHouse) -> Trace:
    assert isinstance(house.journal, MemoryJournal)
    return trace_of(house.journal.entries, name="live")


async def test_thinking_and_turns_are_found_again() -> None:
    async with fake_house() as house:
        await asyncio.sleep(5)
        async with house.trajectory(job="j", task="swe", memory_mb=100) as t:
            await asyncio.sleep(2)
            await t.run(["sleep", "3"], kind="a")
            await t.run(["sleep", "1"], kind="b")
            await asyncio.sleep(4)
            await t.run(["sleep", "9"], kind="c", timeout_s=5)
    (life,) = recorded(house).trajectories
    assert (life.job, life.task, life.memory_mb, life.arrive_s) == ("j", "swe", 100, 0.0)
    first, second = life.turns
    assert [action.kind for action in first.actions] == ["a", "b"]
    assert first.think_s == pytest.approx(2, abs=0.01)
    assert [action.work_s for action in first.actions] == pytest.approx([3, 1], abs=0.01)
    assert second.think_s == pytest.approx(4, abs=0.01)
    (cut,) = second.actions
    assert (cut.work_s, cut.timeout_s) == (pytest.approx(10), pytest.approx(5))


async def test_the_simulator_does_the_same_again() -> None:
    setup = a_setup(cores=4)
    linear = {"power": 1.0}
    async with fake_house(setup) as house:

        async def one(number: int) -> None:
            await asyncio.sleep(number)
            async with house.trajectory(id=f"t{number}") as t:
                await t.run(["sleep", "5"], cpu=between(1, 4), speedup=linear, kind="wide")
                await asyncio.sleep(1)
                await t.run(["sleep", "2"], kind="narrow")

        await asyncio.gather(*(one(number) for number in range(4)))
        took = house.orchestrator.status().uptime_s
    trace = recorded(house)
    simulation = Simulation(trace, setup.cluster, policy(setup.policy), Exact())
    simulation.run()
    assert simulation.tally.num_actions() == 8
    # A sleep does not get faster with its cores, a simulated action does: so nearly.
    assert simulation.now == pytest.approx(took, rel=0.25)


async def test_a_run_without_actions_is_no_trace() -> None:
    async with fake_house() as house:
        async with house.trajectory():
            pass
        with pytest.raises(BadInput, match="nothing in it ever ran"):
            recorded(house)
