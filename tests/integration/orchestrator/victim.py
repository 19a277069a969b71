"""An orchestrator that works until it is killed; prints what it has promised and delivered."""

import asyncio
import sys
from pathlib import Path

from artangram.core.ids import TrajectoryId
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.client import Client
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import running


async def work(backend: Embedded, name: str) -> None:
    await Client(backend).trajectory(id=name, memory_mb=64).__aenter__()
    for number in range(10_000):
        word = f"{name}-{number}"
        argv = ("sleep", "0.02") if number % 3 else ("echo", word)
        request = RunRequest(trajectory=TrajectoryId(name), argv=argv, kind="x", key=word)
        receipt = backend.submit(request)
        await backend.orchestrator.written()
        print("accepted", receipt.action_id, flush=True)
        await receipt.ended
        print("ended", receipt.action_id, flush=True)


async def main(state_dir: str, life: str, provider: str) -> None:
    options = ("--provider", provider, "--grace-s", "20")
    async with running(state_dir=Path(state_dir), cores=2, agent_options=options) as (
        orchestrator,
        _,
    ):
        backend = Embedded(orchestrator)
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(work(backend, f"life{life}-{number}"))


asyncio.run(main(*sys.argv[1:]))
