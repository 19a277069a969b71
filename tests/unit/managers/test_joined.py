"""An agent that dialed in: what it tells while it is being attached is not lost."""

import asyncio
from typing import Any

from artangram.core.ids import ActionId, NodeId
from artangram.core.scheduling.action import Outcome
from artangram.managers import wire
from artangram.managers.agent import NodeInventory, RunId, RunResult
from artangram.managers.joined import JoinedAgent

RUN = RunId(ActionId("a"), 1)


class FakeLink:
    """Answers `Attach`; an end is told in the same packet as the answer."""

    def __init__(self, agent: JoinedAgent) -> None:
        self._agent = agent

    async def ask(self, *_: Any, **__: Any) -> NodeInventory:
        ended = RunResult(run=RUN, outcome=Outcome.SUCCEEDED)
        self._agent.on_tell(wire.RunEnded(ended, 0.5))
        return NodeInventory(incarnation="x", running=(RUN,))


class Ears:
    """A listener."""

    def __init__(self) -> None:
        self.ends: list[RunId] = []

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        self.ends.append(ended.run)

    def on_lost(self, node: NodeId, reason: str) -> None:
        raise AssertionError(reason)

    def on_output(self, *_: Any) -> None:
        raise AssertionError


async def test_an_end_that_arrives_with_the_inventory_is_found() -> None:
    now, ears = asyncio.get_running_loop().time, Ears()
    agent = JoinedAgent(NodeId("n"), "x", now=now, on_dropped=lambda _: None)
    agent.use(FakeLink(agent))  # type: ignore[arg-type]
    found = await agent.attach(ears)
    heard = [*ears.ends, *(ended.run for ended in found.ended)]
    assert heard == [RUN]
    assert found.running == ()
