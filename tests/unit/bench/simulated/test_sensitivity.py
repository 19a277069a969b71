"""The fluid's sensitivity table: what the affinity gain hangs on."""

from artangram_bench.simulated.sensitivity import sensitivity


def test_a_cache_that_misses_more_makes_h20_alone_worse():
    rows = {one.varied: one for one in sensitivity(("qwen3-8b",))}
    assert rows["hits 80%"].over_h20 > rows["hits 90%"].over_h20 > rows["hits 100%"].over_h20
    assert len(rows) == 10
