"""Counts that are kept as things change are what counting anew gives."""

import asyncio

from artangram.core.ids import NodeId
from artangram.orchestrator.tally import Tally
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster


def counted(tally: Tally) -> dict[str, object]:
    """All of it; those that are 0 count as absent."""
    found = dict(vars(tally))
    found["waiting"] = {job: list(line) for job, line in tally.waiting.items()}
    found["running"] = sorted(tally.running)
    for name in ("slots", "devices", "busy", "queued"):
        found[name] = {key: number for key, number in found[name].items() if number}
    return found


def check(client: FakeCluster) -> None:
    ledger = client.orchestrator.ledger
    anew = Tally.of(ledger.alive(), ledger.open_trajectories())
    assert counted(ledger.tally) == counted(anew)


async def test_the_counts_are_those_of_what_is_alive() -> None:
    async with fake_cluster(a_setup(cores=2, memory_mb=2000)) as client:
        opened = [await client.trajectory(job=f"j{n % 3}", id=f"t{n}").open() for n in range(6)]
        cpu = {"min": 1, "max": 2}
        running = [asyncio.create_task(t.run(["sleep", "0.05"], cpu=cpu)) for t in opened]
        for _ in range(4):
            await asyncio.sleep(0.02)
            check(client)
        running[-1].cancel()
        await opened[0].close()
        check(client)
        client.orchestrator.executor.on_lost(NodeId("cpu-0"), "it is gone")
        await asyncio.sleep(0.05)
        check(client)
        for t in opened:
            await t.close()
        await asyncio.gather(*running, return_exceptions=True)
        check(client)
        tally = client.orchestrator.ledger.tally
        assert (tally.jobs, tally.nodes, tally.waiting, tally.running) == ({}, {}, {}, {})
