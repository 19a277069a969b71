"""The experiments of ROLLART's evaluation, on clusters of the same proportions.

- Each returns rows; a row names what was varied, what the paper measured, and what came out here.
- Sizes are the paper's divided by `scale` where they are large: devices, batch and environments
  alike, so that every device has as much to do.
- What the paper does not tell (lengths of answers and observations, how often the prefix cache
  hits) is in `SHAPES` and `HIT_RATE`, and the page about this simulation says so.
"""

from collections.abc import Iterator

from msgspec import Struct, structs

from artangram.core.affinity import affinity_of
from artangram.core.weights import preset
from artangram.gateway.gateway import EVERYWHERE
from artangram.gateway.hardware import GIB, ModelShape, model_shape
from artangram.pipeline.oneoff import one_off
from artangram.pipeline.simulated.cluster import PoolPlan, Scenario, WeightTimes
from artangram.pipeline.simulated.run import Outcome, simulate
from artangram.pipeline.simulated.tasks import TaskShape
from artangram.pipeline.sync import synchronous

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
            reply_tokens=1600,
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

TRAIN_S = 30.0
"""A step of the trainer, on devices of its own."""

ALL = 1000
"""Replicas that take a version at the same time; each stops only for its own load."""

SIGMAS = (1.0, 4.0, 7.0, 10.0)
PAPER_LATENCY = {1.0: (1.23, 1.23), 10.0: (2.27, 2.27)}
"""Between them it grows from one to the other."""

# Effective rates in bytes per second: what ROLLART's tables 3 and 4 come to, not line rates.
BROADCAST = 6.46 * GIB
"""RDMA inside a cluster, which stops everything."""
PUSH = 0.46 * GIB
"""Into the store, over the slow link."""
PULL = 2.1 * GIB
"""From the store to a host, accumulated over the replicas."""
PCIE = 25e9
"""From a host into one device."""


class Row(Struct, frozen=True, kw_only=True):
    """One comparison: how many times faster than its baseline something is."""

    experiment: str
    case: str
    baseline_s: float
    ours_s: float
    gain: float
    paper: tuple[float, float]
    """The paper's gain, from and to."""
    reaches: bool
    """Is the gain at least the paper's least?"""


def _compared(
    experiment: str, case: str, *, baseline: float, ours: float, paper: tuple[float, float]
) -> Row:
    gain = baseline / ours
    return Row(
        experiment=experiment,
        case=case,
        baseline_s=baseline,
        ours_s=ours,
        gain=gain,
        paper=paper,
        reaches=round(gain, 2) >= paper[0],
    )


