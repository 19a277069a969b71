"""Trajectories of owners that are gone are closed, and no others; on virtual time."""

import asyncio

import pytest

from artangram.core.ids import TrajectoryId
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.records import ActionResult, Opening
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster

pytestmark = pytest.mark.looptime

BOUNDS = Bounds(owner_silence_s=60.0)


async def opened(client: FakeCluster, name: str, *, owner: str) -> TrajectoryId:
    trajectory = TrajectoryId(name)
    await client.orchestrator.open(Opening(trajectory=trajectory, memory_mb=64, owner=owner))
    return trajectory


def run(
    client: FakeCluster,
    trajectory: str,
    *argv: str,
    key: str | None = None,
    work_s: float | None = None,
) -> "asyncio.Task[ActionResult]":
    request = RunRequest(
        trajectory=TrajectoryId(trajectory), argv=argv, kind="x", key=key, work_s=work_s
    )
    return asyncio.create_task(client.backend.run(request))


def names(client: FakeCluster) -> set[str]:
    return set(client.orchestrator.ledger.trajectories)


async def test_who_gives_no_sign_loses_what_he_opened() -> None:
    async with fake_cluster(bounds=BOUNDS) as client:
        await opened(client, "c", owner="alive")
        await asyncio.sleep(1)
        await opened(client, "a", owner="gone")
        await opened(client, "b", owner="gone")
        await run(client, "a", "true")
        for _ in range(59):
            await asyncio.sleep(1)
            client.orchestrator.heard("alive")
        assert names(client) == {"a", "b", "c"}
        await asyncio.sleep(2)
        assert names(client) == {"c"}
        assert not client.provider.live
        assert client.orchestrator.status().abandoned == 2
        await asyncio.sleep(60)
        assert names(client) == set()


async def test_using_a_trajectory_is_a_sign() -> None:
    async with fake_cluster(bounds=BOUNDS) as client:
        await opened(client, "used", owner="somebody")
        for _ in range(5):
            await asyncio.sleep(50)
            assert (await run(client, "used", "true")).ok
        await asyncio.sleep(61)
        assert names(client) == set()


async def test_waiting_for_an_action_is_a_sign_but_a_key_is_not() -> None:
    async with fake_cluster(bounds=BOUNDS) as client:
        await opened(client, "awaited", owner="listener")
        await opened(client, "left", owner="leaver")
        awaited, left = run(client, "awaited", "sleep", "500"), run(client, "left", "sleep", "500")
        keyed = run(client, "left", "sleep", "500", key="k")
        await asyncio.sleep(1)
        left.cancel()
        keyed.cancel()
        await asyncio.sleep(400)
        assert names(client) == {"awaited"}
        assert (await awaited).ok
        await asyncio.sleep(121)
        assert names(client) == set()


async def test_this_process_needs_to_give_no_sign() -> None:
    async with fake_cluster(bounds=BOUNDS) as client, client.trajectory(id="ours"):
        await asyncio.sleep(10_000)
        assert names(client) == {"ours"}


async def test_closed_trajectory_is_not_missed() -> None:
    async with fake_cluster(bounds=BOUNDS) as client:
        await client.orchestrator.close(await opened(client, "a", owner="x"))
        await opened(client, "a", owner="y")
        for _ in range(4):
            await asyncio.sleep(30)
            assert set(client.orchestrator.heard("y")) == {"a"}
        assert client.orchestrator.heard("x") == {}
        assert client.orchestrator.status().abandoned == 0


async def test_owner_hears_how_long_its_actions_have_waited() -> None:
    async with fake_cluster(a_setup(cores=1), bounds=BOUNDS) as client:
        await opened(client, "a", owner="x")
        await opened(client, "b", owner="x")
        first = run(client, "a", "sleep", "20")
        second = run(client, "b", "true", work_s=1e6)
        await asyncio.sleep(5)
        found = client.orchestrator.heard("x")
        waits = {name: (round(one.queued_s, 2), one.num_waiting) for name, one in found.items()}
        assert waits == {"a": (0.0, 0), "b": (5.0, 1)}
        await asyncio.gather(first, second)
