"""Mixed clusters whose tasks have fixed places: what routing could gain if it knew them before.

The tasks that write much are divided between the kinds of hardware in halves, in every way; those
that read much stay with the kind that reads fast. The best way is found with a seed that no figure
is reported of: a ceiling of all routing that keeps a task, or half of it, in one place.
"""

from itertools import product

from msgspec import structs

from artangram.core.rollout.affinity import affinity_of
from artangram_bench.simulated.cluster import Scenario
from artangram_bench.simulated.rows import run_all
from artangram_bench.simulated.workload import AFFINITY

TRIAL_SEED = 1000


def best_division(mixed: Scenario) -> tuple[str, Scenario]:
    """The division with the shortest steps, and what it is called."""
    every = divisions(mixed)
    runs = run_all(every, (TRIAL_SEED,))
    best = min(every, key=lambda name: runs[name][0].step_s)
    return best, every[best]


def divisions(mixed: Scenario) -> dict[str, Scenario]:
    writers = [name for name, kind in AFFINITY.items() if kind == "H20"]
    found = {}
    for halves in product(range(3), repeat=len(writers)):
        there = dict(zip(writers, halves, strict=True))
        name = " and ".join(f"{half}/2 of {task}" for task, half in there.items())
        found[f"{name} on H20"] = _divided(mixed, there)
    return found


def _divided(mixed: Scenario, there: dict[str, int]) -> Scenario:
    """Every task as two of half the share, `there` of them on H20."""
    places = {
        f"{task.name}-{half}": (task, "H20" if half < there.get(task.name, 0) else "H800")
        for task in mixed.tasks
        for half in range(2)
    }
    return structs.replace(
        mixed,
        tasks=tuple(structs.replace(task, name=name) for name, (task, _) in places.items()),
        shares=dict.fromkeys(places, 1),
        affinity=affinity_of({name: [kind] for name, (_, kind) in places.items()}),
    )
