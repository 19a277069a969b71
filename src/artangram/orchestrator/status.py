"""One look at an orchestrator: what waits and runs, and what carries it out.

The ledger says what was decided; agents and carriers say what is there. What cannot be asked now is
left out, never guessed.
"""

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.core.scheduling.lease import Devices
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.managers.call import ApiCall, FunctionCall, ServiceCall
from artangram.managers.calls import Carrier
from artangram.managers.functions import FunctionsManager
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.records import (
    ApiStatus,
    ClusterStatus,
    FunctionsStatus,
    NodeState,
    NodeStatus,
    ServiceStatus,
    WaitingStatus,
)
from artangram.orchestrator.statusparts import jobs, longest_running, pools
from artangram.orchestrator.tally import Tally

if TYPE_CHECKING:  # Only clusters with devices or APIs have the packages for them.
    from artangram.apis.client import ApiClient
    from artangram.services.host import ServiceHost

MOST_WAITING = 20
"""Waiting actions that a status names, the oldest first."""


@runtime_checkable
class _OnHosts(Protocol):
    """A carrier that tells where its services are."""

    hosts: "dict[NodeId, ServiceHost]"


@runtime_checkable
class _WithClients(Protocol):
    """A carrier that tells how it calls its APIs."""

    clients: "dict[Resource, ApiClient]"


def cluster_status(
    ledger: Ledger,
    carriers: Mapping[type, Carrier],
    *,
    nodes: Iterable[NodeId],
    node_books: Iterable[CpuNode],
    policy: str,
    abandoned: int,
    began_at: float,
    is_draining: bool,
    now: float,
    cluster: ClusterSpec,
    warning: str = "",
) -> ClusterStatus:
    """One look at everything that is known here; agents are not asked.

    `nodes` have agents, `node_books` are those that the scheduler knows.
    """
    known = {node.id: node for node in node_books}
    tally = ledger.tally
    books = LiveCounts(tally)
    services, restores = books.services(carriers)
    return ClusterStatus(
        policy=policy,
        queued=ledger.queue.total,
        running=ledger.num_running,
        trajectories=tally.num_trajectories,
        abandoned=abandoned,
        ended=ledger.num_ended,
        uptime_s=now - began_at,
        is_draining=is_draining,
        nodes=tuple(books.node(name, known.get(name)) for name in dict.fromkeys([*nodes, *known])),
        waiting=books.waiting(now),
        services=services,
        restores=restores,
        functions=books.functions(carriers),
        apis=books.apis(carriers, now),
        pools=pools(cluster, known.values(), tally),
        jobs=jobs(cluster.shares, tally),
        longest=longest_running(tally, now),
        warnings=(warning,) if warning else (),
    )


class LiveCounts:
    """Live actions, counted."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._busy, self._queued = tally.busy, tally.queued

    def waiting(self, now: float) -> tuple[WaitingStatus, ...]:
        """The oldest that wait, calls and commands alike."""
        lines = self._tally.waiting.values()
        first = (live for line in lines for live in islice(line.values(), MOST_WAITING))
        oldest = nsmallest(MOST_WAITING, first, key=lambda live: live.submitted_at)
        return tuple(
            WaitingStatus(
                action=live.action.id,
                kind=live.action.kind,
                job=live.action.job,
                trajectory=live.action.trajectory,
                queued_s=live.queued_s(now, has_started=False),
            )
            for live in oldest
        )

    def node(self, name: NodeId, node: CpuNode | None) -> NodeStatus:
        """Without its books it has only begun to join."""
        here = self._tally.nodes.get(name)
        running, cores_used = (0, 0) if here is None else (here.running, here.cores)
        if node is None:
            state = NodeState.JOINING
            return NodeStatus(node=name, state=state, running=running, cores_used=cores_used)
        return NodeStatus(
            node=name,
            state=_state(node),
            running=running,
            cores_used=cores_used,
            cores=node.cores,
            memory_used_mb=node.memory_mb - node.memory_free_mb,
            memory_mb=node.memory_mb,
            labels=node.spec.labels,
        )

    def services(self, carriers: Mapping[type, Carrier]) -> tuple[tuple[ServiceStatus, ...], int]:
        """The services of this cluster, and how often any was restored."""
        manager = carriers.get(ServiceCall)
        if not isinstance(manager, _OnHosts):
            return (), 0
        hosts = manager.hosts.values()
        residents = [devices for host in hosts for devices in host.residents()]
        names = sorted({name for host in hosts for name in host.deployed})
        found = tuple(
            ServiceStatus(
                service=name,
                resident=tuple(_place(one) for one in residents if one.service == name),
                busy=self._busy[name],
                queued=self._queued[name],
            )
            for name in names
        )
        return found, sum(host.num_restores for host in hosts)

    def functions(self, carriers: Mapping[type, Carrier]) -> FunctionsStatus | None:
        manager = carriers.get(FunctionCall)
        if not isinstance(manager, FunctionsManager):
            return None
        workers = manager.local.workers
        return FunctionsStatus(
            registered=len(manager.functions),
            workers=workers.num_alive,
            ceiling=workers.ceiling,
            busy=workers.num_busy,
            queued=self._queued[FunctionCall],
            cold_starts=workers.num_cold_starts,
            hedges=manager.local.num_hedges,
        )

    def apis(self, carriers: Mapping[type, Carrier], now: float) -> tuple[ApiStatus, ...]:
        manager = carriers.get(ApiCall)
        if not isinstance(manager, _WithClients):
            return ()
        return tuple(
            ApiStatus(
                api=name,
                in_flight=self._busy[name],
                queued=self._queued[name],
                window_used=0 if client.gates.first is None else client.gates.first.num_recent(),
                limit=None if client.gates.first is None else client.gates.first.limit,
                window_s=client.spec.window_s,
                shut_s=max(0.0, (client.breaker.shut_until or 0.0) - now),
            )
            for name, client in sorted(manager.clients.items())
        )


def _state(node: CpuNode) -> NodeState:
    if node.is_suspect:
        return NodeState.SUSPECT
    return NodeState.DRAINING if node.is_draining else NodeState.TRUSTED


def _place(devices: Devices) -> str:
    last = devices.first + devices.degree - 1
    which = f"{devices.first}" if devices.degree == 1 else f"{devices.first}-{last}"
    return f"{devices.node}:{which}"
