"""Agents that search: calls to outside APIs with quotas, and a judge model at the end.

A call needs the `search` quota, the `browse` quota or both. The judge is a service that runs at any
of its degrees. Presets: `default` with 512 trajectories a step, `paper` with 2048.
"""

from collections.abc import Iterator
from random import Random

from msgspec import Struct

from artangram.core.ids import JobId, Resource, ServiceId, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.core.scheduling.needs import Needs
from artangram.observe.trace import TraceAction, TraceTrajectory, TraceTurn
from artangram.sim.families.draw import (
    GPU,
    Count,
    Positive,
    Seconds,
    Share,
    Spread,
    Units,
    duration,
    fails_at,
    lognormal,
    service_call,
    stream,
)
from artangram.sim.families.hardware import api_quota, gpu_pool, model_service

SEARCH = Resource("search")
BROWSE = Resource("browse")
JUDGE = "judge"
JUDGE_DEGREES = (2, 4, 8)
SERIAL = 0.1
"""Of a model call over several devices: communication does not get faster."""

_SEARCH = Needs(amounts=((SEARCH, (1,)),))
_BROWSE = Needs(amounts=((BROWSE, (1,)),))
_BOTH = Needs(amounts=((SEARCH, (1,)), (BROWSE, (1,))))


class DeepsearchParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tasks: Count = 1
    batch: Count = 512
    """Trajectories of one task in one step."""
    steps: Count = 3
    train_s: Seconds = 60.0
    calls_median: Positive = 10.0
    calls_sigma: Spread = 0.6
    calls_max: Count = 60
    think_median_s: Seconds = 8.0
    think_sigma: Spread = 0.8
    call_median_s: Seconds = 0.8
    call_sigma: Spread = 0.8
    call_max_s: Positive = 60.0
    browse_share: Share = 0.3
    """Calls that open a page instead of searching."""
    both_share: Share = 0.1
    """Calls that do both at once."""
    judge_median_s: Seconds = 4.0
    """On one device; about 1.3 s on four."""
    judge_sigma: Spread = 0.4
    fail_share: Share = 0.0


class DeepsearchSizes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    search_per_minute: Units = 1200
    browse_per_minute: Units = 900
    concurrency: Units = 64
    """Calls under way at once, for each API."""
    gpus: Units = 8
    judge_gb: Positive = 64.0
    restore_gb_per_s: Positive = 16.0


SIZES = DeepsearchSizes()
PRESETS = {"default": DeepsearchParams(), "paper": DeepsearchParams(batch=2048)}


def train_s(params: DeepsearchParams) -> float:
    return params.train_s


def trajectories(params: DeepsearchParams, *, seed: int) -> Iterator[TraceTrajectory]:
    for step in range(params.steps):
        yield from of_step(params, seed=seed, step=step)


def of_step(params: DeepsearchParams, *, seed: int, step: int) -> Iterator[TraceTrajectory]:
    """The trajectories of one step, task after task."""
    for task in range(params.tasks):
        rng = stream("deepsearch", seed, step, task)
        for index in range(params.batch):
            yield TraceTrajectory(
                trajectory=TrajectoryId(f"search-{task}-{step}-{index}"),
                turns=tuple(_turns(rng, params)),
                job=JobId("deepsearch"),
                task=f"search-{task}",
                step=step,
            )


def cluster(sizes: DeepsearchSizes) -> ClusterSpec:
    pool = gpu_pool(sizes.gpus, restore_gb_per_s=sizes.restore_gb_per_s)
    return ClusterSpec(
        pools={
            SEARCH: api_quota(sizes.search_per_minute, concurrency=sizes.concurrency),
            BROWSE: api_quota(sizes.browse_per_minute, concurrency=sizes.concurrency),
            GPU: pool,
        },
        services={ServiceId(JUDGE): model_service(sizes.judge_gb, JUDGE_DEGREES, on=pool)},
    )


def _turns(rng: Random, params: DeepsearchParams) -> Iterator[TraceTurn]:
    """Calls, then the judge."""
    drawn = lognormal(rng, params.calls_median, sigma=params.calls_sigma, most=params.calls_max)
    for index in range(num := max(1, round(drawn)) + 1):
        think_s = lognormal(rng, params.think_median_s, sigma=params.think_sigma)
        action = _judge(rng, params) if index == num - 1 else _call(rng, params)
        yield TraceTurn(think_s=think_s, actions=(action,))


def _call(rng: Random, params: DeepsearchParams) -> TraceAction:
    draw = rng.random()
    if draw < params.both_share:
        kind, needs = "search/both", _BOTH
    elif draw < params.both_share + params.browse_share:
        kind, needs = "search/browse", _BROWSE
    else:
        kind, needs = "search/search", _SEARCH
    work_s = duration(rng, params.call_median_s, sigma=params.call_sigma, most=params.call_max_s)
    failure = fails_at(rng, params.fail_share, work_s=work_s)
    return TraceAction(kind=kind, needs=needs, work_s=work_s, fail_at_s=failure, repeatable=True)


def _judge(rng: Random, params: DeepsearchParams) -> TraceAction:
    return TraceAction(
        kind="search/judge",
        needs=service_call(JUDGE, JUDGE_DEGREES, SERIAL),
        work_s=duration(rng, params.judge_median_s, sigma=params.judge_sigma),
        reward=True,
        repeatable=True,
    )
