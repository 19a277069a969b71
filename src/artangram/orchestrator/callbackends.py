"""What carries out the calls of a cluster on this machine: function workers, devices, APIs.

- Function workers start from zero, so every cluster has them. Functions behind a URL have slots of
  their own: they use none of our processes. Devices and APIs are there when asked for.
- Devices are made of this machine's cores and memory unless its GPUs are asked for; the cores are
  those that commands use, too, and the kernel shares them between both.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from artangram.apis.spec import ApiSpec
from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.cluster import FunctionsSpec, GpuSpec, PoolSpec, ServiceSpec
from artangram.functions import Function, resolved
from artangram.managers.call import ApiCall, FunctionCall, ServiceCall
from artangram.managers.calls import Carrier
from artangram.managers.functions import FunctionsManager
from artangram.managers.machine import MachineInfo
from artangram.services.service import Service

if TYPE_CHECKING:
    from artangram.orchestrator.orchestrator import Orchestrator
    from artangram.services import ServiceHost

GPU = Resource("gpu")
FUNCTIONS = Resource("functions")
PLATFORM = Resource("platform")
NODE = NodeId("gpu-0")
TAKEN = frozenset({"cpu", GPU, FUNCTIONS, PLATFORM})
"""Names that an API cannot have: other resources have them."""

COLD_S = 0.02
"""What a worker takes to be forked: assumed until it is measured."""


_Some = Annotated[int, Meta(ge=1)]


class Cuda(Struct, frozen=True, tag_field="kind", tag="cuda", forbid_unknown_fields=True):
    """The devices are all GPUs of this machine, with the memory that they have."""


class Vllm(Struct, frozen=True, kw_only=True, tag_field="kind", tag="vllm"):
    """Devices of HTTP engines such as vLLM: this machine's GPUs, if it has some."""

    count: int
    memory_mb: int
    """Of each, for what is resident there."""


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """What a cluster offers beside its cores."""

    workers: _Some | None = None
    """Function workers at most; as many as cores if unsaid."""
    platform_calls: _Some = 64
    """Calls under way at most of functions behind a URL."""
    functions: tuple[str, ...] = ()
    """`module:name` of functions that any caller with the token may call."""
    takes_objects: bool = True
    """Whether callers may send functions more than plain data. Not over a network: an object can
    bring any code along."""
    devices: int | Cuda | Vllm = 0
    """A number of devices made of cores, or the machine's GPUs, or engines on them."""
    device_memory_mb: _Some = 2048
    """Of each that is made of cores."""
    services: tuple[Service, ...] = ()
    apis: dict[str, ApiSpec] = {}


def function_pools(options: ClusterOptions, *, num_cores: int) -> dict[Resource, FunctionsSpec]:
    """The slots for functions in our workers, and for those behind a URL."""
    return {
        FUNCTIONS: FunctionsSpec(ceiling=options.workers or num_cores, cold_s=COLD_S),
        PLATFORM: FunctionsSpec(ceiling=options.platform_calls, cold_s=0.0),
    }


