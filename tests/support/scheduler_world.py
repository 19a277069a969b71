"""The small cluster and the shapes of actions that tests of the scheduler draw from."""

import os

from builders import a_cluster, a_cpu, a_gpu
from hypothesis import HealthCheck, Phase, settings

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import ClusterSpec, FunctionsSpec, QuotaSpec, ServiceSpec

THOROUGH = os.environ.get("ARTANGRAM_PROPERTIES") == "thorough"
"""Many more examples, new ones in every run."""

SEARCH, JUDGE, FUNCTIONS, GPU = (Resource(name) for name in ("search", "judge", "functions", "gpu"))


def examples(count: int, *, steps: int = 40, is_hunt: bool = False) -> settings:
    """Settings for `count` examples: the same in every run, and without minutes of shrinking.

    Thorough runs try twenty times as many, new ones every time, and shrink what they find; a hunt
    for a planted bug never is thorough.
    """
    if THOROUGH and not is_hunt:
        return settings(max_examples=20 * count, stateful_step_count=steps, **_ALWAYS)
    few = {"derandomize": True, "database": None, "phases": [Phase.explicit, Phase.generate]}
    return settings(max_examples=count, stateful_step_count=steps, **few, **_ALWAYS)


_ALWAYS = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "report_multiple_bugs": False,
}


def a_full_cluster(nodes: int, cores: int, *, numa: int, penalty: float) -> ClusterSpec:
    """One pool of every kind, small enough that everything is short."""
    return a_cluster(
        cpu=a_cpu(nodes, cores, memory_mb=100, numa=numa, squeeze_penalty=penalty, create_s=0.5),
        gpu=a_gpu(nodes, devices=4, restore_mb_per_s=100.0),
        search=QuotaSpec(concurrency=2, limit=3, window_s=10.0),
        judge=QuotaSpec(limit=2, window_s=5.0),
        functions=FunctionsSpec(ceiling=2, cold_s=0.5, idle_s=5.0),
        services={
            "a": ServiceSpec(pool=GPU, weights_mb=800, degrees=(1, 2, 4)),
            "b": ServiceSpec(pool=GPU, weights_mb=600, degrees=(2,), batch=2),
        },
        shares={"y": 3.0},
    )


#: Needs, the elastic resource, and the service.
Shape = tuple[dict[str, object], str | None, str | None]
RIGID: list[Shape] = [({"cpu": 1}, None, None), ({"cpu": 2}, None, None), ({"cpu": 4}, None, None)]
ELASTIC: list[Shape] = [
    ({"cpu": {"min": 1, "max": 4}}, "cpu", None),
    ({"cpu": {"min": 2, "max": 8}}, "cpu", None),
    ({"cpu": {"choices": [1, 2, 4]}}, "cpu", None),
]
OTHERS: list[Shape] = [
    ({"search": 1}, None, None),
    ({"search": 2}, None, None),
    ({"judge": 1}, None, None),
    ({"functions": 1}, None, None),
    ({"functions": 2}, None, None),
    ({"gpu": {"choices": [1, 2, 4]}}, "gpu", "a"),
    ({"gpu": 2}, None, "b"),
]
SEVERAL: list[Shape] = [
    ({"cpu": 1, "search": 1}, None, None),
    ({"cpu": {"min": 1, "max": 4}, "judge": 2}, "cpu", None),
    ({"cpu": {"min": 1, "max": 4}, "gpu": 2}, "cpu", "a"),
    ({"cpu": 2, "gpu": {"choices": [1, 2]}}, "gpu", "a"),
    ({"cpu": 1, "search": {"min": 1, "max": 2}}, "search", None),
    ({"search": 1, "judge": 1}, None, None),
    ({"functions": 1, "judge": 1}, None, None),
]
LENT_CORES = [SEVERAL[3], SEVERAL[4]]
"""Shapes that wait for devices or calls, and are lent cores."""
IMPOSSIBLE: list[Shape] = [({"cpu": 99}, None, None), ({"disk": 1}, None, None)]
