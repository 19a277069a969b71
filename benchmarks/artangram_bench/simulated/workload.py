"""What the simulated clusters have to do, and how fast their other parts are.

- Sizes are ROLLART's divided by a scale: devices, batch and environments alike, so that every
  device has as much to do. A model on more devices is divided by less: replicas stay as many.
- What the paper does not tell (lengths of answers and observations, how often the prefix cache
  hits) is in `SHAPES` and `HIT_RATE`. `experiments.calibration` checks them against what the paper
  measured of single tasks; the page about this simulation says more.
"""

from collections.abc import Mapping

from artangram.core.rollout.weights import Staleness
from artangram.gateway.hardware import GIB, ModelShape, hardware, model_shape
from artangram_bench.simulated.cluster import PoolPlan, Scenario, WeightTimes
from artangram_bench.simulated.tasks import TaskShape

HIT_RATE = 0.8
"""Of the prefix cache. The one unknown that decides what affinity gains."""

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
        ),
        TaskShape(
            name="game",
            turns=(3, 5),
            prompt_tokens=800,
            seen_tokens=300,
            reply_tokens=800,
            reply_spread=0.5,
            turn_s=0.1,
        ),
        TaskShape(
            name="lake",
            turns=(20, 40),
            prompt_tokens=1000,
            seen_tokens=500,
            reply_tokens=60,
            turn_s=0.2,
            turn_sigma_s=0.1,
        ),
        TaskShape(
            name="shop",
            turns=(15, 30),
            prompt_tokens=1200,
            seen_tokens=900,
            reply_tokens=80,
            turn_s=0.5,
            turn_sigma_s=0.2,
        ),
    )
}
AFFINITY = {"math": "H20", "game": "H20", "lake": "H800", "shop": "H800"}

BATCH, GROUP = 512, 8
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
ACROSS = 2.06 * GIB
"""TCP between clusters."""
PUSH = 0.46 * GIB
"""Into the store of another cluster, in buckets."""
PULL = 2.1 * GIB
"""From the store to a host, accumulated over the replicas."""
PCIE = 25e9
"""From a host into one device."""


def mixed_tasks(
    devices: Mapping[str, int], *, model: str = "qwen3-8b", scale: int = 8, seed: int = 0
) -> Scenario:
    """All four tasks in equal shares on the paper's `devices`, sampling without pause."""
    shape = model_shape(model)
    divisor = max(1, scale // shape.tp)
    pools = (
        PoolPlan(hardware=kind, devices=count // divisor, is_far=kind != TRAINS_ON)
        for kind, count in devices.items()
    )
    return Scenario(
        model=shape,
        pools=tuple(pools),
        tasks=tuple(SHAPES.values()),
        groups=max(1, BATCH // GROUP // divisor),
        group_size=GROUP,
        environments=2 * BATCH // divisor,
        staleness=Staleness(max_staleness=BOUND),
        hit_rate=HIT_RATE,
        train_token_s=train_token_s(shape, TRAIN_DEVICES / divisor),
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


def stopping(model: ModelShape, rate: float = INSIDE) -> WeightTimes:
    """Every replica stands still from the first byte of a version to its last."""
    return WeightTimes(load_s=model.weight_bytes / rate)
