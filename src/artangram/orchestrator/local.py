"""A cluster on this machine: provider, agent, journal and orchestrator, put together.

- Without a state directory the cluster ends with this process, and nothing is written.
- With one, the journal is there and the agent is a process of its own: after a crash the next
  cluster finds the actions that were accepted, and those that still run.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct, structs

from artangram.apis.spec import ApiSpec
from artangram.core.errors import BadInput
from artangram.core.ids import JobId, NodeId, Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, JobLimits
from artangram.managers.agent import AgentGone, NodeAgent
from artangram.managers.cpu import CpuManager
from artangram.managers.local import LEAST_FREE_MB, WARM, LocalAgent
from artangram.managers.machine import this_machine
from artangram.managers.remote import RemoteAgent, connect, spawn
from artangram.observe.journal import Journal, Past
from artangram.observe.journalfile import open_journal
from artangram.observe.journalmemory import MemoryJournal
from artangram.observe.retention import Retention
from artangram.orchestrator.arguments import as_mapping, as_record, plain
from artangram.orchestrator.callbackends import CallBackends, ClusterOptions, Cuda, Vllm
from artangram.orchestrator.client import Client
from artangram.orchestrator.driver import WallClock
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.joinednodes import AgentEndpoint, JoinedNodes
from artangram.orchestrator.orchestrator import Bounds, Orchestrator
from artangram.orchestrator.records import without_output
from artangram.orchestrator.recovery import Setup, deployed_in
from artangram.sandbox import SandboxProvider, open_provider
from artangram.sandbox.network import HOST_NETWORK, NetworkPolicy
from artangram.services.service import Service

NODE = NodeId("cpu-0")
CPU = Resource("cpu")


@asynccontextmanager
async def local(
    *,
    policy: str = "elastic",
    cores: int | None = None,
    memory_mb: int | None = None,
    state_dir: os.PathLike[str] | str | None = None,
    provider: SandboxProvider | Sequence[SandboxProvider] | None = None,
    max_queued: int = Bounds().max_queued,
    shares: Mapping[str, float] | None = None,
    limits: Mapping[str, JobLimits] | None = None,
    workers: int | None = None,
    functions: Sequence[str] = (),
    takes_objects: bool = True,
    platform_calls: int = ClusterOptions().platform_calls,
    devices: int | Cuda | Vllm = 0,
    device_memory_mb: int = ClusterOptions().device_memory_mb,
    services: Sequence[Service] = (),
    apis: Mapping[str, ApiSpec] | None = None,
    private_addresses: Sequence[str] = (),
) -> AsyncIterator[Client]:
    """Start a cluster on this machine; it ends with the block.

    - `policy`: how the queue is ranked and cores are shared; see docs/scheduling.md.
    - `cores`, `memory_mb`: use only this much of the machine. Default: all of it.
    - `state_dir`: keep a journal there, so that accepted actions survive a crash.
    - `provider`: where commands run, the usual one first. Default: Linux namespaces.
    - `max_queued`: refuse further actions (`Overloaded`) when this many wait; one job alone gets
      at most eight ninths of them.
    - `shares`, `limits`: what each job is entitled to, relative to the others, when something is
      short (1 if unsaid), and the memory and trajectories that it has at least and at most.
    - `workers`, `platform_calls`: function workers (default: one per core), calls behind a URL.
    - `functions`: names (`module:function`) of functions that callers over HTTP may use.
    - `takes_objects`: functions may take and return objects that need pickle.
    - `devices`, `device_memory_mb`: devices for model services, made of this machine's cores.
    - `services`, `apis`: model services to deploy, and outside APIs by name.
    - `private_addresses`: addresses that are not public and sandboxes may reach (`network`).
    """
    _check_places(state_dir, provider)
    told: dict[str, Any] = {"policy": policy, "cores": cores, "memory_mb": memory_mb}
    network = NetworkPolicy(allow=HOST_NETWORK, private=tuple(private_addresses))
    told |= {"shares": as_mapping("shares", shares), "limits": as_mapping("limits", limits)}
    as_record(_Told, {**told, "max_queued": max_queued})
    options = {
        "workers": workers,
        "functions": functions,
        "takes_objects": takes_objects,
        "platform_calls": platform_calls,
        "devices": devices,
        "device_memory_mb": device_memory_mb,
        "services": services,
        "apis": {} if apis is None else apis,
    }
    async with running(
        **told,
        state_dir=None if state_dir is None else Path(state_dir),
        provider=provider,
        bounds=Bounds(max_queued=max_queued),
        options=cluster_options(options),
    ) as (orchestrator, backends):
        yield Client(Embedded(orchestrator, backends=backends, network=network))


@asynccontextmanager
async def running(
    *,
    policy: str = "elastic",
    cores: int | None = None,
    memory_mb: int | None = None,
    state_dir: Path | None = None,
    provider: SandboxProvider | Sequence[SandboxProvider] | None = None,
    bounds: Bounds | None = None,
    shares: Mapping[str, float] | None = None,
    limits: Mapping[str, JobLimits] | None = None,
    labels: Mapping[str, str] | None = None,
    options: ClusterOptions | None = None,
    agent_options: tuple[str, ...] = (),
    endpoint: AgentEndpoint | None = None,
    sync: bool = False,
    keep: Retention | None = None,
) -> AsyncIterator[tuple[Orchestrator, CallBackends]]:
    """An orchestrator on this machine, and the backends of its calls."""
    machine = await asyncio.to_thread(this_machine)
    spec = machine.spec(cores=cores, memory_mb=memory_mb, labels=labels)
    async with AsyncExitStack() as stack:
        journal, past = await _journal(state_dir, stack, sync=sync, keep=keep or Retention())
        clock = WallClock(not_before=0.0 if past is None else past.last_at)
        agents = _Agents(state_dir, provider, clock, agent_options)
        # Before anything that takes long: its patience with what runs there is short.
        await agents.find()
        stack.push_async_callback(agents.leave)
        backends = await CallBackends.opened(_with_workers(options, spec), machine)
        stack.push_async_callback(backends.aclose)
        cluster = ClusterSpec(pools={CPU: spec, **backends.pools()}, services=backends.services())
        setup = Setup(cluster=_shared(cluster, shares or {}, limits or {}), policy=policy)
        if past is not None:
            setup = _as_measured_in(past, setup, keeps_memory=memory_mb is not None)
        for deployed in deployed_in(past):
            await backends.deploy(deployed.service)
        manager = CpuManager({}, cores={NODE: machine.cores})
        orchestrator = Orchestrator(
            setup,
            manager=manager,
            journal=journal,
            clock=clock,
            past=past,
            bounds=bounds,
            carriers=backends.carriers,
            new_agent=agents.new if state_dir is not None else None,
        )
        # After the journal is taken: a second orchestrator is refused before it ends any agent.
        manager.agents[NODE] = await agents.first()
        stack.push_async_callback(_close_agents, manager)
        backends.attach(orchestrator)
        stack.push_async_callback(orchestrator.aclose)
        orchestrator.executor.awaits_nodes = endpoint is not None
        await orchestrator.begin()
        if endpoint is not None:
            joining = JoinedNodes.open(endpoint, orchestrator.executor, past=past, now=clock.now)
            await stack.enter_async_context(joining)
        yield orchestrator, backends


def _with_workers(options: ClusterOptions | None, spec: CpuSpec) -> ClusterOptions:
    """As many function workers as there are cores, unless `options` says otherwise."""
    options = options or ClusterOptions()
    return structs.replace(options, workers=options.workers or spec.cores)


def _shared(
    cluster: ClusterSpec, shares: Mapping[str, float], limits: Mapping[str, JobLimits]
) -> ClusterSpec:
    """`cluster` with what jobs may take of it. Raises `BadInput`."""
    for job, share in shares.items():
        if not 0 < share < math.inf:
            raise BadInput(f"jobs.{job}.share", f"{share} is not a share", "give a number above 0")
    return structs.replace(
        cluster,
        shares={JobId(job): share for job, share in shares.items()},
        limits={JobId(job): limit for job, limit in limits.items()},
    )


class _Told(Struct, frozen=True, kw_only=True):
    """Arguments of `local` that are checked by type."""

    policy: str
    cores: Annotated[int, msgspec.Meta(ge=1)] | None
    memory_mb: Annotated[int, msgspec.Meta(ge=1)] | None
    max_queued: Annotated[int, msgspec.Meta(ge=0)]
    shares: dict[str, float]
    limits: dict[str, JobLimits]


def _check_places(state_dir: object, provider: object) -> None:
    if not isinstance(state_dir, str | os.PathLike | None):
        problem = f"expected a path, got `{type(state_dir).__name__}`"
        raise BadInput("state_dir", problem, "name a directory")
    for one in provider if isinstance(provider, Sequence) else (provider,):
        if one is not None and not hasattr(one, "create"):
            problem = f"`{type(one).__name__}` is not a sandbox provider"
            raise BadInput("provider", problem, "give one of `artangram.sandbox`, or leave it out")


def cluster_options(given: Mapping[str, Any]) -> ClusterOptions:
    """Keyword arguments as a record. Raises `BadInput` for one of a wrong type."""
    # As plain data: msgspec does not check the fields of a record that exists already.
    return as_record(ClusterOptions, {name: plain(name, value) for name, value in given.items()})


async def _journal(
    state_dir: Path | None, stack: AsyncExitStack, *, sync: bool, keep: Retention
) -> tuple[Journal, Past | None]:
    """A journal that is closed with `stack`. With `sync` it outlives a loss of power, too."""
    if state_dir is None:
        return MemoryJournal(), None
    archive = state_dir / "archive.sqlite"
    journal, past = await open_journal(
        state_dir / "journal.sqlite",
        archive=archive,
        sync=sync,
        keep=keep,
        shorten=without_output,
    )
    stack.push_async_callback(journal.close)
    return journal, past


def _as_measured_in(past: Past, setup: Setup, *, keeps_memory: bool) -> Setup:
    """`setup` with what was measured when the journal was begun: it differs by the minute."""
    try:
        before, cluster = msgspec.json.decode(past.owner, type=Setup).cluster, setup.cluster
    except msgspec.MsgspecError:
        return setup  # Of another version: nothing of it is comparable.
    pools, then = dict(cluster.pools), before.pools.get(CPU)
    if isinstance(then, CpuSpec) and not keeps_memory:
        pools[CPU] = structs.replace(cluster.pools[CPU], memory_mb=then.memory_mb)
    services = {name: before.services.get(name, now) for name, now in cluster.services.items()}
    cluster = structs.replace(cluster, pools=pools, services=services)
    return structs.replace(setup, cluster=cluster)


async def _close_agents(manager: CpuManager) -> None:
    for agent in list(manager.agents.values()):
        await agent.aclose()


class _Agents:
    """Where this machine's agent comes from."""

    def __init__(
        self,
        state_dir: Path | None,
        provider: SandboxProvider | Sequence[SandboxProvider] | None,
        clock: WallClock,
        options: tuple[str, ...],
    ) -> None:
        self._state_dir = state_dir
        self._provider = provider
        self._clock = clock
        self._options = options
        self._found: RemoteAgent | None = None

    async def find(self) -> None:
        """After a crash one listens already: it waits for as long as we are connected."""
        if self._state_dir is not None and self._provider is None:
            with suppress(AgentGone):
                self._found = await connect(NODE, self._socket, now=self._clock.now)

    async def leave(self) -> None:
        """What was found and not taken goes on by itself."""
        if self._found is not None:
            await self._found.detach()

    async def first(self) -> NodeAgent:
        """The one that was found, else a new one."""
        if self._state_dir is None or self._provider is not None:
            given = self._provider or await open_provider()
            providers = given if isinstance(given, Sequence) else (given,)
            return LocalAgent(
                NODE, *providers, now=self._clock.now, warm=WARM, least_free_mb=LEAST_FREE_MB
            )
        found, self._found = self._found, None
        return found or await self.new(NODE)

    async def new(self, node: NodeId) -> NodeAgent:
        await asyncio.to_thread(self._socket.unlink, missing_ok=True)
        return await spawn(node, self._socket, now=self._clock.now, options=self._options)

    @property
    def _socket(self) -> Path:
        assert self._state_dir is not None
        return self._state_dir / "agent.sock"
