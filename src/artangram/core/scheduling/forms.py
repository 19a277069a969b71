"""Needs against a cluster: which lane an action waits in, and whether it could ever run.

An action waits in the lane of its elastic resource; without one, in the lane of the resource that
is hardest to come by (devices, then cores, then slots, then calls). The rest are its secondary
resources.
"""

from collections.abc import Mapping
from functools import lru_cache

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, Resource, ServiceId
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    JobLimits,
    PoolSpec,
    QuotaSpec,
    ServiceSpec,
)
from artangram.core.scheduling.events import Reconfigured
from artangram.core.scheduling.needs import Amounts, Needs
from artangram.core.scheduling.policies.base import Form
from artangram.core.scheduling.reconfigure import applied

_HARDEST_FIRST = (GpuSpec, CpuSpec, FunctionsSpec, QuotaSpec)

_ANY_JOB = JobId("default")

MOST_KNOWN = 1 << 14
"""Forms to remember. Callers who measure a speed-up for every single action never ask twice."""


class Forms:
    """The form of every set of needs seen lately."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        self._known: dict[Needs, Form] = {}

    def __len__(self) -> int:
        return len(self._known)

    def deploy(self, service: ServiceId, spec: ServiceSpec) -> None:
        """From now on there is such a service. Raises `BadInput` if it cannot be one."""
        if service in self._cluster.services:
            raise BadInput("service", f"{service!r} is already deployed", "give it another name")
        if not isinstance(self._cluster.pools.get(spec.pool), GpuSpec):
            raise BadInput("pool", f"{spec.pool!r} has no devices", "name a pool of devices")
        services = {**self._cluster.services, service: spec}
        self._cluster = structs.replace(self._cluster, services=services)

    def node_joined(self, resource: Resource, cores: int) -> None:
        """A node with `cores` joined a CPU pool: what only it can serve has a form now."""
        pool = self._cluster.pools[resource]
        if isinstance(pool, CpuSpec) and cores > pool.cores:
            pools = {**self._cluster.pools, resource: structs.replace(pool, cores=cores)}
            self._cluster = structs.replace(self._cluster, pools=pools)
            self._known.clear()

    def reconfigure(self, event: Reconfigured) -> None:
        """Pools or jobs have other limits now."""
        self._cluster = applied(event, self._cluster)
        self._known.clear()

    def of(self, needs: Needs, job: JobId = _ANY_JOB) -> Form:
        """The form of `needs`; `BadInput` when no node or quota could ever serve them."""
        form = self._known.get(needs)
        if form is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            form = self._known[needs] = _form(needs, self._cluster)
        limits = self._cluster.limits.get(job)
        return form if limits is None else _within(form, job, limits, self._cluster.pools)


@lru_cache(maxsize=1024)
def clipped(form: Form, cores: int) -> Form:
    """What an action can run with on a node that has only `cores`."""
    return structs.replace(form, amounts=tuple(n for n in form.amounts if n <= cores))


def _within(form: Form, job: JobId, limits: JobLimits, pools: Mapping[Resource, PoolSpec]) -> Form:
    """What an action of `job` can run with under its maximum; `BadInput` if it never can."""
    for name, units in ((form.resource, form.amounts[0]), *form.secondary):
        what, most = most_of_job(limits, pools[name])
        if most is not None and units > most:
            problem = f"asks for at least {units}, and job {job} may hold {most} {what} at most"
            raise BadInput(f"needs.{name}", problem, f"raise max_{what} of the job or ask for less")
    _, most = most_of_job(limits, pools[form.resource])
    return form if most is None or form.amounts[-1] <= most else clipped(form, most)


def most_of_job(limits: JobLimits, pool: PoolSpec) -> tuple[str, int | None]:
    """What a job holds of `pool`, and how many at most."""
    match pool:
        case CpuSpec():
            return "cores", limits.max_cores
        case GpuSpec():
            return "devices", None
    return "calls", limits.max_calls


def _form(needs: Needs, cluster: ClusterSpec) -> Form:
    served = {name: _servable(name, needs, cluster) for name, _ in needs.amounts}
    cpu = [name for name in served if isinstance(cluster.pools[name], CpuSpec)]
    if len(cpu) > 1:
        raise BadInput("needs", f"cores of {' and '.join(cpu)}", "an action runs on one node")
    primary = needs.elastic or min(served, key=lambda name: _hardness(cluster.pools, name))
    return Form(
        resource=primary,
        amounts=served[primary],
        secondary=tuple((name, served[name][0]) for name in sorted(served) if name != primary),
        is_elastic=needs.elastic is not None and len(served[primary]) > 1,
        service=needs.service,
    )


def _hardness(pools: Mapping[Resource, PoolSpec], name: Resource) -> tuple[int, Resource]:
    return (_HARDEST_FIRST.index(type(pools[name])), name)


def _servable(name: Resource, needs: Needs, cluster: ClusterSpec) -> Amounts:
    """The amounts of `name` that the cluster could ever grant."""
    pool = cluster.pools.get(name)
    if pool is None:
        known = ", ".join(sorted(cluster.pools))
        raise BadInput(f"needs.{name}", "no such resource here", f"use one of: {known}")
    most, amounts = _most(pool), needs.of(name)
    if isinstance(pool, GpuSpec):
        amounts = _degrees(name, amounts, needs, cluster)
    fitting = tuple(a for a in amounts if most is None or a <= most)
    if not fitting:
        raise BadInput(
            f"needs.{name}",
            f"asks for at least {amounts[0]}, which can never fit: {most} is all one can have",
            f"ask for {most} or less, or enlarge the pool",
        )
    return fitting


def _most(pool: PoolSpec) -> int | None:
    match pool:
        case CpuSpec():
            return pool.cores
        case GpuSpec():
            return pool.devices
        case FunctionsSpec():
            return pool.ceiling
    further = [window.limit for window in pool.windows if window.unit == "calls"]
    limits = [x for x in (pool.concurrency, pool.limit, *further) if x is not None]
    return min(limits) if limits else None


def _degrees(name: Resource, amounts: Amounts, needs: Needs, cluster: ClusterSpec) -> Amounts:
    """The degrees at which the action's service can run within `amounts`."""
    service = cluster.services.get(needs.service) if needs.service is not None else None
    if service is None or service.pool != name:
        known = ", ".join(sorted(s for s, spec in cluster.services.items() if spec.pool == name))
        fix = f"use: {known}" if known else "describe it under services"
        raise BadInput("service", f"{needs.service!r} is not a service of {name}", fix)
    pool = cluster.pools[name]
    assert isinstance(pool, GpuSpec)
    degrees = tuple(
        degree
        for degree in sorted(service.degrees)
        if degree in amounts and service.device_mb(degree) <= pool.memory_mb
    )
    if not degrees:
        able = ", ".join(str(d) for d in service.degrees)
        raise BadInput(
            f"needs.{name}",
            f"{needs.service} cannot run on {list(amounts)} devices of {pool.memory_mb} MB",
            f"ask for one of its degrees ({able}) that fits a device's memory",
        )
    return degrees
