"""What is alive, counted as it changes, so that a look at a large cluster counts nothing.

The ledger tells every change. What waits and what runs is in the order in which it began to.
`QueueLengths` also counts what is about to wait, and refuses what would be too much.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from artangram.core.ids import ActionId, JobId, NodeId, Resource
from artangram.core.scheduling.lease import Allocation, Devices, FunctionSlots
from artangram.managers.call import ApiCall, FunctionCall, ServiceCall
from artangram.orchestrator.live import LiveAction, LiveTrajectory
from artangram.orchestrator.records import Overloaded

JOB_FACTOR = 8
"""A job may have this many times the free places waiting: alone it gets 8 of 9 places, two such
jobs get 8 of 17 each, and some are always left for one that comes later."""


class JobTally(Struct, kw_only=True):
    """What one job has."""

    running: int = 0
    cores: int = 0
    devices: int = 0
    trajectories: int = 0
    memory_mb: int = 0


class NodeTally(Struct, kw_only=True):
    """What one node does."""

    running: int = 0
    cores: int = 0


class QueueLengths:
    """How many actions wait, or are about to, in all and by job."""

    def __init__(self, waiting: Iterable[JobId] = ()) -> None:
        self.by_job = Counter(waiting)
        self.total = self.by_job.total()

    def add(self, job: JobId) -> None:
        self.by_job[job] += 1
        self.total += 1

    def remove(self, job: JobId) -> None:
        self.total -= 1
        self.by_job[job] -= 1
        if not self.by_job[job]:
            del self.by_job[job]  # Callers make names up.

    def admit(self, job: JobId, most: int) -> None:
        """Raises `Overloaded` if one more action of `job` must not wait when `most` may."""
        ours, free = self.by_job[job], max(most - self.total, 0)
        if ours < JOB_FACTOR * free:
            return
        fix = "wait until some of them have ended, or submit fewer at once"
        left = f"the last {free} are for other jobs" if free else "none is free"
        raise Overloaded(
            f"job {job!r} has {ours} of {self.total} waiting actions; of {most} places "
            f"(max_queued) {left}; {fix if ours else 'try again later'}"
        )


class Tally:
    """Counts of live actions and trajectories."""

    def __init__(self) -> None:
        self.running: dict[ActionId, LiveAction] = {}
        self.waiting: dict[JobId, dict[ActionId, LiveAction]] = {}
        self.jobs: dict[JobId, JobTally] = {}
        self.nodes: dict[NodeId, NodeTally] = {}
        self.num_trajectories = 0
        self.cores = 0
        #: Function slots in use.
        self.slots: Counter[Resource] = Counter()
        #: How many actions use each device.
        self.devices: Counter[tuple[Resource, NodeId, int]] = Counter()
        #: Calls under way and waiting: of services and APIs by name, of functions by their type.
        self.busy: Counter[object] = Counter()
        self.queued: Counter[object] = Counter()

    @classmethod
    def of(cls, actions: Iterable[LiveAction], trajectories: Iterable[LiveTrajectory]) -> "Tally":
        """Of what a snapshot holds."""
        tally = cls()
        for trajectory in trajectories:
            tally.opened(trajectory)
            if trajectory.node is not None:
                tally.settled(trajectory)
        for live in actions:
            tally.submitted(live)
            if live.lease is not None:
                tally.began(live)
                tally._add_cores(live, live.units)
        return tally

    def submitted(self, live: LiveAction) -> None:
        """It waits."""
        self.waiting.setdefault(live.action.job, {})[live.action.id] = live
        if live.submission.call is not None:
            self.queued[_callee(live)] += 1

    def began(self, live: LiveAction) -> None:
        """It has a lease; `holds` says how many cores."""
        self._leave_line(live)
        self.running[live.action.id] = live
        self._job(live.action.job).running += 1
        if live.cores is not None:
            self.nodes.setdefault(live.cores.node, NodeTally()).running += 1
        if live.submission.call is not None:
            self.busy[_callee(live)] += 1
        assert live.lease is not None, f"{live} has no lease"
        self._count(live.action.job, live.lease.allocations, 1)

    def holds(self, live: LiveAction, units: int) -> None:
        """It has this many cores now, and had `live.units`."""
        if units != live.units:
            self._add_cores(live, units - live.units)

    def ended(self, live: LiveAction) -> None:
        """It gives its lease back, and waits again until it is reported."""
        assert live.lease is not None, f"{live} has no lease"
        self._count(live.action.job, live.lease.allocations, -1)
        self._add_cores(live, -live.units)
        del self.running[live.action.id]
        self._job(live.action.job).running -= 1
        if live.cores is not None:
            node = self.nodes[live.cores.node]
            node.running -= 1
            if not node.running:
                del self.nodes[live.cores.node]
        if live.submission.call is not None:
            self.busy[_callee(live)] -= 1
        self.submitted(live)

    def reported(self, live: LiveAction) -> None:
        """It waits no longer."""
        self._leave_line(live)
        self._tidy(live.action.job)

    def opened(self, live: LiveTrajectory) -> None:
        self.num_trajectories += 1
        self._job(live.opening.job).trajectories += 1

    def settled(self, live: LiveTrajectory) -> None:
        """It has a node from now on."""
        self._job(live.opening.job).memory_mb += live.opening.booked_mb

    def left(self, live: LiveTrajectory) -> None:
        self.num_trajectories -= 1
        job = self._job(live.opening.job)
        job.trajectories -= 1
        if live.node is not None:
            job.memory_mb -= live.opening.booked_mb
        self._tidy(live.opening.job)

    def _add_cores(self, live: LiveAction, units: int) -> None:
        self.cores += units
        self._job(live.action.job).cores += units
        if live.cores is not None:
            self.nodes[live.cores.node].cores += units

    def _count(self, job: JobId, allocations: Iterable[Allocation], times: int) -> None:
        for one in allocations:
            if isinstance(one, Devices):
                self._job(job).devices += times * one.degree
                for number in range(one.first, one.first + one.degree):
                    device = (one.resource, one.node, number)
                    self.devices[device] += times
                    if not self.devices[device]:
                        del self.devices[device]
            elif isinstance(one, FunctionSlots):
                self.slots[one.resource] += times * one.units

    def _leave_line(self, live: LiveAction) -> None:
        line = self.waiting[live.action.job]
        del line[live.action.id]
        if not line:
            del self.waiting[live.action.job]
        if live.submission.call is not None:
            self.queued[_callee(live)] -= 1

    def _job(self, job: JobId) -> JobTally:
        tally = self.jobs.get(job)
        if tally is None:
            tally = self.jobs[job] = JobTally()
        return tally

    def _tidy(self, job: JobId) -> None:
        """Callers make names up."""
        tally = self.jobs.get(job)
        if tally is not None and not (tally.running or tally.trajectories or job in self.waiting):
            del self.jobs[job]


def _callee(live: LiveAction) -> object:
    """What a call is to: a service or an API by name, or any function."""
    match live.submission.call:
        case ServiceCall(service=name) | ApiCall(api=name):
            return name
    return FunctionCall
