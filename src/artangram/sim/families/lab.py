"""The laboratory: single actions that arrive by themselves on one node, at a known load.

Most actions are short commands on one core; a few are test suites that scale. Nothing reacts to the
schedule, so lower bounds on the mean ACT are tight here and policies can be told apart.
"""

import math
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from msgspec import Struct

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.needs import Needs
from artangram.core.scheduling.speedup import Amdahl
from artangram.observe.trace import TraceAction, TraceTrajectory, TraceTurn
from artangram.sim.families.draw import (
    CPU,
    ONE_CORE,
    Count,
    Penalty,
    Positive,
    Share,
    Spread,
    Units,
)

WIDTHS = (1, 2, 4, 8, 16)
NUM_BURSTS = 6
BURST_S = 5.0
"""Mean delay of an action behind the start of its burst."""


class LabParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cores: Units = 64
    n: Count = 3000
    rho: Positive = 0.7
    """Offered load: work on one core each, over cores times the arrival window."""
    burst: Share = 0.0
    """The share of the actions that arrives in six bursts; the others come evenly."""
    tail: Spread = 1.0
    """The sigma of the lognormal durations of tests."""
    test_share: Share = 0.06


class LabSizes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cores: Units = 64
    squeeze_penalty: Penalty = 0.0


class LabTrace(NamedTuple):
    """One of the fifteen."""

    seed: int
    rho: float
    burst: float


SIZES = LabSizes()
PRESETS = {"default": LabParams()}


def lab_traces(seeds: tuple[int, ...] = (1, 2, 3)) -> list[LabTrace]:
    """Five loads, three of them even and two with bursts, for every seed."""
    loads = ((0.4, 0.0), (0.7, 0.0), (0.9, 0.0), (0.6, 0.6), (0.9, 0.6))
    return [LabTrace(seed, rho, burst) for seed in seeds for rho, burst in loads]


def train_s(params: LabParams) -> float:
    return 0.0


def trajectories(params: LabParams, *, seed: int) -> Iterator[TraceTrajectory]:
    rng = Random(seed)
    actions = [_action(rng, params) for _ in range(params.n)]
    work_s = sum(action.work_s for action in actions)
    arrivals = _arrivals(rng, params, window_s=work_s / (params.rho * params.cores))
    for index, (arrive_s, action) in enumerate(zip(arrivals, actions, strict=True)):
        yield TraceTrajectory(
            trajectory=TrajectoryId(f"lab-{index:05d}"),
            turns=(TraceTurn(actions=(action,)),),
            job=JobId("lab"),
            task="lab",
            arrive_s=arrive_s,
        )


def cluster(sizes: LabSizes) -> ClusterSpec:
    """One node; memory never binds, since these trajectories hold none."""
    node = CpuSpec(nodes=1, cores=sizes.cores, memory_mb=1, squeeze_penalty=sizes.squeeze_penalty)
    return ClusterSpec(pools={CPU: node})


def _action(rng: Random, params: LabParams) -> TraceAction:
    if rng.random() < 1 - params.test_share:
        work_s = min(rng.lognormvariate(math.log(0.4), 1.2), 120)
        return TraceAction(kind="lab/tool", needs=ONE_CORE, work_s=work_s)
    work_s = min(rng.lognormvariate(math.log(45), params.tail), 3000)
    speedup = Amdahl(rng.uniform(0.02, 0.2))
    needs = Needs(amounts=((CPU, WIDTHS),), elastic=CPU, speedup=speedup)
    return TraceAction(kind="lab/test", needs=needs, work_s=work_s, reward=True)


def _arrivals(rng: Random, params: LabParams, *, window_s: float) -> list[float]:
    # The last bursts need room to drain inside the window, or the load would not be `rho`.
    bursts = [rng.uniform(0, window_s * 0.85) for _ in range(NUM_BURSTS)]
    return sorted(
        rng.choice(bursts) + rng.expovariate(1 / BURST_S)
        if rng.random() < params.burst
        else rng.uniform(0, window_s)
        for _ in range(params.n)
    )
