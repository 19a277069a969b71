"""What the agent in this process keeps apart."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.lease import Cores, Lease
from artangram.managers.agent import Population, Run, RunId, RunResult, SandboxSpec
from artangram.managers.local import LocalAgent
from artangram.sandbox import Command, FakeProvider, Output, SandboxError, Snapshot
from artangram.sandbox.fake import Console, FakeSandbox

pytestmark = pytest.mark.looptime

NODE = NodeId("cpu-0")


def a_run(name: str, *argv: str, core: int = 0, keep: bool = False, where: str = "t") -> Run:
    cores = Cores(Resource("cpu"), NODE, (core,))
    return Run(
        lease=Lease(action_id=ActionId(name), allocations=(cores,)),
        trajectory=TrajectoryId(where),
        place=SandboxSpec(),
        command=Command(argv=argv, cores=(core,), keep=keep),
    )


async def test_a_waiting_run_is_resized_without_touching_the_running_one() -> None:
    provider = FakeProvider()
    agent = LocalAgent(NODE, provider, now=asyncio.get_running_loop().time)
    agent.start(a_run("first", "sleep", "10", core=0))
    agent.start(a_run("second", "sleep", "10", core=1))
    await asyncio.sleep(1)
    (sandbox,) = provider.live
    agent.resize(ActionId("second"), (2, 3))
    await asyncio.sleep(1)
    assert sandbox.cores == (0,)
    await asyncio.sleep(10)
    assert sandbox.cores == (2, 3)
    await agent.aclose()
    assert not provider.live


async def test_cores_of_a_run_that_ends_just_then_are_not_given_to_the_next() -> None:
    loop = asyncio.get_running_loop()
    is_over: asyncio.Future[int] = loop.create_future()

    async def wait(console: Console, argv: tuple[str, ...]) -> int:
        return await is_over

    provider = FakeProvider(programs={"wait": wait})
    agent = LocalAgent(NODE, provider, now=loop.time)
    agent.start(a_run("first", "true"))
    await asyncio.sleep(1)
    await agent.attach(Next(agent, a_run("next", "sleep", "10", core=1)))
    agent.start(a_run("wait", "wait", core=0))
    await asyncio.sleep(1)
    is_over.set_result(0)
    loop.call_soon(agent.resize, ActionId("wait"), (2, 3))
    await asyncio.sleep(1)
    (sandbox,) = provider.live
    assert sandbox.cores == (1,)
    await agent.aclose()


class TestTimeLimits:
    """They pass at the pace of the lease."""

    async def a_limited_agent(self, *, pace: float, warm: bool) -> tuple[LocalAgent, "EndsHeard"]:
        agent = LocalAgent(NODE, FakeProvider(), now=asyncio.get_running_loop().time)
        heard = EndsHeard()
        await agent.attach(heard)
        if warm:  # Its sandbox is at hand then, and the run begins at once.
            agent.start(a_run("first", "true"))
            await asyncio.sleep(1)
            heard.ends.clear()
        run = a_run("a", "sleep", "100")
        lease = structs.replace(run.lease, pace=pace)
        assert run.command is not None
        command = structs.replace(run.command, timeout_s=1000.0)
        agent.start(structs.replace(run, lease=lease, command=command, limit_s=10.0))
        return agent, heard

    @pytest.mark.parametrize("warm", [True, False])
    async def test_on_half_of_the_cores_it_has_twice_as_long(self, warm: bool) -> None:
        agent, heard = await self.a_limited_agent(pace=0.5, warm=warm)
        await asyncio.sleep(19)
        assert heard.ends == []
        await asyncio.sleep(2)
        (end,) = heard.ends
        assert (end.outcome, end.reason) == (Outcome.TIMED_OUT, "it ran longer than 10 s")
        assert end.result is not None
        assert end.result.timed_out
        await agent.aclose()

    async def test_while_it_is_preempted_its_limit_does_not_pass(self) -> None:
        agent, heard = await self.a_limited_agent(pace=1.0, warm=True)
        await asyncio.sleep(4)
        agent.resize(ActionId("a"), (), pace=0.0)
        await asyncio.sleep(50)
        agent.resize(ActionId("a"), (1,), pace=1.0)
        await asyncio.sleep(5)
        assert heard.ends == []
        await asyncio.sleep(2)
        assert [end.outcome for end in heard.ends] == [Outcome.TIMED_OUT]
        await agent.aclose()

    async def test_one_that_ends_in_time_is_not_stopped_later(self) -> None:
        agent, heard = await self.a_limited_agent(pace=0.05, warm=True)
        await asyncio.sleep(250)
        assert [end.outcome for end in heard.ends] == [Outcome.SUCCEEDED]
        await agent.aclose()


class EndsHeard:
    """A listener that keeps the ends it is told."""

    def __init__(self) -> None:
        self.ends: list[RunResult] = []

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        self.ends.append(ended)

    def on_output(self, run: RunId, piece: Output) -> None:
        pass

    def on_lost(self, node: NodeId, reason: str) -> None:
        pass


async def test_what_is_at_rest_makes_room_for_what_runs_long() -> None:
    free_mb = 1000
    agent = LocalAgent(
        NODE,
        FakeProvider(),
        now=asyncio.get_running_loop().time,
        least_free_mb=100,
        free_mb=lambda: free_mb,
    )
    for name in ("old", "young", "old"):
        agent.start(a_run(name, "true", where=name))
        await asyncio.sleep(1)
    agent.start(a_run("long", "sleep", "1000", where="long"))
    await asyncio.sleep(10)
    assert (await agent.ping()).hibernated == 0
    free_mb = 50
    await asyncio.sleep(1)
    assert await agent.ping() == Population(sandboxes=3, hibernated=2)
    await agent.aclose()


async def test_who_was_used_longest_ago_sleeps_first() -> None:
    free_mb = iter([50, 50, *[1000] * 100])
    agent = LocalAgent(
        NODE,
        provider := FakeProvider(),
        now=asyncio.get_running_loop().time,
        least_free_mb=100,
        free_mb=lambda: next(free_mb),
    )
    agent.start(a_run("first", "true", where="first"))
    await asyncio.sleep(0.01)
    (first,) = provider.live
    for name in ("second", "first"):
        agent.start(a_run(name, "true", where=name))
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    assert provider.live == {first}
    await agent.aclose()


async def test_who_runs_again_while_others_fall_asleep_stays_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free_mb, heard, at_once = 1000, Heard(), FakeSandbox.snapshot

    async def slowly(sandbox: FakeSandbox) -> Snapshot:
        await asyncio.sleep(1)
        return await at_once(sandbox)

    monkeypatch.setattr(FakeSandbox, "snapshot", slowly)
    agent = LocalAgent(
        NODE,
        FakeProvider(),
        now=asyncio.get_running_loop().time,
        least_free_mb=100,
        free_mb=lambda: free_mb,
    )
    await agent.attach(heard)
    for name in ("first", "second", "third"):
        agent.start(a_run(name, "true", where=name))
        await asyncio.sleep(1)
    free_mb, relieving = 50, asyncio.create_task(agent.relieve())
    await asyncio.sleep(0.5)
    agent.start(a_run("long", "sleep", "10", where="second"))
    assert await relieving == 2
    assert await agent.ping() == Population(sandboxes=3, hibernated=2)
    await asyncio.sleep(10)
    assert heard.outcomes[-1] == ("long", Outcome.SUCCEEDED)
    await agent.aclose()


class Heard:
    """A listener that remembers how runs ended."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[ActionId, Outcome]] = []

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        self.outcomes.append((ended.run.action_id, ended.outcome))

    def on_lost(self, node: NodeId, reason: str) -> None: ...

    def on_output(self, run: RunId, output: Output) -> None: ...


