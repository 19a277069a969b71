"""All families at once, each as its own job, on one cluster."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from artangram.core.scheduling.cluster import ClusterSpec
from artangram.observe.trace import TraceTrajectory
from artangram.sim.families import coding, deepsearch, mopd
from artangram.sim.families.draw import Count, Penalty, Positive, Seconds, Units


class MixedParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    steps: Count = 3
    train_s: Seconds = 60.0
    """Of every job; `duty` is what the teachers would have with the training time of `mopd`."""
    coding_tasks: Count = 3
    coding_batch: Count = 256
    search_tasks: Count = 1
    search_batch: Count = 256
    mopd_batch: Count = 128
    services: Units = 10
    duty: Annotated[float, Meta(gt=0, lt=1)] = 0.04


class MixedSizes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cores: Units = 256
    node_cores: Units = 256
    memory_gb: Units = 2400
    squeeze_penalty: Penalty = 0.0
    gpus: Units = 48
    services: Units = 10
    search_per_minute: Units = 1200
    browse_per_minute: Units = 900
    concurrency: Units = 64
    restore_gb_per_s: Positive = 16.0


SIZES = MixedSizes()
PRESETS = {"default": MixedParams()}


def train_s(params: MixedParams) -> float:
    return params.train_s


def trajectories(params: MixedParams, *, seed: int) -> Iterator[TraceTrajectory]:
    code = coding.CodingParams(tasks=params.coding_tasks, batch=params.coding_batch)
    search = deepsearch.DeepsearchParams(tasks=params.search_tasks, batch=params.search_batch)
    teach = mopd.MopdParams(batch=params.mopd_batch, services=params.services, duty=params.duty)
    for step in range(params.steps):
        yield from coding.of_step(code, seed=seed, step=step)
        yield from deepsearch.of_step(search, seed=seed, step=step)
        yield from mopd.of_step(teach, seed=seed, step=step)


def cluster(sizes: MixedSizes) -> ClusterSpec:
    """The clusters of the families, with one GPU pool for the judge and the teachers."""
    code = coding.cluster(
        coding.CodingSizes(
            cores=sizes.cores,
            node_cores=sizes.node_cores,
            memory_gb=sizes.memory_gb,
            squeeze_penalty=sizes.squeeze_penalty,
        )
    )
    search = deepsearch.cluster(
        deepsearch.DeepsearchSizes(
            search_per_minute=sizes.search_per_minute,
            browse_per_minute=sizes.browse_per_minute,
            concurrency=sizes.concurrency,
            gpus=sizes.gpus,
        )
    )
    teach = mopd.cluster(
        mopd.MopdSizes(
            gpus=sizes.gpus, services=sizes.services, restore_gb_per_s=sizes.restore_gb_per_s
        )
    )
    return ClusterSpec(
        pools={**code.pools, **search.pools, **teach.pools},
        services={**search.services, **teach.services},
    )
