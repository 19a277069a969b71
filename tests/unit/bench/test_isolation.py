"""The bench of faulty environments, on virtual time: what it measures is isolation alone."""

import asyncio

import pytest

from artangram.sandbox.fake import SIGKILL, Console
from artangram.testing.fakes import a_setup, fake_cluster
from artangram_bench.isolation import compared

pytestmark = pytest.mark.looptime


async def shell(console: Console, argv: tuple[str, ...]) -> int:
    """What the bench's scripts do; each healthy command takes a moment of its core."""
    if "sleep" in argv[2]:
        await asyncio.sleep(1e6)
    await asyncio.sleep(0.01)
    return -SIGKILL if "kill" in argv[2] else 0


async def test_the_others_are_as_fast_beside_every_fault():
    async with fake_cluster(a_setup(cores=2), programs={"sh": shell}) as client:
        found = await compared(client, 12, blocks=1, seconds=30.0)
    assert found.ratio == pytest.approx(1.0, abs=0.05)
    alone, beside = found.blocks
    assert (alone.failed, alone.late) == (0, 0)
    assert beside.failed > beside.late > 0  # Crashes, and commands that hang.
