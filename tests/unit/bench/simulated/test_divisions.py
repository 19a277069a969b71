"""Mixed clusters whose tasks have fixed places."""

from artangram_bench.simulated.divisions import divisions
from artangram_bench.simulated.workload import mixed_tasks


def test_every_half_of_a_task_has_one_place_and_the_mix_stays():
    mixed = mixed_tasks({"H800": 64, "H20": 24})
    every = divisions(mixed)
    assert len(every) == 3 * 3
    for scenario in every.values():
        assert set(scenario.shares.values()) == {1}
        assert {task.name for task in scenario.tasks} == set(scenario.shares)
        assert len(scenario.tasks) == 2 * len(mixed.tasks)
    half = every["1/2 of math and 2/2 of game on H20"].affinity
    kinds = {name: half.listed(name) for name in ("math-0", "math-1", "game-0", "game-1", "lake-0")}
    assert kinds == {
        "math-0": ("H20",),
        "math-1": ("H800",),
        "game-0": ("H20",),
        "game-1": ("H20",),
        "lake-0": ("H800",),
    }
