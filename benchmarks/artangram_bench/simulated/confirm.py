"""Does a simulation agree with `artangram plan affinity`? The mixed pool, and each kind alone.

A small cluster of the same proportions and cost, sampling without pause and without a trainer that
could limit it; routing is `auto`, caches are modelled, and lose the share that was measured.
"""

from collections.abc import Mapping
from typing import Any

from artangram.core.rollout.affinity import affinity_of
from artangram.gateway.hardware import model_shape
from artangram.sim.fluid import MeanTrajectory
from artangram_bench.simulated.cluster import PoolPlan, Scenario
from artangram_bench.simulated.run import simulate
from artangram_bench.simulated.tasks import TaskShape

REPLICAS = 8
"""Of the mixed pool, about."""
GROUPS_EACH = 4
"""Groups of a batch for each replica, of eight trajectories."""


def confirmed(
    tasks: Mapping[str, MeanTrajectory],
    shares: Mapping[str, float],
    devices: Mapping[str, Any],
    *,
    model: str,
    hit_rate: float,
    replicas: int = REPLICAS,
) -> dict[str, float]:
    """Seconds of a step by purchase: each kind alone, then both, joined by a plus."""
    counts, prices = devices["counts"], devices["prices"]
    shape = model_shape(model)
    scale = max(1.0, sum(counts.values()) / shape.tp / replicas)
    cost = sum(count * prices[kind] for kind, count in counts.items())
    pools = {kind: {kind: cost / prices[kind]} for kind in counts} | {"+".join(counts): counts}
    shapes = tuple(_shape(name, one) for name, one in tasks.items())
    return {
        name: simulate(
            Scenario(
                model=shape,
                pools=tuple(
                    PoolPlan(
                        hardware=kind,
                        devices=shape.tp * max(1, round(count / shape.tp / scale)),
                    )
                    for kind, count in pool.items()
                ),
                tasks=shapes,
                shares={task: max(1, round(20 * share)) for task, share in shares.items()},
                groups=GROUPS_EACH * replicas,
                environments=2 * 8 * GROUPS_EACH * replicas,
                affinity=affinity_of("auto"),
                hit_rate=hit_rate,
                steps=4,
            )
        ).step_s
        for name, pool in pools.items()
    }


def _shape(name: str, one: MeanTrajectory) -> TaskShape:
    """As many turns as the mean, within a third of it; answers of the mean's length."""
    turns = max(1, round(one.turns))
    return TaskShape(
        name=name,
        turns=(max(1, turns - turns // 3), turns + turns // 3),
        prompt_tokens=max(1, round(one.prompt_tokens)),
        seen_tokens=max(1, round(one.seen_tokens)),
        reply_tokens=max(1.0, one.reply_tokens / 1.046),  # Its median: the spread is 0.3.
    )
