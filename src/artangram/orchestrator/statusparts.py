"""Counts how full the cluster is, and which job has and wants what, for a status."""

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from itertools import islice

from msgspec import structs

from artangram.core.ids import ActionId, JobId
from artangram.core.scheduling.cluster import ClusterSpec, FunctionsSpec, GpuSpec
from artangram.core.scheduling.explain import Explanation
from artangram.core.scheduling.lease import HEAD, Devices, FunctionSlots
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.orchestrator.live import LiveAction
from artangram.orchestrator.records import ClusterStatus
from artangram.orchestrator.statusrecords import JobStatus, PoolStatus, RunningStatus
from artangram.orchestrator.tally import JobTally, Tally

MOST_JOBS = 100
"""Jobs that a status names: those with most actions and trajectories."""
MOST_EXPLAINED = 20
"""Of them, those of whose oldest waiting action a status says why it waits."""
MOST_RUNNING = 20
"""Running actions that a status names, the longest first."""


def pools(cluster: ClusterSpec, nodes: Iterable[CpuNode], tally: Tally) -> tuple[PoolStatus, ...]:
    """What cores, memory, devices and slots are in use, of how many."""
    books = list(nodes)
    memory_mb = sum(node.memory_mb for node in books)
    held_mb = memory_mb - sum(node.memory_free_mb for node in books)
    cores = sum(node.cores for node in books)
    found = [
        PoolStatus(resource="cpu", unit="cores", used=tally.cores, capacity=cores),
        PoolStatus(resource="memory", unit="MB", used=held_mb, capacity=memory_mb),
    ]
    for name, spec in cluster.pools.items():
        if isinstance(spec, GpuSpec):
            mine = sum(1 for resource, _, _ in tally.devices if resource == name)
            most = spec.nodes * spec.devices
            found.append(PoolStatus(resource=name, unit="devices", used=mine, capacity=most))
        elif isinstance(spec, FunctionsSpec):
            mine = tally.slots[name]
            most = spec.ceiling + sum(node.spec.slots.get(name, 0) for node in books)
            found.append(PoolStatus(resource=name, unit="slots", used=mine, capacity=most))
    return tuple(found)


def jobs(shares: Mapping[JobId, float], tally: Tally) -> tuple[JobStatus, ...]:
    """The jobs that have most to do, and what each has."""
    known = dict.fromkeys([*tally.waiting, *tally.jobs, *shares])
    none, nothing = JobTally(), dict[ActionId, LiveAction]()

    def to_do(job: JobId) -> int:
        return len(tally.waiting.get(job, ())) + tally.jobs.get(job, none).running

    found = []
    for job in nlargest(MOST_JOBS, known, key=to_do):
        has, line = tally.jobs.get(job, none), tally.waiting.get(job, nothing)
        found.append(
            JobStatus(
                job=job,
                share=shares.get(job, 1.0),
                oldest=next(iter(line), None),
                queued=len(line),
                running=has.running,
                trajectories=has.trajectories,
                cores=has.cores,
                memory_mb=has.memory_mb,
                devices=has.devices,
            )
        )
    return tuple(found)


def longest_running(tally: Tally, now: float) -> tuple[RunningStatus, ...]:
    """The actions whose leases began first."""
    oldest = list(islice(tally.running.values(), MOST_RUNNING))
    return tuple(
        RunningStatus(
            action=live.action.id,
            kind=live.action.kind,
            job=live.action.job,
            trajectory=live.action.trajectory,
            where=_where(live),
            units=live.units,
            held_s=max(0.0, now - live.started_at),
        )
        for live in oldest
    )


def _where(live: LiveAction) -> str:
    if live.cores is not None:
        return live.cores.node
    first = None if live.lease is None else live.lease.allocations[0]
    if isinstance(first, Devices):
        return f"{first.service} on {first.node}"
    if isinstance(first, FunctionSlots) and first.node != HEAD:
        return f"{first.resource} on {first.node}"
    return "" if first is None else str(first.resource)


def explained(status: ClusterStatus, explain: Callable[[ActionId], Explanation]) -> ClusterStatus:
    """`status` with the reason why the oldest actions wait, and the oldest of each job."""

    def why(action_id: ActionId | None) -> str:
        try:
            return "" if action_id is None else explain(action_id).summary
        except KeyError:
            return ""  # It has ended meanwhile.

    waiting = [structs.replace(one, reason=why(one.action)) for one in status.waiting]
    told = [structs.replace(one, waits_for=why(one.oldest)) for one in status.jobs[:MOST_EXPLAINED]]
    return structs.replace(
        status, waiting=tuple(waiting), jobs=(*told, *status.jobs[MOST_EXPLAINED:])
    )