def trajectories(batch: int = 512, *, seed: int = 0) -> Iterator[Row]:
    """Trajectory by trajectory against environments that wait for each other at every turn."""
    for sigma in SIGMAS:
        task = TaskShape(
            name="latency",
            turns=(20, 30),
            prompt_tokens=500,
            seen_tokens=100,
            reply_tokens=40,
            turn_s=10.0,
            turn_sigma_s=sigma,
        )
        scenario = Scenario(
            model=model_shape("qwen3-8b"),
            pools=(PoolPlan(hardware="H800", devices=max(1, batch // 16)),),
            tasks=(task,),
            groups=batch // 8,
            loop=synchronous,
            staleness=preset("sync"),
            steps=1,
            seed=seed,
        )
        ours, batched = simulate(scenario), simulate(structs.replace(scenario, in_step=True))
        yield _compared(
            "trajectory-level rollout",
            f"environments of N(10 s, {sigma:g} s)",
            baseline=batched.step_s,
            ours=ours.step_s,
            paper=PAPER_LATENCY.get(sigma, (1.23, 2.27)),
        )


def redundancy(groups: int = 32, *, seed: int = 0) -> Iterator[Row]:
    """More groups or more siblings than needed, the slowest not waited for."""
    math = structs.replace(SHAPES["math"], reply_tokens=2000.0, reply_spread=0.8)
    plain = Scenario(
        model=model_shape("qwen3-8b"),
        pools=(PoolPlan(hardware="H800", devices=groups),),
        tasks=(math,),
        groups=groups,
        loop=synchronous,
        staleness=preset("sync"),
        steps=3,
        seed=seed,
    )
    baseline = simulate(plain).step_s
    for extra_groups, extra_siblings in ((groups // 4, 0), (0, 2), (0, 4), (groups // 4, 2)):
        more = structs.replace(plain, extra_groups=extra_groups, extra_siblings=extra_siblings)
        yield _compared(
            "redundant launches",
            f"{extra_groups} more groups, {extra_siblings} more siblings",
            baseline=baseline,
            ours=simulate(more).step_s,
            paper=(1.0, 1.62),
        )


def affinity(scale: int = 8, *, seed: int = 0) -> Iterator[Row]:
    """A mixed pool against pools of one kind that cost the same."""
    mixed = _scenario({"H800": 64, "H20": 24}, scale, seed=seed)
    declared = structs.replace(mixed, affinity=affinity_of(AFFINITY))
    learned = structs.replace(mixed, affinity=affinity_of("auto"))
    alone = {
        "H20": (simulate(_scenario({"H20": 208}, scale, seed=seed)).step_s, 1.30, 1.68),
        "H800": (simulate(_scenario({"H800": 72}, scale, seed=seed)).step_s, 1.12, 1.37),
    }
    for how, scenario in (("declared", declared), ("learned", learned)):
        ours = simulate(scenario).step_s
        for kind, (baseline, low, high) in alone.items():
            yield _compared(
                "hardware affinity",
                f"{how}, against {kind} alone",
                baseline=baseline,
                ours=ours,
                paper=(low, high),
            )


def asynchrony(scale: int = 8, *, seed: int = 0) -> Iterator[Row]:
    """Bounded staleness on a mixed pool against the other orders on as many devices of one kind."""
    ours = simulate(_rollart(scale, seed=seed)).step_s
    for name, paper, baseline in _others(scale, seed=seed):
        yield _compared(
            "asynchronous training",
            f"against {name}",
            baseline=baseline.step_s,
            ours=ours,
            paper=paper,
        )


def _others(scale: int, *, seed: int) -> Iterator[tuple[str, tuple[float, float], Outcome]]:
    model = model_shape("qwen3-8b")
    stopped = WeightTimes(load_s=model.weight_bytes / BROADCAST)
    plain = _scenario({"H800": 96}, scale, seed=seed)
    plain = structs.replace(plain, weights=stopped, at_once=ALL)
    in_turn = structs.replace(plain, loop=synchronous, staleness=preset("sync"))
    yield "sync", (2.65, 4.58), simulate(structs.replace(in_turn, in_step=True))
    yield "sync+", (2.05, 2.05), simulate(in_turn)
    yield "one-off", (1.35, 1.35), simulate(structs.replace(in_turn, loop=one_off))
    yield "areal", (1.31, 1.31), simulate(structs.replace(plain, staleness=preset("areal")))


def _rollart(scale: int, *, seed: int) -> Scenario:
    model = model_shape("qwen3-8b")
    mixed = _scenario({"H800": 64, "H20": 32}, scale, seed=seed)
    return structs.replace(mixed, affinity=affinity_of("auto"), weights=stored(model), at_once=ALL)


def stored(model: ModelShape) -> WeightTimes:
    """A version on its way through the store."""
    return WeightTimes(
        push_s=model.weight_bytes / PUSH,
        pull_s=model.weight_bytes / PULL,
        load_s=model.weight_bytes / model.tp / PCIE,
    )


class WeightRow(Struct, frozen=True, kw_only=True):
    """What a version costs on its way to the replicas."""

    model: str
    push_s: float
    accumulated_s: float
    """Of one replica."""
    exposed_s: float
    """Of one replica."""
    share: float
    paper_share: float


PAPER_EXPOSED = {"qwen3-8b": 1.4 / 6.2, "qwen3-14b": 5.1 / 16.3, "qwen3-32b": 9.6 / 29.7}


def weights(scale: int = 8, *, seed: int = 0) -> Iterator[WeightRow]:
    """The part of a pull that stops a replica."""
    for name, paper in PAPER_EXPOSED.items():
        model = model_shape(name)
        plain = _scenario({"H800": 64 * model.tp}, scale, seed=seed)
        changes = {"weights": stored(model), "at_once": ALL, "steps": 3}
        scenario = structs.replace(plain, model=model, **changes)
        outcome = simulate(scenario)
        yield WeightRow(
            model=name,
            push_s=scenario.weights.push_s,
            accumulated_s=outcome.accumulated_s / outcome.swaps,
            exposed_s=outcome.exposed_s / outcome.swaps,
            share=outcome.exposed_s / outcome.accumulated_s,
            paper_share=paper,
        )


def _scenario(devices: dict[str, int], scale: int, *, seed: int) -> Scenario:
    """Batches of 512 and all four tasks, divided by `scale`."""
    pools = (PoolPlan(hardware=kind, devices=count // scale) for kind, count in devices.items())
    return Scenario(
        model=model_shape("qwen3-8b"),
        pools=tuple(pools),
        tasks=tuple(SHAPES.values()),
        groups=max(1, 64 // scale),
        environments=2 * 512 // scale,
        staleness=preset("rollart"),
        affinity=EVERYWHERE,
        hit_rate=HIT_RATE,
        train_s=TRAIN_S,
        steps=4,
        seed=seed,
    )
