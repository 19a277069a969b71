"""Distillation from many teachers: one long thought, then calls to a few of many model services.

What decides how many GPUs can be saved is duty: the share of time that a static deployment, one
copy of every service at degree 4, would be busy. `duty` sets it. A step lasts
`batch * calls * call_mean_s / (services * duty)`; trajectories think for the first `rollout_share`
of that and the trainer has the rest. The mix of teachers is a Zipf law whose ranks are shuffled at
every step, so no fixed division of the GPUs is right for long.
"""

import math
from collections.abc import Iterator
from random import Random
from statistics import NormalDist
from typing import Annotated

from msgspec import Meta, Struct

from artangram.core.ids import JobId, ServiceId, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.core.scheduling.speedup import Amdahl
from artangram.observe.trace import TraceAction, TraceTrajectory, TraceTurn
from artangram.sim.families.draw import (
    GPU,
    Count,
    Positive,
    Spread,
    Units,
    duration,
    lognormal,
    service_call,
    stream,
)
from artangram.sim.families.hardware import gpu_pool, model_service

DEGREES = (1, 2, 4, 8)
STATIC_DEGREE = 4
SERIAL = 0.1
"""Of a model call over several devices: communication does not get faster."""
TOKENS_PER_S = 40


class MopdParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    batch: Count = 2048
    steps: Count = 3
    services: Units = 10
    calls: Count = 2
    """Teachers asked by one trajectory, one after the other; at most all of them."""
    zipf: Spread = 1.0
    """How uneven the mix is; 0 asks all teachers equally often."""
    duty: Annotated[float, Meta(gt=0, lt=1)] = 0.04
    rollout_share: Annotated[float, Meta(gt=0, lt=1)] = 0.6
    think_sigma: Spread = 0.6
    call_mean_s: Positive = 0.62
    """On four devices."""
    call_sigma: Spread = 0.5


class MopdSizes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gpus: Units = 40
    services: Units = 10
    weights_gb: Positive = 60.0
    restore_gb_per_s: Positive = 16.0


SIZES = MopdSizes()
PRESETS = {"default": MopdParams(), "paper": MopdParams(services=9)}


def step_s(params: MopdParams) -> float:
    """How long a step with its training lasts when no call waits."""
    busy_s = params.batch * num_asked(params) * params.call_mean_s
    return busy_s / (params.services * params.duty)


def num_asked(params: MopdParams) -> int:
    """Teachers of one trajectory, each asked once."""
    return min(params.calls, params.services)


def train_s(params: MopdParams) -> float:
    return round((1 - params.rollout_share) * step_s(params), 3)


def trajectories(params: MopdParams, *, seed: int) -> Iterator[TraceTrajectory]:
    for step in range(params.steps):
        yield from of_step(params, seed=seed, step=step)


def of_step(params: MopdParams, *, seed: int, step: int) -> Iterator[TraceTrajectory]:
    rng = stream("mopd", seed, step)
    popular = [1 / (rank + 1) ** params.zipf for rank in range(params.services)]
    rng.shuffle(popular)
    think_median_s = _think_median_s(params)
    for index in range(params.batch):
        think_s = lognormal(rng, think_median_s, sigma=params.think_sigma)
        teachers = _distinct(rng, popular, num_asked(params))
        turn = TraceTurn(
            think_s=think_s,
            output_tokens=round(think_s * TOKENS_PER_S),
            actions=tuple(_call(rng, params, teacher) for teacher in teachers),
        )
        yield TraceTrajectory(
            trajectory=TrajectoryId(f"mopd-{step}-{index}"),
            turns=(turn,),
            job=JobId("mopd"),
            task="mopd",
            step=step,
        )


def cluster(sizes: MopdSizes) -> ClusterSpec:
    pool = gpu_pool(sizes.gpus, restore_gb_per_s=sizes.restore_gb_per_s)
    service = model_service(sizes.weights_gb, DEGREES, on=pool)
    return ClusterSpec(
        pools={GPU: pool},
        services={ServiceId(teacher_name(n)): service for n in range(sizes.services)},
    )


def teacher_name(number: int) -> str:
    return f"teacher-{number}"


def _think_median_s(params: MopdParams) -> float:
    """Such that the longest of `batch` thoughts is expected to end with the rollout."""
    longest = NormalDist().inv_cdf(1 - 0.5 / params.batch)
    return params.rollout_share * step_s(params) / math.exp(params.think_sigma * longest)


def _distinct(rng: Random, weights: list[float], count: int) -> list[int]:
    """`count` different indices, heavier ones more often."""
    left = list(weights)
    chosen = []
    for _ in range(count):
        index = rng.choices(range(len(left)), left)[0]
        left[index] = 0.0
        chosen.append(index)
    return chosen


def _call(rng: Random, params: MopdParams, teacher: int) -> TraceAction:
    on_one_s = params.call_mean_s * Amdahl(SERIAL).speed(STATIC_DEGREE)
    median_s = on_one_s / math.exp(params.call_sigma**2 / 2)
    return TraceAction(
        kind="mopd/teacher",
        needs=service_call(teacher_name(teacher), DEGREES, SERIAL),
        work_s=duration(rng, median_s, sigma=params.call_sigma),
        reward=True,
        repeatable=True,
    )
