"""The benchmark measures what it says, in small."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from artangram.sandbox import NamespaceProvider
from artangram_bench.sandboxfloor import enter_floor
from artangram_bench.sandboxpeers import Missing, end_monitors
from artangram_bench.sandboxtimes import Series, measure

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_small_run_has_every_series() -> None:
    bench = await measure(rounds=4, live=(3,), grows=1)
    expected = {"bare subprocess.run", "exec", "exec with a core", "exec with a core at 3"}
    expected |= {"lease at 3", "put to sleep", "memory per sleeping sandbox"}
    assert expected <= {series.name for series in bench.series}
    assert len(bench["put to sleep"].samples) == 3
    assert all(sample > 0 for sample in bench["exec"].samples)
    assert len(bench["exec"].samples) == 4
    assert bench.ratio("exec", "exec") == 1.0


async def test_percentiles_are_of_all_samples() -> None:
    series = Series(name="x", unit="ms", samples=tuple(float(n) for n in range(100, 0, -1)))
    assert (series.percentile(0), series.percentile(50), series.percentile(99)) == (1, 51, 100)


async def test_the_floor_times_and_counts_itself(provider: NamespaceProvider) -> None:
    async with AsyncExitStack() as stack:
        floor = await enter_floor(stack, provider, pause_s=0.05, clients=2)
        if isinstance(floor, Missing):
            pytest.skip(f"{floor.why}: {floor.how}")
        took_ms, counts = await floor.run(), floor.rate
        assert isinstance(took_ms, float)
        assert took_ms > 0
        assert counts is not None
        assert await counts(0.1) > 0


def wait_for_words(process: subprocess.Popen[bytes]) -> None:
    """A process has no command line for a moment after it was started."""
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.01)


async def test_what_waits_for_a_container_that_is_gone_is_ended() -> None:
    names = ("artangram-bench-sdk-1", "artangram-bench-sdk-12")
    waits = "import time; time.sleep(1000)"
    mine, other = (
        subprocess.Popen(["conmon", "-c", waits, "-n", name], executable=sys.executable)  # noqa: ASYNC220
        for name in names
    )
    for one in (mine, other):
        wait_for_words(one)
    end_monitors(names[0])
    assert mine.wait(timeout=10) == -signal.SIGKILL
    assert other.poll() is None
    end_monitors(names[1])
    assert other.wait(timeout=10) == -signal.SIGKILL
