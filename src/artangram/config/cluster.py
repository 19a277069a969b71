"""What a cluster file says, and what it means to a simulation and to a live service.

- A field is `None` where the file does not say it: it is discovered, measured or has a default.
- `ClusterFile.simulated` is the cluster that a simulation schedules; `cores`, `memory_mb`,
  `options` and `shares` are what `artangram up` opens. Both give the scheduler the same pools, up
  to what only a running machine knows: its free memory, its NUMA domains, what a service measured.
- `ignored_in_simulation` and `ignored_live` name every field that has no effect there.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, structs

from artangram.apis.spec import ApiSpec
from artangram.config.providers import ProviderNames
from artangram.core.errors import BadInput
from artangram.core.ids import JobId, Resource, ServiceId
from artangram.core.scheduling.cluster import (
    CallWindow,
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    JobLimits,
    PoolSpec,
    QuotaSpec,
    ServiceSpec,
)
from artangram.core.scheduling.speedup import MOST_UNITS
from artangram.managers.roster import FENCE_S
from artangram.observe.badfile import nearest
from artangram.observe.retention import Retention
from artangram.orchestrator.callbackends import (
    FUNCTIONS,
    GPU,
    PLATFORM,
    ClusterOptions,
    Cuda,
    Vllm,
    function_pools,
)
from artangram.sandbox.network import NetworkPolicy
from artangram.services.service import Service, weights_mb

CPU = Resource("cpu")


class CpuEntry(Struct, frozen=True, kw_only=True, tag_field="kind", tag="cpu"):
    """A pool of nodes that run sandboxes; live, this machine where it says nothing."""

    spec: ClassVar[type[PoolSpec]] = CpuSpec
    used_live: ClassVar = frozenset({"cores", "memory_mb", "labels"})

    nodes: int | None = None
    cores: int | None = None
    memory_mb: int | None = None
    numa: int | None = None
    squeeze_penalty: float | None = None
    create_s: float | None = None
    overhead_s: float | None = None
    pods_per_s: float | None = None
    labels: dict[str, str] | None = None


class GpuEntry(Struct, frozen=True, kw_only=True, tag_field="kind", tag="gpu"):
    """A pool of nodes whose devices hold model services."""

    spec: ClassVar[type[PoolSpec]] = GpuSpec
    used_live: ClassVar = frozenset({"devices", "memory_mb", "backend"})

    nodes: int | None = None
    devices: int | None = None
    memory_mb: int | None = None
    host_memory_mb: int | None = None
    restore_mb_per_s: float | None = None
    cold_mb_per_s: float | None = None
    overhead_s: float | None = None
    backend: Literal["cpu", "cuda", "vllm"] | None = None
    """What the devices are, live: made of cores (the default), this machine's GPUs, or HTTP
    engines on them."""


class QuotaEntry(Struct, frozen=True, kw_only=True, tag_field="kind", tag="quota"):
    """The limits of an outside API; live, of the API of the same name."""

    spec: ClassVar[type[PoolSpec]] = QuotaSpec
    used_live: ClassVar = frozenset({"concurrency", "limit", "window_s", "windows"})

    concurrency: int | None = None
    limit: int | None = None
    window_s: float | None = None
    windows: tuple[CallWindow, ...] | None = None
    overhead_s: float | None = None


class FunctionsEntry(Struct, frozen=True, kw_only=True, tag_field="kind", tag="functions"):
    """Slots of functions; live, `functions` are workers and `platform` calls behind a URL."""

    spec: ClassVar[type[PoolSpec]] = FunctionsSpec
    used_live: ClassVar = frozenset({"ceiling"})

    ceiling: int | None = None
    cold_s: float | None = None
    idle_s: float | None = None
    overhead_s: float | None = None


PoolEntry: TypeAlias = CpuEntry | GpuEntry | QuotaEntry | FunctionsEntry


class ServiceEntry(Struct, frozen=True, kw_only=True):
    """A model service: its sizes for a simulation, its loader for a live one."""

    pool: Resource | None = None
    """A GPU pool; the only one if unsaid."""
    weights_mb: int | None = None
    degrees: tuple[int, ...] | None = None
    runtime_mb: int | None = None
    batch: int | None = None
    batch_cost: float | None = None
    restore_s: float | None = None
    loader: str | None = None
    options: dict[str, Any] | None = None
    weights: tuple[str, ...] | None = None
    example: Any = None
    longest_predict_s: float | None = None
    leaves_nothing: bool | None = None

    def live(self, name: ServiceId) -> Service:
        """What is deployed."""
        return Service(id=name, **_said(self, Service))

    def simulated(self, name: ServiceId, pool: Resource) -> ServiceSpec:
        """What the scheduler knows of it; the weights are measured where their files are here."""
        said = _said(self, ServiceSpec) | {"pool": pool}
        if self.loader is not None:
            said.setdefault("batch", self.live(name).batch)
        if self.weights and all(Path(file).is_file() for file in self.weights):
            said.setdefault("weights_mb", max(1, weights_mb(self.weights)))
        _check_complete(f"services.{name}", ServiceSpec, said)
        return ServiceSpec(**said)


class JobEntry(JobLimits, frozen=True, kw_only=True):
    """One of the jobs that a cluster may have."""

    share: float = 1.0
    """What it is entitled to when something is short, relative to the others."""


class ClusterFile(Struct, frozen=True, kw_only=True):
    """A cluster as its file describes it. See the module."""

    pools: dict[Resource, PoolEntry] = {}
    services: dict[ServiceId, ServiceEntry] = {}
    functions: tuple[str, ...] = ()
    """`module:name` of functions that every caller may call."""
    apis: dict[str, ApiSpec] = {}
    """With the limits of the pool of the same name, if there is one."""
    images: tuple[str, ...] = ()
    """Folders of this machine whose images callers over HTTP may name."""
    provider: ProviderNames = "strongest"
    """What sandboxes of this machine are made of; of several, the first unless one is asked for."""
    network: NetworkPolicy = NetworkPolicy()
    """What callers over HTTP may ask to reach from sandboxes."""
    jobs: dict[str, JobEntry] = {}
    policy: str = "elastic"
    sync: bool = True
    """Whether what a service accepted outlives a loss of power, at the cost of disk flushes."""
    keep: Retention = Retention()
    """How much a service keeps of what has ended."""
    fence_s: float = FENCE_S
    """A machine that cannot reach the head for this long ends everything it runs. It must be longer
    than a restart of the head takes."""

    @property
    def shares(self) -> dict[str, float]:
        return {name: job.share for name, job in self.jobs.items()}

    @property
    def limits(self) -> dict[str, JobLimits]:
        """The jobs that have a minimum or a maximum."""
        fields = JobLimits.__struct_fields__
        said = {
            n: JobLimits(**{f: getattr(job, f) for f in fields}) for n, job in self.jobs.items()
        }
        return {name: limits for name, limits in said.items() if limits != JobLimits()}

    @property
    def cores(self) -> int | None:
        """Cores of this machine that a live cluster uses at most; all of them if None."""
        pool = self.pools.get(CPU)
        return pool.cores if isinstance(pool, CpuEntry) else None

    @property
    def memory_mb(self) -> int | None:
        """Memory of this machine for trajectories of a live cluster; all that is free if None."""
        pool = self.pools.get(CPU)
        return pool.memory_mb if isinstance(pool, CpuEntry) else None

    @property
    def labels(self) -> dict[str, str]:
        """Labels of this machine, which selectors of a live cluster ask for."""
        pool = self.pools.get(CPU)
        return (pool.labels or {}) if isinstance(pool, CpuEntry) else {}

    @property
    def options(self) -> ClusterOptions:
        """What a live cluster offers beside its cores. Raises `BadInput`."""
        services = tuple(self.services[name].live(name) for name in self._deployed())
        options = {
            **self._devices(),
            "workers": self.ceiling(FUNCTIONS),
            "platform_calls": self.ceiling(PLATFORM),
        }
        said = {key: value for key, value in options.items() if value is not None}
        if services and "devices" not in said:
            fix = "describe them: `pools: {gpu: {kind: gpu, devices: 1}}`"
            raise BadInput("services", "need devices to run on", fix)
        return ClusterOptions(functions=self.functions, services=services, apis=self.apis, **said)

    def ceiling(self, name: Resource) -> int | None:
        """Slots of a pool of functions, if the file says so."""
        pool = self.pools.get(name)
        return pool.ceiling if isinstance(pool, FunctionsEntry) else None

    def _devices(self) -> dict[str, Any]:
        pool = self.pools.get(GPU)
        if not isinstance(pool, GpuEntry):
            return {}
        if pool.backend == "cuda":
            return {"devices": Cuda()}
        if pool.devices is None:
            raise BadInput(f"pools.{GPU}.devices", "is missing", "add it, or `backend: cuda`")
        if pool.backend != "vllm":
            return {"devices": pool.devices, "device_memory_mb": pool.memory_mb}
        if pool.memory_mb is None:
            raise BadInput(f"pools.{GPU}.memory_gb", "is missing", "add what each device has")
        return {"devices": Vllm(count=pool.devices, memory_mb=pool.memory_mb)}

    def _deployed(self) -> list[ServiceId]:
        """The services that a live cluster can deploy."""
        return [
            name
            for name, service in self.services.items()
            if service.loader is not None and service.pool in (None, GPU)
        ]

    def simulated(self) -> ClusterSpec:
        """The cluster that a simulation schedules. Raises `BadInput` for what it lacks."""
        pools = {name: _pool(name, entry) for name, entry in self.pools.items()}
        if self.functions:
            pools |= self._function_pools(pools)
        for name, api in self.apis.items():
            described = self.pools.get(Resource(name))
            overhead_s = described.overhead_s if described is not None else None
            pools[Resource(name)] = structs.replace(api.quota(), overhead_s=overhead_s or 0.0)
        if not pools:
            raise BadInput("pools", "is missing", "describe at least one pool")
        return ClusterSpec(
            pools=pools,
            services={name: self._service(name, pools) for name in self.services},
            shares={JobId(name): job.share for name, job in self.jobs.items()},
            limits={JobId(name): limits for name, limits in self.limits.items()},
        )

    def _function_pools(self, pools: Mapping[Resource, PoolSpec]) -> dict[Resource, PoolSpec]:
        """The slots that a live cluster has for functions, with what the file says of them."""
        cores = [pool.nodes * pool.cores for pool in pools.values() if isinstance(pool, CpuSpec)]
        live = function_pools(self.options, num_cores=max(1, sum(cores)))
        return {
            name: structs.replace(spec, **_said(self.pools[name], FunctionsSpec))
            if name in self.pools
            else spec
            for name, spec in live.items()
        }

    def _service(self, name: ServiceId, pools: Mapping[Resource, PoolSpec]) -> ServiceSpec:
        entry, field = self.services[name], f"services.{name}"
        gpus = {str(key): pool for key, pool in pools.items() if isinstance(pool, GpuSpec)}
        if entry.pool is None and len(gpus) != 1:
            fix = f"name one of {', '.join(gpus)}" if gpus else "describe a pool of kind gpu"
            raise BadInput(f"{field}.pool", "is missing", fix)
        wanted = entry.pool or next(iter(gpus))
        if wanted not in gpus:
            fix = nearest(wanted, list(gpus)) if gpus else "describe a pool of kind gpu"
            raise BadInput(f"{field}.pool", f"{wanted!r} is not a GPU pool", fix)
        spec = entry.simulated(name, Resource(wanted))
        _check_degrees(field, spec, gpus[wanted])
        return spec

    def ignored_live(self) -> Iterator[str]:
        """The fields that only a simulation uses."""
        deployed = self._deployed()
        for name, pool in self.pools.items():
            if not self.is_live(name, pool):
                yield f"pools.{name}"
                continue
            used = pool.used_live
            if isinstance(pool, GpuEntry) and pool.backend == "cuda":
                used = used - {"devices", "memory_mb"}  # It discovers them.
            yield from (f"pools.{name}.{key}" for key in given(pool) if key not in used)
        for service, entry in self.services.items():
            if service not in deployed:
                yield f"services.{service}"
                continue
            known = {"pool", *Service.__struct_fields__}
            yield from (f"services.{service}.{key}" for key in given(entry) if key not in known)

    def is_live(self, name: Resource, pool: PoolEntry) -> bool:
        """Whether a live cluster has such a pool; its names are fixed, but for those of APIs."""
        match pool:
            case CpuEntry():
                return name == CPU
            case GpuEntry():
                return name == GPU
            case FunctionsEntry():
                return name in (FUNCTIONS, PLATFORM)
            case QuotaEntry():
                return name in self.apis

    def ignored_in_simulation(self) -> Iterator[str]:
        """The fields that only a live cluster uses."""
        for name, pool in self.pools.items():
            if isinstance(pool, GpuEntry) and pool.backend is not None:
                yield f"pools.{name}.backend"
        known = ServiceSpec.__struct_fields__
        for service, entry in self.services.items():
            yield from (f"services.{service}.{key}" for key in given(entry) if key not in known)
        paced = {"concurrency", "limit", "window_s", "windows", "delivery_s"}
        for api, spec in self.apis.items():
            said = (key for key in ApiSpec.__struct_fields__ if key not in paced)
            unsaid = ApiSpec(base_url="")
            for key in said:
                if getattr(spec, key) != getattr(unsaid, key):
                    yield f"apis.{api}.{key}"
        for key in ("images", "network", "provider"):
            if getattr(self, key) != getattr(ClusterFile(), key):
                yield key


def given(entry: Struct) -> list[str]:
    """The fields that the file says."""
    return [key for key in entry.__struct_fields__ if getattr(entry, key) is not None]


def _said(entry: Struct, kind: type[Struct]) -> dict[str, Any]:
    """What an entry says of the fields of `kind`; the rest has the defaults of that record."""
    known = kind.__struct_fields__
    return {key: getattr(entry, key) for key in given(entry) if key in known}


def _pool(name: Resource, entry: PoolEntry) -> PoolSpec:
    said, field = _said(entry, entry.spec), f"pools.{name}"
    if isinstance(entry, CpuEntry | GpuEntry):
        said.setdefault("nodes", 1)
    _check_complete(field, entry.spec, said)
    spec: PoolSpec = entry.spec(**said)
    match spec:
        case CpuSpec(nodes=nodes, cores=cores, numa=numa):
            _check_total(f"{field}.cores", nodes * cores)
            if numa > cores:
                problem, fix = f"{numa} domains of {cores} cores", "give at most as many as cores"
                raise BadInput(f"{field}.numa", problem, fix)
        case GpuSpec(nodes=nodes, devices=devices):
            _check_total(f"{field}.devices", nodes * devices)
        case QuotaSpec(concurrency=None, limit=None):
            raise BadInput(field, "limits nothing", "give concurrency, limit or both")
    return spec


def _check_complete(place: str, kind: type[Struct], said: Mapping[str, Any]) -> None:
    """A simulation discovers and measures nothing."""
    for field in structs.fields(kind):
        if field.required and field.name not in said:
            key = field.name.replace("_mb", "_gb")
            raise BadInput(f"{place}.{key}", "is missing", "add it: a simulation has to know")


def _check_total(field: str, total: int) -> None:
    """Each of them has a place in the books, used or not."""
    if total > MOST_UNITS:
        fix = f"give at most {MOST_UNITS} of a pool"
        raise BadInput(field, f"{total} in all nodes are too many", fix)


def _check_degrees(field: str, spec: ServiceSpec, pool: GpuSpec) -> None:
    for degree in spec.degrees:
        if degree & (degree - 1) or degree > pool.devices:
            fix = f"give powers of two up to {pool.devices}, the devices of a node"
            raise BadInput(f"{field}.degrees", f"{degree} cannot be placed", fix)
    least = min(spec.device_mb(degree) for degree in spec.degrees)
    if least > pool.memory_mb:
        problem = f"needs {least} MB on each device and a device has {pool.memory_mb} MB"
        raise BadInput(field, problem, "add a higher degree or give the devices more memory")