class Next(Heard):
    """A listener that starts a run when another one has ended."""

    def __init__(self, agent: LocalAgent, run: Run) -> None:
        super().__init__()
        self._agent = agent
        self._run = run

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        if ended.run != self._run.id:
            self._agent.start(self._run)


async def test_what_runs_in_a_deaf_sandbox_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, heard = FakeProvider(), Heard()
    agent = LocalAgent(NODE, provider, now=asyncio.get_running_loop().time)
    await agent.attach(heard)
    agent.start(a_run("first", "true", core=0))
    await asyncio.sleep(1)
    agent.start(a_run("second", "sleep", "1000", core=0))
    (sandbox,) = provider.live
    with monkeypatch.context() as deaf:
        deaf.setattr(sandbox, "end_command", _refuse)
        agent.stop(ActionId("second"))
    await asyncio.sleep(1)
    assert heard.outcomes == [("first", Outcome.SUCCEEDED), ("second", Outcome.CANCELLED)]
    assert not provider.live
    await agent.aclose()


def _refuse() -> None:
    raise SandboxError("it does not take requests")


class Leaving:
    """A program that leaves a process to be kept, and is stopped at once when it is done."""

    def __init__(self) -> None:
        self.agent: LocalAgent | None = None

    def __call__(self, console: Console, argv: tuple[str, ...]) -> int:
        console.leftovers += 1
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._stop, ActionId(argv[1]))
        return 0

    def _stop(self, action_id: ActionId) -> None:
        assert self.agent is not None
        self.agent.stop(action_id)


class TestKeptProcesses:
    """Whoever has some stays awake, and nobody else, however the last run there ended."""

    @pytest.fixture
    async def agent(self) -> AsyncIterator[LocalAgent]:
        """Of a machine without memory."""
        leaving, now = Leaving(), asyncio.get_running_loop().time
        provider = FakeProvider(programs={"leaving": leaving})
        agent = LocalAgent(NODE, provider, now=now, least_free_mb=1, free_mb=lambda: 0)
        leaving.agent = agent
        yield agent
        await agent.aclose()

    async def ended(self, agent: LocalAgent, run: Run) -> Outcome:
        heard = Heard()
        await agent.attach(heard)
        agent.start(run)
        await asyncio.sleep(0.1)
        if not heard.outcomes:
            agent.stop(run.lease.action_id)
            await asyncio.sleep(0.01)
        ((_, outcome),) = heard.outcomes
        return outcome

    async def num_hibernated(self, agent: LocalAgent) -> int:
        await agent.relieve()
        return (await agent.ping()).hibernated

    async def test_a_stopped_run_takes_them_along(self, agent: LocalAgent) -> None:
        await self.ended(agent, a_run("a", "setsid", keep=True))
        assert await self.num_hibernated(agent) == 0
        assert await self.ended(agent, a_run("b", "sleep", "1000")) is Outcome.CANCELLED
        assert await self.num_hibernated(agent) == 1

    async def test_a_run_that_is_stopped_when_it_is_done_leaves_them(
        self, agent: LocalAgent
    ) -> None:
        await self.ended(agent, a_run("a", "true"))
        stopped = await self.ended(agent, a_run("b", "leaving", "b", keep=True))
        assert stopped is Outcome.CANCELLED
        assert await self.num_hibernated(agent) == 0

    async def test_a_program_that_does_not_start_leaves_them(self, agent: LocalAgent) -> None:
        await self.ended(agent, a_run("a", "setsid", keep=True))
        assert await self.ended(agent, a_run("b", "nowhere")) is Outcome.FAILED
        assert await self.num_hibernated(agent) == 0
