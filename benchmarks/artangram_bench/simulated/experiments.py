"""The experiments of ROLLART's evaluation, on clusters of the same proportions.

Each returns rows; a row names what was varied, what the paper measured, and what came out here: the
mean over the seeds, and the least and the most.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, structs

from artangram.core.rollout.affinity import DEFAULT, affinity_of
from artangram.core.rollout.split import splits_of
from artangram.core.rollout.weights import preset
from artangram.gateway.hardware import model_shape
from artangram.pipeline.loops import synchronous
from artangram_bench.simulated.cluster import PoolPlan, Scenario
from artangram_bench.simulated.rows import Row, compared, run_all
from artangram_bench.simulated.settings import Settings, endless
from artangram_bench.simulated.systems import (
    ALL,
    ALONE,
    AREAL,
    ONE_OFF,
    ROLLART,
    SYNC,
    SYNC_PLUS,
    System,
)
from artangram_bench.simulated.tasks import TaskShape
from artangram_bench.simulated.workload import (
    BOUND,
    PULL,
    PUSH,
    SHAPES,
    SWE,
    beside,
    mixed_tasks,
    stopping,
)

SIGMAS = (1.0, 4.0, 10.0)
PAPER_LATENCY = {1.0: (1.23, 1.23), 10.0: (2.27, 2.27)}
"""Between them it grows from one to the other."""

BOUNDS = (BOUND, 1)

PAPER_SPLIT = {
    "qwen3-32b": {(1, 3): 1.03, (2, 2): 1.05, (3, 1): None},
    "qwen3-30b-a3b": {(1, 3): 1.11, (2, 2): 1.21, (3, 1): None},
}
"""By nodes of eight devices that read and that write; its task is SWE-bench, in batches of 128. It
says of three and one only that it is the worst."""

# ROLLART's throughputs relative to the system before, over models of 8B to 32B: from and to.
ONE_OFF_OVER_SYNC_PLUS = (1.31, 1.47)
AREAL_OVER_ONE_OFF = (1.03, 1.06)
OURS_OVER_AREAL = (1.22, 1.36)


def trajectories(settings: Settings) -> Iterator[Row]:
    """Trajectory by trajectory against environments that wait for each other at every turn."""
    scenarios = {}
    for sigma in SIGMAS:
        apart = _slow_environments(sigma, settings.batch)
        scenarios[f"apart {sigma}"] = apart
        scenarios[f"in step {sigma}"] = structs.replace(apart, in_step=True)
    runs = run_all(scenarios, settings.seeds)
    for sigma in SIGMAS:
        yield compared(
            "trajectory-level rollout",
            f"environments of N(10 s, {sigma:g} s)",
            baseline=runs[f"in step {sigma}"],
            ours=runs[f"apart {sigma}"],
            paper=PAPER_LATENCY.get(sigma, (1.23, 2.27)),
        )


def _slow_environments(sigma: float, batch: int) -> Scenario:
    task = TaskShape(
        name="latency",
        turns=(20, 30),
        prompt_tokens=500,
        seen_tokens=100,
        reply_tokens=40,
        turn_s=10.0,
        turn_sigma_s=sigma,
    )
    return _one_task(task, {"H800": max(1, batch // 16)}, batch=batch)


def _one_task(task: TaskShape, devices: Mapping[str, int], *, batch: int) -> Scenario:
    """A batch of one task on Qwen3-8B, sampled and waited for."""
    return Scenario(
        loop=synchronous,
        model=model_shape("qwen3-8b"),
        pools=tuple(PoolPlan(hardware=kind, devices=n) for kind, n in devices.items()),
        tasks=(task,),
        groups=batch // 8,
        staleness=preset("sync"),
        steps=1,
    )


def calibration(settings: Settings) -> Iterator[Row]:
    """Are tasks alone as much faster on the hardware that fits as the paper measured?"""
    cheap, dear = {"H20": 6}, {"H800": 2}
    cases = {"lake": (cheap, dear, (1.0, 1 / 0.53)), "math": (dear, cheap, (1 / 0.79, 1 / 0.49))}
    for name, (slow, fast, paper) in cases.items():
        for batch in (64, 128, 256):
            scenarios = {
                "slow": _one_task(SHAPES[name], slow, batch=batch),
                "fast": _one_task(SHAPES[name], fast, batch=batch),
            }
            runs = run_all(scenarios, settings.seeds)
            yield compared(
                "tasks alone, two H800 and six H20",
                f"{name} on {next(iter(fast))}, batch {batch}",
                baseline=runs["slow"],
                ours=runs["fast"],
                paper=paper,
            )


def redundancy(settings: Settings) -> Iterator[Row]:
    """More groups or more siblings than needed, the slowest not waited for."""
    groups = 32
    math = structs.replace(SHAPES["math"], reply_spread=0.8)
    plain = structs.replace(_one_task(math, {"H800": groups}, batch=8 * groups), steps=3)
    more = {
        f"{extra} more groups, {siblings} more siblings": structs.replace(
            plain, extra_groups=extra, extra_siblings=siblings
        )
        for extra, siblings in ((groups // 4, 0), (0, 2), (0, 4), (groups // 4, 2))
    }
    runs = run_all({"plain": plain, **more}, settings.seeds)
    for case in more:
        yield compared(
            "redundant launches", case, baseline=runs["plain"], ours=runs[case], paper=(1.0, 1.62)
        )


def split(settings: Settings) -> Iterator[Row]:
    """One replica reads and another writes, against the same replicas doing both."""
    halves = splits_of({DEFAULT: {"prefill": "H800", "decode": "H20"}})
    ways = {"H800 read, H20 write": halves, "where it gains": splits_of("auto")}
    for model, papers in PAPER_SPLIT.items():
        for (readers, writers), paper in papers.items():
            whole = structs.replace(
                _one_task(SWE, {"H800": 8 * readers, "H20": 8 * writers}, batch=128),
                model=model_shape(model),
                affinity=affinity_of("auto"),
            )
            split = {how: structs.replace(whole, split=one) for how, one in ways.items()}
            runs = run_all({"whole": whole, **split}, settings.seeds)
            for how in ways:
                yield compared(
                    "reading and writing apart",
                    f"{model}, {8 * readers} H800 and {8 * writers} H20, {how}",
                    baseline=runs["whole"],
                    ours=runs[how],
                    paper=None if paper is None else (paper, paper),
                )


def asynchrony(settings: Settings) -> Iterator[Row]:
    """Bounded staleness on a mixed pool against the other systems on as many H800."""
    unbounded = (SYNC, SYNC_PLUS, ONE_OFF)
    scenarios = {one.name: _run_by(one, settings) for one in unbounded}
    for bound in BOUNDS:
        for one in (AREAL, ROLLART):
            scenarios[f"{one.name} {bound}"] = _run_by(one.bounded(bound), settings)
    scenarios["no slow link"] = _near(scenarios[f"{ROLLART.name} 1"])
    runs = run_all(scenarios, settings.seeds)
    for bound in BOUNDS:
        others = [*(one.name for one in unbounded), f"{AREAL.name} {bound}"]
        for other, paper in zip(others, _ladder(), strict=True):
            yield compared(
                "asynchronous training",
                f"bound {bound}, against {other}",
                baseline=runs[other],
                ours=runs[f"{ROLLART.name} {bound}"],
                paper=paper,
                in_tokens=True,
            )

    yield compared(
        "asynchronous training",
        "bound 1 and no slow link, against areal 1",
        baseline=runs[f"{AREAL.name} 1"],
        ours=runs["no slow link"],
        paper=None,
        in_tokens=True,
    )


def _near(scenario: Scenario) -> Scenario:
    """The same with all devices in the trainer's cluster: what the slow link costs."""
    pools = tuple(structs.replace(pool, is_far=False) for pool in scenario.pools)
    return structs.replace(scenario, pools=pools)


