"""Many agents in one process that speak the protocol of real ones and run nothing.

`python -m artangram_bench.scale_agents PORT TOKEN COUNT CORES`: each joins at 127.0.0.1, ends every
run at once, keeps the names of its trajectories, and stays until its links end.
"""

import asyncio
import sys

from artangram.core.ids import NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.link import IncomingAsk, Link, LinkUser, dial_for
from artangram.managers import wire
from artangram.managers.agent import NodeInventory, Population, RunResult
from artangram.managers.machine import allow_open_files
from artangram.sandbox.protocol import CommandResult

MEMORY_MB = 1 << 20
RUN_S = 0.001
AT_ONCE = 50
"""Agents that dial at the same time."""


class FakeMachine(LinkUser[wire.Request]):
    """One agent over one link."""

    def __init__(self, link: Link[wire.Request], incarnation: str) -> None:
        self._link = link
        self._incarnation = incarnation
        self._trajectories: set[TrajectoryId] = set()

    def on_tell(self, record: wire.Request) -> None:
        if isinstance(record, wire.StartRun):
            run = record.run
            self._trajectories.add(run.trajectory)
            result = CommandResult(exit_code=0, stdout=b"", stderr=b"", run_s=RUN_S)
            ended = RunResult(run=run.id, outcome=Outcome.SUCCEEDED, began_at=0.0, result=result)
            self._link.tell(wire.RunEnded(ended, RUN_S), stream=run.id.action_id)

    def on_ask(self, asked: IncomingAsk[wire.Request]) -> None:
        match asked.record:
            case wire.Attach():
                found = NodeInventory(
                    incarnation=self._incarnation, trajectories=tuple(self._trajectories)
                )
                asked.answer(found)
            case wire.PingAgent():
                asked.answer(Population(sandboxes=len(self._trajectories)))
            case wire.CloseTrajectory(trajectory):
                self._trajectories.discard(trajectory)
                asked.answer()
            case _:
                asked.answer()


async def _join(port: int, token: str, number: int, cores: int) -> Link[wire.Request]:
    incarnation = f"life-{number}"
    hello = wire.JoinHello(
        node=NodeId(f"node-{number}"),
        machine=f"machine-{number}",
        incarnation=incarnation,
        token=token,
        shape=wire.NodeShape(cores=tuple(range(cores)), numa=1, memory_mb=MEMORY_MB),
    )
    return await dial_for(
        ("127.0.0.1", port),
        wire.agent_terms(60.0),
        lambda link: FakeMachine(link, incarnation),
        hello=hello,
        patience_s=60.0,
    )


async def _stay(port: int, token: str, count: int, cores: int) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with turn:
            link = await _join(port, token, number, cores)
        await asyncio.shield(link.closed)

    await asyncio.gather(*(one(number) for number in range(count)))


def main() -> None:
    port, token, count, cores = sys.argv[1:]
    allow_open_files()
    asyncio.run(_stay(int(port), token, int(count), int(cores)))


if __name__ == "__main__":
    main()
