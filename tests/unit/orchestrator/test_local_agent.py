"""What the agent in this process keeps apart."""

import asyncio

import pytest

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.lease import Cores, Lease
from artangram.managers.agent import Place, Run
from artangram.managers.local import LocalAgent
from artangram.sandbox import Command, FakeProvider

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