class CallBackends:
    """See the module. `opened` makes one."""

    def __init__(
        self, options: ClusterOptions, machine: MachineInfo, host: "ServiceHost | None"
    ) -> None:
        self.options = options
        self._host = host
        self._workers = options.workers or len(machine.cores)
        self._functions = FunctionsManager(
            ceiling=self._workers, accepts_pickles=options.takes_objects
        )
        self._services: dict[ServiceId, ServiceSpec] = {}
        self._orchestrator: Orchestrator | None = None
        self.carriers = self._carriers()
        with _within("functions"):
            for name in options.functions:
                self._functions.register(resolved(name))

    def __repr__(self) -> str:
        return f"<CallBackends: {self._functions!r}, {self._host!r}>"

    @classmethod
    async def opened(cls, options: ClusterOptions, machine: MachineInfo) -> "CallBackends":
        """Backends whose services were tried out. Raises `BadInput` for one that cannot work."""
        backends = cls(options, machine, await _host(options, machine))
        try:
            for service in options.services:
                with _within(f"services.{service.id}"):
                    backends._services[service.id] = await backends.deploy(service)
        except BaseException:
            await backends.aclose()
            raise
        return backends

    def pools(self) -> dict[Resource, PoolSpec]:
        """The pools the scheduler shares out for these calls."""
        pools: dict[Resource, PoolSpec] = {}
        pools |= function_pools(self.options, num_cores=self._workers)
        if self._host is not None:
            kind = self._host.kind
            pools[GPU] = GpuSpec(nodes=1, devices=kind.num_devices, memory_mb=kind.memory_mb)
        for name, api in self.options.apis.items():
            pools[Resource(name)] = api.quota()
        return pools

    def services(self) -> dict[ServiceId, ServiceSpec]:
        """Those that were offered from the beginning."""
        return dict(self._services)

    def _carriers(self) -> dict[type, Carrier]:
        carriers: dict[type, Carrier] = {FunctionCall: self._functions}
        if self._host is not None:
            from artangram.managers.gpu import GpuManager

            carriers[ServiceCall] = GpuManager({NODE: self._host})
        if self.options.apis:
            # Not above: only a cluster with APIs needs an HTTP client.
            from artangram.managers.quota import QuotaManager

            _check_names(self.options.apis)
            apis = {Resource(name): spec for name, spec in self.options.apis.items()}
            with _within("apis"):
                carriers[ApiCall] = QuotaManager(
                    apis, now=self._now, on_throttled=self._on_throttled
                )
        return carriers

    def attach(self, orchestrator: "Orchestrator") -> None:
        """From now on `orchestrator` hears of lost services and throttled APIs."""
        self._orchestrator = orchestrator
        self._functions.nodes = orchestrator.nodes
        for function in self._functions.functions.values():
            self._tell_where(function)
        if self._host is not None:
            self._host.on_service_lost = orchestrator.service_lost

    def register(self, function: Function[..., Any]) -> None:
        """From now on `function` can be called by its name."""
        self._functions.register(function)
        self._tell_where(function)

    async def deploy(self, service: Service) -> ServiceSpec:
        """Try a service out; what the scheduler has to know about it."""
        if self._host is None:
            fix = "open the cluster with `devices=1` or more"
            raise BadInput("devices", "this cluster has no device for a service", fix)
        return await self._host.deploy(service)

    async def aclose(self) -> None:
        """End all workers, services and connections."""
        for carrier in self.carriers.values():
            await carrier.aclose()

    def _tell_where(self, function: Function[..., Any]) -> None:
        if self._orchestrator is not None:
            where = FUNCTIONS if function.spec.url is None else PLATFORM
            self._orchestrator.catalog.slots[function.name] = where

    def _now(self) -> float:
        assert self._orchestrator is not None
        return self._orchestrator.now()

    def _on_throttled(self, api: Resource, until: float) -> None:
        assert self._orchestrator is not None
        self._orchestrator.throttled(api, until=until)


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Around the making of an offer: several may have a field of one name."""
    try:
        yield
    except BadInput as error:
        raise error.within(place) from error


def _check_names(apis: Mapping[str, ApiSpec]) -> None:
    for name in TAKEN.intersection(apis):
        raise BadInput(f"apis.{name}", "is another resource of this cluster", "use another name")


async def _host(options: ClusterOptions, machine: MachineInfo) -> "ServiceHost | None":
    if not options.devices:
        if options.services:
            raise BadInput("services", "need devices to run on", "give `devices: 1` or more")
        return None
    # Not above: processes that hold models are for clusters with devices.
    from artangram.services import cpu_devices, cpu_host, cuda_host, vllm_host

    if isinstance(options.devices, Cuda):
        return await cuda_host(NODE, resource=GPU)
    if isinstance(options.devices, Vllm):
        count, memory_mb = options.devices.count, options.devices.memory_mb
        return await vllm_host(NODE, count=count, memory_mb=memory_mb, resource=GPU)
    devices = cpu_devices(machine.cores, count=options.devices, memory_mb=options.device_memory_mb)
    return await cpu_host(NODE, devices, resource=GPU)
