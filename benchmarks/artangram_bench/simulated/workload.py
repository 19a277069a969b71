"""What the simulated clusters have to do, and how fast their other parts are.

- Sizes are ROLLART's divided by a scale: devices, batch and environments alike, so that every
  device has as much to do. A model on more devices is divided by less: replicas stay as many.
- Turns are those of the paper's table 1. What it does not tell (lengths of answers and
  observations, how alike siblings are) is in `SHAPES`; a hundred turns fit into its context of 32k.
  `experiments.calibration` checks them against what the paper measured of single tasks.
"""

from collections.abc import Mapping
from enum import StrEnum

from artangram.core.rollout.weights import Staleness
from artangram.gateway.hardware import GIB, ModelShape, hardware, model_shape
from artangram_bench.simulated.cluster import PoolPlan, Scenario, WeightTimes
from artangram_bench.simulated.tasks import TaskShape

ALIKE = 0.5
"""Share of the variance between attempts that belongs to the problem: ours. With it, spare siblings
gain about what the paper's do; independent siblings gain far more."""

SHAPES = {
    one.name: one
    for one in (
        TaskShape(
            name="math",
            turns=(1, 4),
            prompt_tokens=500,
            seen_tokens=200,
            reply_tokens=2000,
            reply_spread=0.6,
            reward_s=3.0,
            alike=ALIKE,
        ),
        TaskShape(
            name="game",
            turns=(1, 1),
            prompt_tokens=800,
            seen_tokens=300,
            reply_tokens=800,
            reply_spread=0.5,
            turn_s=0.1,
            alike=ALIKE,
        ),
        TaskShape(
            name="lake",
            turns=(20, 100),
            prompt_tokens=1000,
            seen_tokens=240,
            reply_tokens=60,
            turn_s=0.2,
            turn_sigma_s=0.1,
            alike=ALIKE,
        ),
        TaskShape(
            name="shop",
            turns=(5, 30),
            prompt_tokens=1200,
            seen_tokens=900,
            reply_tokens=80,
            turn_s=0.5,
            turn_sigma_s=0.2,
            alike=ALIKE,
        ),
    )
}
AFFINITY = {"math": "H20", "game": "H20", "lake": "H800", "shop": "H800"}

BATCH, GROUP = 512, 8
"""The paper's batch of 512 has no unit. `Reading` has both."""
BOUND = 2
"""Of staleness, counted from the version that learns: what ROLLART's bound of 1 lets through. It
counts from the version that samples, which is one behind while the next is learned."""
TRAINS_ON, TRAIN_DEVICES = "H800", 32
"""Devices that only train. Those of another kind are in another cluster."""
TRAIN_MFU = 0.4
"""Share of their peak that training reaches."""
TRAIN_PASSES = 4
"""Forward passes' worth of arithmetic: one for the old probabilities, three for the step."""

# Effective rates in bytes per second: what ROLLART's tables 3 and 4 come to, not line rates.
INSIDE = 6.46 * GIB
"""RDMA inside a cluster."""
PUSH = 0.46 * GIB
"""Into the store of another cluster, in buckets: the rate of that link in all systems. Table 3 has
it 4.5 times as fast; the two disagree."""
PULL = 2.1 * GIB
"""From the store to a host, accumulated over the replicas."""
PCIE = 25e9
"""From a host into one device."""


class Reading(StrEnum):
    """What the paper's batch of 512 counts."""

    TRAJECTORIES = "512 trajectories"
    GROUPS = "512 groups"


def mixed_tasks(
    devices: Mapping[str, int],
    *,
    model: str = "qwen3-8b",
    scale: int = 8,
    seed: int = 0,
    reading: Reading = Reading.TRAJECTORIES,
    train_devices: int = TRAIN_DEVICES,
) -> Scenario:
    """All four tasks in equal shares on the paper's `devices`, sampling without pause."""
    shape = model_shape(model)
    divisor = max(1, scale // shape.tp)
    batch = BATCH * (GROUP if reading is Reading.GROUPS else 1)
    pools = (
        PoolPlan(hardware=kind, devices=count // divisor, is_far=kind != TRAINS_ON)
        for kind, count in devices.items()
    )
    return Scenario(
        model=shape,
        pools=tuple(pools),
        tasks=tuple(SHAPES.values()),
        groups=max(1, batch // GROUP // divisor),
        group_size=GROUP,
        environments=2 * batch // divisor,
        staleness=Staleness(max_staleness=BOUND),
        train_token_s=train_token_s(shape, train_devices / divisor),
        seed=seed,
    )


def train_token_s(model: ModelShape, devices: float) -> float:
    """Seconds that one more token of a batch keeps the trainer busy."""
    peak = hardware(TRAINS_ON).flops * devices
    return TRAIN_PASSES * 2.0 * model.active / (peak * TRAIN_MFU)


def beside(model: ModelShape) -> WeightTimes:
    """A version travels while replicas go on; each stops to load it from its host."""
    return WeightTimes(
        near_s=model.weight_bytes / INSIDE,
        push_s=model.weight_bytes / PUSH,
        pull_s=model.weight_bytes / PULL,
        load_s=model.weight_bytes / model.tp / PCIE,
    )


def stopping(model: ModelShape, *rates: float) -> WeightTimes:
    """Every replica stands still while a version goes over each of these links in turn."""
    return WeightTimes(load_s=sum(model.weight_bytes / rate for rate in rates or (INSIDE,)))


# SWE-bench, which the paper runs with 32B only: turns of its table 1; lengths are ours.
SWE = TaskShape(
    name="swe",
    turns=(30, 50),
    prompt_tokens=2000,
    seen_tokens=400,
    reply_tokens=150,
    turn_s=1.0,
    turn_sigma_s=0.5,
    alike=ALIKE,
)
