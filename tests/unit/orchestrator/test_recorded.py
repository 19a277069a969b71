"""A live run, recorded as a trace, is the run that was."""

import asyncio

import pytest

from artangram.core.errors import BadInput
from artangram.core.ids import Resource, ServiceId
from artangram.core.scheduling.cluster import ClusterSpec, QuotaSpec, ServiceSpec
from artangram.core.scheduling.events import ServiceDeployed
from artangram.core.scheduling.lease import Lease
from artangram.core.scheduling.policies.catalog import policy
from artangram.managers.call import ApiCall, Call, CallResult
from artangram.managers.calls import CallProgress
from artangram.observe.journal import Entry
from artangram.observe.journalmemory import MemoryJournal
from artangram.observe.journaltrace import deployed_in, trace_of
from artangram.observe.trace import Trace
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.options import between
from artangram.orchestrator.recovery import Setup
from artangram.sandbox.fake import Console
from artangram.sim.beliefs import ExactBeliefs
from artangram.sim.driver import Simulation
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster

pytestmark = pytest.mark.looptime


def recorded(client: FakeCluster) -> Trace:
    assert isinstance(client.journal, MemoryJournal)
    return trace_of(client.journal.entries, name="live")


async def test_thinking_and_turns_are_found_again() -> None:
    async with fake_cluster() as client:
        await asyncio.sleep(5)
        async with client.trajectory(job="j", task="swe", memory_mb=100) as t:
            await asyncio.sleep(2)
            await t.run(["sleep", "3"], kind="a")
            await t.run(["sleep", "1"], kind="b")
            await asyncio.sleep(4)
            await t.run(["sleep", "9"], kind="c", timeout_s=5)
    (life,) = recorded(client).trajectories
    assert (life.job, life.task, life.memory_mb, life.arrive_s) == ("j", "swe", 100, 0.0)
    first, second = life.turns
    assert [action.kind for action in first.actions] == ["a", "b"]
    assert first.think_s == pytest.approx(2, abs=0.01)
    assert [action.work_s for action in first.actions] == pytest.approx([3, 1], abs=0.01)
    assert second.think_s == pytest.approx(4, abs=0.01)
    (cut,) = second.actions
    assert (cut.work_s, cut.timeout_s) == (pytest.approx(10), pytest.approx(5))


async def test_a_name_given_again_is_told_apart() -> None:
    async with fake_cluster() as client:
        for kind in ("first", "second", "third"):
            async with client.trajectory(id="t", memory_mb=100) as t:
                await t.run(["sleep", "1"], kind=kind)
    lives = recorded(client).trajectories
    assert [life.trajectory for life in lives] == ["t", "t-2", "t-3"]
    assert [life.turns[0].actions[0].kind for life in lives] == ["first", "second", "third"]


async def test_the_simulator_does_the_same_again() -> None:
    setup = a_setup(cores=4)
    linear = {"power": 1.0}
    async with fake_cluster(setup) as client:

        async def one(number: int) -> None:
            await asyncio.sleep(number)
            async with client.trajectory(id=f"t{number}") as t:
                await t.run(["sleep", "5"], cpu=between(1, 4), speedup=linear, kind="wide")
                await asyncio.sleep(1)
                await t.run(["sleep", "2"], kind="narrow")

        await asyncio.gather(*(one(number) for number in range(4)))
        took = client.orchestrator.status().uptime_s
    trace = recorded(client)
    simulation = Simulation(trace, setup.cluster, policy(setup.policy), ExactBeliefs())
    simulation.run()
    assert simulation.tally.num_actions() == 8
    # A sleep does not get faster with its cores, a simulated action does: so nearly.
    assert simulation.now == pytest.approx(took, rel=0.25)


