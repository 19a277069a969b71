"""Trajectories of owners that are gone are closed, and no others; on virtual time."""

import asyncio

import pytest

from artangram.core.ids import TrajectoryId
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.records import ActionResult, Opening
from artangram.orchestrator.runs import RunRequest
from artangram.testing.fakes import FakeHouse, a_setup, fake_house

pytestmark = pytest.mark.looptime

BOUNDS = Bounds(owner_silence_s=60.0)


async def opened(house: FakeHouse, name: str, *, owner: str) -> TrajectoryId:
    trajectory = TrajectoryId(name)
    await house.orchestrator.open(Opening(trajectory=trajectory, memory_mb=64, owner=owner))
    return trajectory


def run(
    house: FakeHouse, trajectory: str, *argv: str, key: str | None = None
) -> "asyncio.Task[ActionResult]":
    request = RunRequest(trajectory=TrajectoryId(trajectory), argv=argv, kind="x", key=key)
    return asyncio.create_task(house.backend.run(request))


def names(house: FakeHouse) -> set[str]:
    return set(house.orchestrator.ledger.trajectories)


async def test_who_gives_no_sign_loses_what_he_opened() -> None:
    async with fake_house(bounds=BOUNDS) as house:
        await opened(house, "c", owner="alive")
        await asyncio.sleep(1)
        await opened(house, "a", owner="gone")
        await opened(house, "b", owner="gone")
        await run(house, "a", "true")
        for _ in range(59):
            await asyncio.sleep(1)
            house.orchestrator.heard("alive")
        assert names(house) == {"a", "b", "c"}
        await asyncio.sleep(2)
        assert names(house) == {"c"}
        assert not house.provider.live
        assert house.orchestrator.status().abandoned == 2
        await asyncio.sleep(60)
        assert names(house) == set()


async def test_using_a_trajectory_is_a_sign() -> None:
    async with fake_house(bounds=BOUNDS) as house:
        await opened(house, "used", owner="somebody")
        for _ in range(5):
            await asyncio.sleep(50)
            assert (await run(house, "used", "true")).ok
        await asyncio.sleep(61)
        assert names(house) == set()


async def test_waiting_for_an_action_is_a_sign_but_a_key_is_not() -> None:
    async with fake_house(bounds=BOUNDS) as house:
        await opened(house, "awaited", owner="listener")
        await opened(house, "left", owner="leaver")
        awaited, left = run(house, "awaited", "sleep", "500"), run(house, "left", "sleep", "500")
        keyed = run(house, "left", "sleep", "500", key="k")
        await asyncio.sleep(1)
        left.cancel()
        keyed.cancel()
        await asyncio.sleep(400)
        assert names(house) == {"awaited"}
        assert (await awaited).ok
        await asyncio.sleep(121)
        assert names(house) == set()


async def test_this_process_needs_to_give_no_sign() -> None:
    async with fake_house(bounds=BOUNDS) as house, house.trajectory(id="ours"):
        await asyncio.sleep(10_000)
        assert names(house) == {"ours"}


async def test_closed_trajectory_is_not_missed() -> None:
    async with fake_house(bounds=BOUNDS) as house:
        await house.orchestrator.close(await opened(house, "a", owner="x"))
        await opened(house, "a", owner="y")
        for _ in range(4):
            await asyncio.sleep(30)
            assert set(house.orchestrator.heard("y")) == {"a"}
        assert house.orchestrator.heard("x") == {}
        assert house.orchestrator.status().abandoned == 0


async def test_owner_hears_how_long_its_actions_have_waited() -> None:
    async with fake_house(a_setup(cores=1), bounds=BOUNDS) as house:
        await opened(house, "a", owner="x")
        await opened(house, "b", owner="x")
        first, second = run(house, "a", "sleep", "20"), run(house, "b", "true")
        await asyncio.sleep(5)
        found = house.orchestrator.heard("x")
        waits = {name: (round(one.queued_s, 2), one.num_waiting) for name, one in found.items()}
        assert waits == {"a": (0.0, 0), "b": (5.0, 1)}
        await asyncio.gather(first, second)
