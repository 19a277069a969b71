"""Changes a running cluster: shares, limits of jobs, ceilings of functions, limits of APIs.

- `event_of` checks what is wanted before anything happens; the event goes through the journal as
  every other one does.
- `carry_out` tells what carries calls out, when the journal has the event. After a restart the
  cluster is what it is started with.
- A caller that reads the wanted values from a file also sends what that file says of the rest: see
  `check_same`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, runtime_checkable

from msgspec import Meta, Struct, structs

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.cluster import (
    CallWindow,
    ClusterSpec,
    FunctionsSpec,
    JobLimits,
    PoolSpec,
    QuotaSpec,
)
from artangram.core.scheduling.events import Reconfigured
from artangram.core.scheduling.reconfigure import checked
from artangram.managers.call import ApiCall, FunctionCall
from artangram.managers.calls import Carrier
from artangram.managers.functions import FunctionsManager

if TYPE_CHECKING:  # Only clusters with APIs have the packages for them.
    from artangram.apis.client import ApiClient

FUNCTIONS = Resource("functions")

T = TypeVar("T")
Spec = TypeVar("Spec", QuotaSpec, FunctionsSpec)

_Some = Annotated[int, Meta(ge=1)]


class ApiLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an API allows."""

    concurrency: _Some | None = None
    """Calls under way at once; `None` for any number."""
    limit: _Some | None = None
    """Calls in any window of `window_s`; `None` for any number."""
    window_s: Annotated[float, Meta(gt=0)] = 60.0
    windows: tuple[CallWindow, ...] = ()
    """Further limits, all of which hold."""


class Reconfiguration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a running cluster should be like. What is left out stays as it is."""

    shares: dict[str, float] | None = None
    """Of all jobs that do not have 1."""
    limits: dict[str, JobLimits] | None = None
    """Of all jobs that have any."""
    ceilings: dict[str, _Some] = {}
    """Function slots: `functions` are workers, `platform` calls behind a URL."""
    apis: dict[str, ApiLimits] = {}
    fixed: dict[str, str] | None = None
    """What cannot change, as far as the sender knows it."""


@runtime_checkable
class _WithApis(Protocol):
    """A carrier that calls APIs."""

    clients: "dict[Resource, ApiClient]"


def event_of(
    wanted: Reconfiguration, cluster: ClusterSpec, carriers: Mapping[type, Carrier]
) -> Reconfigured:
    """What the scheduler is to be told. Raises `BadInput`."""
    pools: dict[Resource, QuotaSpec | FunctionsSpec] = {}
    for name, ceiling in wanted.ceilings.items():
        slots = _pool(cluster, f"ceilings.{name}", Resource(name), FunctionsSpec)
        pools[Resource(name)] = structs.replace(slots, ceiling=ceiling)
    for name, limits in wanted.apis.items():
        quota = _pool(cluster, f"apis.{name}", Resource(name), QuotaSpec)
        pools[Resource(name)] = _quota(Resource(name), quota, limits, carriers)
    before = cluster.pools
    event = Reconfigured(
        shares=None if wanted.shares is None else _by_job(wanted.shares),
        limits=None if wanted.limits is None else _by_job(wanted.limits),
        pools={name: spec for name, spec in pools.items() if spec != before[name]},
    )
    return checked(event, cluster)


def carry_out(wanted: Reconfiguration, carriers: Mapping[type, Carrier]) -> None:
    """Tell what carries calls out."""
    functions, apis = carriers.get(FunctionCall), carriers.get(ApiCall)
    ceiling = wanted.ceilings.get(FUNCTIONS)
    if ceiling is not None and isinstance(functions, FunctionsManager):
        functions.local.workers.resize(ceiling)
    if isinstance(apis, _WithApis):
        for name, limits in wanted.apis.items():
            client = apis.clients[Resource(name)]
            client.reconfigure(structs.replace(client.spec, **_fields(limits)))


def check_same(fixed: Mapping[str, str], running: Mapping[str, str]) -> None:
    """Raises `BadInput` for the first of the `fixed` values that is another one where it runs."""
    unsaid = "not given"
    for name in sorted({*fixed, *running}):
        wanted, has = fixed.get(name, unsaid), running.get(name, unsaid)
        if wanted != has:
            raise BadInput(
                name,
                f"is {has} and cannot become {wanted} while the cluster runs",
                "stop the service when its work has ended, and start it with the new file",
            )


def _by_job(given: Mapping[str, T]) -> dict[JobId, T]:
    return {JobId(job): one for job, one in given.items()}


def _pool(cluster: ClusterSpec, field: str, name: Resource, kind: type[Spec]) -> Spec:
    spec: PoolSpec | None = cluster.pools.get(name)
    if isinstance(spec, kind):
        return spec
    known = sorted(one for one, other in cluster.pools.items() if isinstance(other, kind))
    fix = f"name one of: {', '.join(known)}" if known else "this cluster has none"
    raise BadInput(field, "is not there", fix)


def _quota(
    name: Resource, before: QuotaSpec, limits: ApiLimits, carriers: Mapping[type, Carrier]
) -> QuotaSpec:
    """The pool of an API: its client knows how much longer than the API's our window has to be."""
    given, apis = _fields(limits), carriers.get(ApiCall)
    if isinstance(apis, _WithApis) and name in apis.clients:
        given = _fields(structs.replace(apis.clients[name].spec, **given).quota())
    return structs.replace(before, **given | {"overhead_s": before.overhead_s})


def _fields(record: Struct) -> dict[str, Any]:
    """Its fields as they are, records among them."""
    return {name: getattr(record, name) for name in record.__struct_fields__}