def _ladder() -> list[tuple[float, float]]:
    """What ROLLART's steps of throughput come to against each baseline, the first as printed."""
    found = [OURS_OVER_AREAL]
    for low, high in (AREAL_OVER_ONE_OFF, ONE_OFF_OVER_SYNC_PLUS):
        found.append((found[-1][0] * low, found[-1][1] * high))
    return [(2.65, 4.58), *reversed(found)]


def ablation(settings: Settings) -> Iterator[Row]:
    """What each thing gains that ours has and areal has not, by itself."""
    areal, ours = AREAL.bounded(BOUND), ROLLART.bounded(BOUND)
    alone = [one.bounded(BOUND) for one in ALONE]
    scenarios = {one.name: _run_by(one, settings) for one in (areal, ours, *alone)}
    model = model_shape("qwen3-8b")
    stops = {"push and pull, one after the other": (PUSH, PULL), "the push alone": (PUSH,)}
    for name, links in stops.items():
        times = stopping(model, *links)
        scenarios[name] = structs.replace(scenarios[ours.name], weights=times)
    runs = run_all(scenarios, settings.seeds)
    experiment = "each feature alone"
    for one in alone:
        yield compared(
            experiment,
            f"areal with {one.name}, against areal",
            baseline=runs["areal"],
            ours=runs[one.name],
            paper=None,
            in_tokens=True,
        )
    for name in stops:
        yield compared(
            experiment,
            f"weights beside the work, against stopping for {name}",
            baseline=runs[name],
            ours=runs[ours.name],
            paper=(1.10, 1.16),
        )


def _run_by(system: System, settings: Settings) -> Scenario:
    return system.on(endless(system.devices, settings, train_devices=system.train_devices))


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


def weights(settings: Settings) -> Iterator[WeightRow]:
    """The part of a pull that stops a replica."""
    scenarios = {}
    for name in PAPER_EXPOSED:
        plain = mixed_tasks({"H20": 64}, model=name, scale=settings.scale)
        times = beside(plain.model)
        scenarios[name] = structs.replace(plain, weights=times, at_once=ALL, steps=2)
    for name, (outcome,) in run_all(scenarios, settings.seeds[:1]).items():
        yield WeightRow(
            model=name,
            push_s=scenarios[name].weights.push_s,
            accumulated_s=outcome.accumulated_s / outcome.swaps,
            exposed_s=outcome.exposed_s / outcome.swaps,
            share=outcome.exposed_s / outcome.accumulated_s,
            paper_share=PAPER_EXPOSED[name],
        )