async def test_standing_aside_is_no_work() -> None:
    linear = {"power": 1.0}
    async with (
        fake_cluster(a_setup(cores=2)) as client,
        client.trajectory(id="long") as long,
        client.trajectory(id="one") as one,
        client.trajectory(id="two") as two,
    ):

        async def tool(t: TrajectoryHandle) -> None:
            await asyncio.sleep(3)
            await t.run(["sleep", "2"], kind="tool")

        suite = long.run(["sleep", "10"], cpu=between(1, 2), speedup=linear, kind="test")
        await asyncio.gather(suite, tool(one), tool(two))
    (life,) = [life for life in recorded(client).trajectories if life.trajectory == "long"]
    ((action,),) = [turn.actions for turn in life.turns]
    # Twice as fast on two cores, for eight of ten seconds.
    assert action.work_s == pytest.approx(16.0, abs=0.2)


async def test_standing_aside_is_no_work_of_an_action_that_is_not_elastic_either() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory(id="long") as long,
        client.trajectory(id="short") as short,
    ):

        async def tool() -> None:
            await asyncio.sleep(30)
            await short.run(["sleep", "2"], kind="tool", work_s=2.0)

        await asyncio.gather(long.run(["sleep", "60"], kind="test", work_s=60.0), tool())
    (life,) = [life for life in recorded(client).trajectories if life.trajectory == "long"]
    ((action,),) = [turn.actions for turn in life.turns]
    assert action.work_s == pytest.approx(58.0, abs=0.2)


async def test_what_failed_fails_again_as_late() -> None:
    async def crash(console: Console, argv: tuple[str, ...]) -> int:
        await asyncio.sleep(float(argv[1]))
        return 1

    setup = a_setup(cores=1)
    async with fake_cluster(setup, programs={"crash": crash}) as client, client.trajectory() as t:
        await t.run(["crash", "3"], kind="rigid")
        await t.run(["crash", "5"], cpu=between(1, 4), kind="elastic")
        await t.run(["sleep", "1"], kind="fine")
    trace = recorded(client)
    (life,) = trace.trajectories
    ((*failed, fine),) = (turn.actions for turn in life.turns)
    assert [action.fail_at_s for action in failed] == pytest.approx([3, 5], abs=0.01)
    assert fine.fail_at_s is None
    simulation = Simulation(trace, setup.cluster, policy(setup.policy), ExactBeliefs())
    simulation.run()
    assert simulation.tally.failed == 2
    assert simulation.now == pytest.approx(9, abs=0.05)


class _Slow:
    """Answers every call after two seconds."""

    async def carry_out(self, lease: Lease, call: Call, *, progress: CallProgress) -> CallResult:
        progress.began()
        await asyncio.sleep(2)
        return CallResult(body=b"", status=200)

    async def aclose(self) -> None:
        return


async def test_calls_without_a_trajectory_arrive_when_they_were_made() -> None:
    pools = {Resource("search"): QuotaSpec(concurrency=1), **a_setup().cluster.pools}
    setup = Setup(cluster=ClusterSpec(pools=pools))
    async with fake_cluster(setup, carriers={ApiCall: _Slow()}) as client:

        async def call_at(at: float) -> None:
            await asyncio.sleep(at)
            await client.api("search").get("/x", job="finder", task="qa")

        await asyncio.gather(*(call_at(at) for at in (1, 2, 8)))
    trace = recorded(client)
    assert [one.arrive_s for one in trace.trajectories] == pytest.approx([0, 1, 7], abs=0.01)
    assert {(one.job, one.task, one.memory_mb) for one in trace.trajectories} == {
        ("finder", "qa", 0)
    }
    works = [turn.actions[0].work_s for one in trace.trajectories for turn in one.turns]
    assert works == pytest.approx([2, 2, 2], abs=0.01)
    simulation = Simulation(trace, setup.cluster, policy(setup.policy), ExactBeliefs())
    simulation.run()
    assert (simulation.tally.num_actions(), simulation.now) == (3, pytest.approx(9, abs=0.05))


async def test_services_that_were_deployed_meanwhile_are_known() -> None:
    spec = ServiceSpec(pool=Resource("gpu"), weights_mb=10)
    event = ServiceDeployed(ServiceId("judge"), spec)
    assert deployed_in([Entry(at=1.0, events=(event,), decisions=())]) == {"judge": spec}


async def test_a_run_without_actions_is_no_trace() -> None:
    async with fake_cluster() as client:
        async with client.trajectory():
            pass
        with pytest.raises(BadInput, match="nothing in it ever ran"):
            recorded(client)
