"""Agents that write code: many short commands, some builds, one long elastic test at the end.

Every task is a training run of its own, a job with its own steps. All trajectories of a step start
at once and think between their commands, so demand comes as a burst that melts into a long tail.
Presets:

- `default`: three jobs of 256 trajectories, think times of a busy inference cluster. Mean fastest
  action about 1.35 s, critical path of a job's step about 780 s, the longest of the three 910 s.
- `paper`: one task of 1280 trajectories that are active for 47 % of their life when elastic actions
  run on 4 cores, tests that scale to 32 cores, and about 1 s in a mean action.
- `shell`: as `default`, with commands of four kinds, some that run for minutes on one core, and
  suites with a heavier tail.
"""

import math
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.observe.trace import TraceAction, TraceTrajectory, TraceTurn
from artangram.sim.families.draw import (
    CPU,
    ONE_CORE,
    Count,
    Penalty,
    Positive,
    Seconds,
    Share,
    Size,
    Spread,
    Units,
    duration,
    elastic_cores,
    fails_at,
    lognormal,
    stream,
)

TOKENS_PER_S = 40
"""What one trajectory decodes while it thinks; token counts are for readers, not for schedules."""
OBSERVATION_TOKENS = 300


class CodingParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tasks: Count = 3
    """Each is a job of its own."""
    batch: Count = 256
    """Trajectories of one task in one step."""
    steps: Count = 3
    train_s: Seconds = 60.0
    turns_median: Positive = 12.8
    turns_sigma: Spread = 0.56
    turns_max: Count = 68
    think_median_s: Seconds = 10.0
    think_sigma: Spread = 0.6
    tool_median_s: Seconds = 0.42
    tool_sigma: Spread = 1.2
    build_share: Share = 0.08
    """Commands that are builds, and can use several cores."""
    build_median_s: Seconds = 6.0
    build_sigma: Spread = 0.7
    build_cores: Units = 8
    test_median_s: Seconds = 30.0
    test_sigma: Spread = 0.93
    test_cores: Units = 16
    """The most cores a final test can use."""
    serial_min: Share = 0.02
    serial_max: Share = 0.2
    """Amdahl's serial share is drawn evenly between these."""
    longest_s: Positive = 600.0
    """No action takes longer on one core: harnesses cut them off."""
    memory_mb: Size = 2048
    fail_share: Share = 0.0
    group: Count = 8
    """Trajectories that attempt the same problem: its builds and its suite are much alike."""
    alike: Spread = 0.25
    """How much they differ all the same."""
    tool_kinds: Count = 1
    """The kinds of commands in a shell; kinds differ as much as commands of one kind."""
    long_share: Share = 0.0
    """Commands that run long on one core, in the middle of a trajectory."""
    long_median_s: Seconds = 60.0
    long_sigma: Spread = 1.0


class CodingSizes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cores: Units = 1280
    node_cores: Units = 256
    """The most cores of a node."""
    memory_gb: Units = 2400
    """Of one node."""
    squeeze_penalty: Penalty = 0.0
    create_s: Seconds = 1.5
    overhead_s: Seconds = 0.02
    pods_per_s: Positive = 20.0


SIZES = CodingSizes()
PRESETS = {
    "default": CodingParams(),
    "paper": CodingParams(
        tasks=1,
        batch=1280,
        think_median_s=1.36,
        tool_median_s=0.32,
        build_median_s=5.0,
        test_median_s=23.0,
        test_cores=32,
    ),
    "shell": CodingParams(tool_kinds=4, long_share=0.01, build_share=0.06, test_sigma=1.2),
}


class _Problem(NamedTuple):
    """What siblings share: how long builds and tests take, and how they scale."""

    build: float
    test: float
    build_serial: float
    test_serial: float

    @staticmethod
    def drawn(rng: Random, params: CodingParams) -> "_Problem":
        return _Problem(
            build=rng.gauss(0.0, 1.0),
            test=rng.gauss(0.0, 1.0),
            build_serial=_serial(rng, params),
            test_serial=_serial(rng, params),
        )


def train_s(params: CodingParams) -> float:
    return params.train_s


def trajectories(params: CodingParams, *, seed: int) -> Iterator[TraceTrajectory]:
    for step in range(params.steps):
        yield from of_step(params, seed=seed, step=step)


def of_step(params: CodingParams, *, seed: int, step: int) -> Iterator[TraceTrajectory]:
    """The trajectories of one step, task after task."""
    for task in range(params.tasks):
        rng = stream("coding", seed, step, task)
        for index in range(params.batch):
            number = index // params.group
            if index % params.group == 0:
                problem = _Problem.drawn(stream("coding", seed, step, task, number), params)
            yield TraceTrajectory(
                trajectory=TrajectoryId(f"coding-{task}-{step}-{index}"),
                turns=tuple(_turns(rng, params, problem)),
                problem=f"{step}/{number}" if params.group > 1 else "",
                job=JobId(f"coding-{task}"),
                task=f"swe-{task}",
                step=step,
                memory_mb=params.memory_mb,
            )


