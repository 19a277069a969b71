"""The simulation beside `artangram plan affinity`, on clusters of a few replicas."""

from artangram.sim.fluid import MeanTrajectory
from artangram_bench.simulated.confirm import confirmed

READS = MeanTrajectory(turns=6, prompt_tokens=2000, seen_tokens=900, reply_tokens=10)
WRITES = MeanTrajectory(turns=1, prompt_tokens=100, seen_tokens=0, reply_tokens=400)


def test_each_kind_alone_and_both_are_simulated_at_the_same_cost():
    devices = {"counts": {"H800": 2, "H20": 3}, "prices": {"H800": 3.0, "H20": 1.0}}
    steps_s = confirmed(
        {"reads": READS, "writes": WRITES},
        {"reads": 0.5, "writes": 0.5},
        devices,
        model="qwen3-8b",
        hit_rate=0.2,
        replicas=2,
    )
    assert list(steps_s) == ["H800", "H20", "H800+H20"]
    assert all(seconds > 0 for seconds in steps_s.values())
    # Reading without a cache is what H20 are bad at.
    assert steps_s["H800"] < steps_s["H20"]
