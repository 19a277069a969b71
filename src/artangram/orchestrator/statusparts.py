"""Counts how full the cluster is, and which job has and wants what, for a status."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest, nsmallest

from msgspec import structs

from artangram.core.ids import ActionId, JobId
from artangram.core.scheduling.cluster import ClusterSpec, FunctionsSpec, GpuSpec
from artangram.core.scheduling.explain import Explanation
from artangram.core.scheduling.lease import Devices, FunctionSlots
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.orchestrator.live import LiveAction, LiveTrajectory
from artangram.orchestrator.records import ClusterStatus
from artangram.orchestrator.statusrecords import JobStatus, PoolStatus, RunningStatus

MOST_JOBS = 100
"""Jobs that a status names: those with most actions and trajectories."""
MOST_EXPLAINED = 20
"""Of them, those of whose oldest waiting action a status says why it waits."""
MOST_RUNNING = 20
"""Running actions that a status names, the longest first."""


def pools(
    cluster: ClusterSpec, nodes: Iterable[CpuNode], running: Iterable[LiveAction]
) -> tuple[PoolStatus, ...]:
    """What cores, memory, devices and slots are in use, of how many."""
    used: Counter[str] = Counter()
    devices: set[tuple[str, str, int]] = set()
    for live in running:
        used["cores"] += live.units
        for one in () if live.lease is None else live.lease.allocations:
            if isinstance(one, Devices):
                each = range(one.first, one.first + one.degree)
                devices.update((one.resource, one.node, number) for number in each)
            elif isinstance(one, FunctionSlots):
                used[one.resource] += one.units
    books = list(nodes)
    memory_mb = sum(node.memory_mb for node in books)
    held_mb = memory_mb - sum(node.memory_free_mb for node in books)
    cores = sum(node.cores for node in books)
    found = [
        PoolStatus(resource="cpu", unit="cores", used=used["cores"], capacity=cores),
        PoolStatus(resource="memory", unit="MB", used=held_mb, capacity=memory_mb),
    ]
    for name, spec in cluster.pools.items():
        if isinstance(spec, GpuSpec):
            mine = sum(1 for resource, _, _ in devices if resource == name)
            most = spec.nodes * spec.devices
            found.append(PoolStatus(resource=name, unit="devices", used=mine, capacity=most))
        elif isinstance(spec, FunctionsSpec):
            mine = used[name]
            found.append(PoolStatus(resource=name, unit="slots", used=mine, capacity=spec.ceiling))
    return tuple(found)


def jobs(
    shares: Mapping[JobId, float],
    trajectories: Iterable[LiveTrajectory],
    running: Iterable[LiveAction],
    waiting: Iterable[LiveAction],
) -> tuple[JobStatus, ...]:
    """The jobs that have most to do, and what each has."""
    num: dict[str, Counter[JobId]] = {
        name: Counter()
        for name in ("queued", "running", "trajectories", "cores", "memory_mb", "devices")
    }
    oldest: dict[JobId, LiveAction] = {}
    for live in trajectories:
        job = live.opening.job
        num["trajectories"][job] += 1
        if live.node is not None:
            num["memory_mb"][job] += live.opening.booked_mb
    for one in running:
        job = one.action.job
        num["running"][job] += 1
        num["cores"][job] += one.units
        for part in () if one.lease is None else one.lease.allocations:
            if isinstance(part, Devices):
                num["devices"][job] += part.degree
    for one in waiting:
        job = one.action.job
        num["queued"][job] += 1
        before = oldest.get(job)
        if before is None or one.submitted_at < before.submitted_at:
            oldest[job] = one
    known = dict.fromkeys([*num["queued"], *num["running"], *num["trajectories"], *shares])
    busiest = nlargest(
        MOST_JOBS, known, key=lambda job: sum(num[name][job] for name in ("queued", "running"))
    )
    return tuple(
        JobStatus(
            job=job,
            share=shares.get(job, 1.0),
            oldest=oldest[job].action.id if job in oldest else None,
            queued=num["queued"][job],
            running=num["running"][job],
            trajectories=num["trajectories"][job],
            cores=num["cores"][job],
            memory_mb=num["memory_mb"][job],
            devices=num["devices"][job],
        )
        for job in busiest
    )


def longest_running(running: Iterable[LiveAction], now: float) -> tuple[RunningStatus, ...]:
    """The actions whose leases began first."""
    oldest = nsmallest(MOST_RUNNING, running, key=lambda live: live.started_at)
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
