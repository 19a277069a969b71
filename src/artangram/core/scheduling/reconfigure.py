"""What of a cluster may change while it runs: shares, limits of jobs, of APIs and of functions.

The rest (cores, devices, services, names of pools) belongs to machines and processes that are
there. `checked` refuses it before anything is told; `applied` is the cluster after an event.
"""

import math
from collections.abc import Mapping

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    FunctionsSpec,
    JobLimits,
    PoolSpec,
    QuotaSpec,
)
from artangram.core.scheduling.events import Reconfigured

_STAYS: dict[type, tuple[str, ...]] = {
    QuotaSpec: ("overhead_s",),
    FunctionsSpec: ("cold_s", "idle_s", "overhead_s"),
}
"""Pools that may change, but for these fields."""


def checked(event: Reconfigured, cluster: ClusterSpec) -> Reconfigured:
    """`event` itself. Raises `BadInput` for what no cluster could be, or not without a restart."""
    for job, share in (event.shares or {}).items():
        if not 0 < share < math.inf:
            raise BadInput(f"jobs.{job}.share", f"{share} is not a share", "give a number above 0")
    for job, limits in (event.limits or {}).items():
        _check_limits(job, limits)
    for name, spec in event.pools.items():
        _check_pool(name, spec, cluster.pools)
    return event


def applied(event: Reconfigured, cluster: ClusterSpec) -> ClusterSpec:
    """`cluster` as it is after `event`."""
    return structs.replace(
        cluster,
        pools={**cluster.pools, **event.pools},
        shares=cluster.shares if event.shares is None else event.shares,
        limits=cluster.limits if event.limits is None else event.limits,
    )


def changed_in_place(
    event: Reconfigured, cluster: ClusterSpec, *, is_first: bool = False
) -> ClusterSpec:
    """As `applied`, with the same dicts of shares and limits, which lanes look things up in.

    The first time they are copies: a description that is shared does not change.
    """
    after = applied(event, cluster)
    if is_first:
        return structs.replace(after, shares=dict(after.shares), limits=dict(after.limits))
    shares, limits = dict(after.shares), dict(after.limits)
    cluster.shares.clear()
    cluster.shares.update(shares)
    cluster.limits.clear()
    cluster.limits.update(limits)
    return structs.replace(cluster, pools=after.pools)


def relimited(event: Reconfigured, cluster: ClusterSpec) -> set[JobId]:
    """The jobs that have other limits after `event`."""
    if event.limits is None:
        return set()
    before, after = cluster.limits, event.limits
    return {job for job in before.keys() | after.keys() if before.get(job) != after.get(job)}


def difference(now: ClusterSpec, wanted: ClusterSpec) -> Reconfigured | None:
    """What makes `now` into `wanted`, which differ in nothing else; `None` if they are equal."""
    changed = {
        name: spec
        for name, spec in wanted.pools.items()
        if isinstance(spec, QuotaSpec | FunctionsSpec) and spec != now.pools[name]
    }
    event = Reconfigured(
        shares=None if now.shares == wanted.shares else wanted.shares,
        limits=None if now.limits == wanted.limits else wanted.limits,
        pools=changed,
    )
    return None if event == Reconfigured() else event


def fixed(cluster: ClusterSpec) -> ClusterSpec:
    """`cluster` without what may change."""
    pools = {name: _fixed_pool(spec) for name, spec in cluster.pools.items()}
    return structs.replace(cluster, pools=pools, shares={}, limits={})


def _fixed_pool(spec: PoolSpec) -> PoolSpec:
    match spec:
        case QuotaSpec():
            return QuotaSpec(overhead_s=spec.overhead_s)
        case FunctionsSpec():
            return structs.replace(spec, ceiling=1)
    return spec


def _check_limits(job: JobId, limits: JobLimits) -> None:
    for what in ("memory_mb", "trajectories", "cores", "calls"):
        least, most = getattr(limits, f"min_{what}"), getattr(limits, f"max_{what}")
        if most is not None and least > most:
            problem = f"{least} is above max_{what}, which is {most}"
            raise BadInput(f"jobs.{job}.min_{what}", problem, "swap them")


def _check_pool(name: Resource, spec: PoolSpec, pools: Mapping[Resource, PoolSpec]) -> None:
    before = pools.get(name)
    if before is None:
        may = sorted(one for one, known in pools.items() if type(known) in _STAYS)
        fix = f"name one of: {', '.join(may)}" if may else "this cluster has no API and no function"
        raise BadInput(f"pools.{name}", "is not a pool of this cluster", fix)
    if _fixed_pool(spec) != _fixed_pool(before):
        fix = "start the cluster again with it"
        raise BadInput(f"pools.{name}", "cannot become this while the cluster runs", fix)
    for key in spec.__struct_fields__:
        value = getattr(spec, key)
        is_number = isinstance(value, int | float)
        if is_number and value <= 0 and key not in _STAYS[type(spec)]:
            raise BadInput(f"pools.{name}.{key}", f"{value!r} allows nothing", "give more than 0")
