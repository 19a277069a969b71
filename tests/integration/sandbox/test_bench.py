"""The benchmark measures what it says, in small."""

from __future__ import annotations

import pytest

from artangram.sandbox.bench import Series, measure

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