def cluster(sizes: CodingSizes) -> ClusterSpec:
    return ClusterSpec(pools={CPU: cpu_pool(sizes)})


def cpu_pool(sizes: CodingSizes) -> CpuSpec:
    """Equal nodes of at most `node_cores` cores."""
    nodes = -(-sizes.cores // sizes.node_cores)
    if sizes.cores % nodes:
        fix = f"give a multiple of {nodes} or set node_cores"
        raise BadInput("cores", f"{sizes.cores} do not make {nodes} equal nodes", fix)
    cores = sizes.cores // nodes
    return CpuSpec(
        nodes=nodes,
        cores=cores,
        numa=2 if cores % 2 == 0 else 1,
        memory_mb=sizes.memory_gb * 1000,
        squeeze_penalty=sizes.squeeze_penalty,
        create_s=sizes.create_s,
        overhead_s=sizes.overhead_s,
        pods_per_s=sizes.pods_per_s,
    )


def _turns(rng: Random, params: CodingParams, problem: _Problem) -> Iterator[TraceTurn]:
    """Commands, then the test that is the reward."""
    drawn = lognormal(rng, params.turns_median, sigma=params.turns_sigma, most=params.turns_max)
    context = 1500
    for index in range(num := max(1, round(drawn)) + 1):
        think_s = lognormal(rng, params.think_median_s, sigma=params.think_sigma)
        output = round(think_s * TOKENS_PER_S)
        make = _test if index == num - 1 else _command
        action = make(rng, params, problem)
        yield TraceTurn(
            think_s=think_s, prompt_tokens=context, output_tokens=output, actions=(action,)
        )
        context += output + OBSERVATION_TOKENS


def _command(rng: Random, params: CodingParams, problem: _Problem) -> TraceAction:
    needs, longest = ONE_CORE, params.longest_s
    if rng.random() < params.build_share:
        median, sigma = params.build_median_s, params.build_sigma
        work_s = _shared(rng, params, median, sigma=sigma, shared=problem.build)
        needs, kind = elastic_cores(params.build_cores, problem.build_serial), "swe/build"
    elif params.long_share and rng.random() < params.long_share:
        kind = "swe/long"
        work_s = duration(rng, params.long_median_s, sigma=params.long_sigma, most=longest)
    else:
        kind, work_s = _tool(rng, params)
    failure = fails_at(rng, params.fail_share, work_s=work_s)
    return TraceAction(kind=kind, needs=needs, work_s=work_s, fail_at_s=failure)


def _tool(rng: Random, params: CodingParams) -> tuple[str, float]:
    """A command of a shell. All kinds together are spread as one would be."""
    median, sigma, longest = params.tool_median_s, params.tool_sigma, params.longest_s
    if params.tool_kinds == 1:
        return "swe/tool", duration(rng, median, sigma=sigma, most=longest)
    apart = sigma / math.sqrt(2.0)
    number = rng.randrange(params.tool_kinds)
    # Medians of kinds lie evenly around that of all, with half of the variance.
    place = (2 * number + 1 - params.tool_kinds) / params.tool_kinds * math.sqrt(3.0)
    work_s = duration(rng, median * math.exp(apart * place), sigma=apart, most=longest)
    return f"swe/tool-{number}", work_s


def _test(rng: Random, params: CodingParams, problem: _Problem) -> TraceAction:
    median, sigma = params.test_median_s, params.test_sigma
    work_s = _shared(rng, params, median, sigma=sigma, shared=problem.test)
    needs = elastic_cores(params.test_cores, problem.test_serial)
    failure = fails_at(rng, params.fail_share, work_s=work_s)
    return TraceAction(kind="swe/test", needs=needs, work_s=work_s, fail_at_s=failure, reward=True)


def _shared(
    rng: Random, params: CodingParams, median: float, *, sigma: float, shared: float
) -> float:
    """How long something takes that siblings do alike; over all problems, `sigma` as ever."""
    own = min(params.alike, sigma)
    between = math.sqrt(sigma * sigma - own * own)
    return duration(rng, median * math.exp(between * shared), sigma=own, most=params.longest_s)


def _serial(rng: Random, params: CodingParams) -> float:
    # To a hundredth: equal curves share one object, and no measurement is closer.
    return round(rng.uniform(params.serial_min, params.serial_max), 2)
