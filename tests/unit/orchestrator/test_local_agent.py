"""What the agent in this process keeps apart."""

import asyncio

import pytest

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.lease import Cores, Lease
from artangram.core.records import Outcome
from artangram.managers.agent import Ended, Place, Run, RunId
from artangram.managers.local import LocalAgent
from artangram.sandbox import Command, FakeProvider, Output, SandboxError

pytestmark = pytest.mark.looptime

NODE = NodeId("cpu-0")


def a_run(name: str, *argv: str, core: int) -> Run:
    cores = Cores(Resource("cpu"), NODE, (core,))
    return Run(
        lease=Lease(action_id=ActionId(name), allocations=(cores,)),
        trajectory=TrajectoryId("t"),
        place=Place(),
        command=Command(argv=argv, cores=(core,)),
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


class Heard:
    """A listener that remembers how runs ended."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[ActionId, Outcome]] = []

    def on_ended(self, node: NodeId, ended: Ended) -> None:
        self.outcomes.append((ended.run.action_id, ended.outcome))

    def on_lost(self, node: NodeId, reason: str) -> None: ...

    def on_output(self, run: RunId, output: Output) -> None: ...


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
