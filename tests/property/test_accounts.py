"""What jobs are charged adds up to what the scheduler's books and the journal say was held."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from live_run import ANY_S, CPU, MIXED, NEEDS, LiveRun, a_mixed_cluster, on_virtual_time, traces

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, QuotaSpec
from artangram.core.scheduling.decisions import Report, Resize, Start
from artangram.core.scheduling.events import Finished, TrajectoryGone, TrajectoryOpened
from artangram.core.scheduling.lease import Calls, Cores, CoreShare, Devices, FunctionSlots
from artangram.observe.journal import Entry
from artangram.observe.journalmemory import MemoryJournal
from artangram.observe.trace import Trace
from artangram.orchestrator.recovery import Setup
from artangram.orchestrator.use import JobUse, UseReport

CLOSE = pytest.approx


class Auditor(MemoryJournal):
    """Adds up what the scheduler's books say at every instant."""

    def __init__(self) -> None:
        super().__init__(keeps_entries=True)
        self.nodes: Any = None
        self.core_s = 0.0
        self._used, self._last_at = 0, 0.0

    def append(self, entry: Entry, **options: Any) -> int:
        self.core_s += self._used * (entry.at - self._last_at)
        self._used = sum(node.cores - node.free for node in self.nodes())
        self._last_at = entry.at
        return super().append(entry, **options)


def charged(trace: Trace, setup: Setup) -> tuple[UseReport, Auditor]:
    auditor = Auditor()
    live = LiveRun(trace, setup, "exact", journal=auditor)
    auditor.nodes = live.orchestrator._driver.scheduler.nodes
    on_virtual_time(live.run())
    ledger, now = live.orchestrator.ledger, live.clock.now()
    return ledger.accounts.report(ledger.alive(), cores=4, now=now), auditor


def from_journal(entries: list[Entry], until: float) -> dict[str, JobUse]:
    """The same accounts by job, from the journal alone and the slow way."""
    found: dict[str, JobUse] = defaultdict(lambda: JobUse(job=""))
    jobs, opened, lives = {}, {}, {}
    held: dict[str, tuple[float, Any]] = {}
    devices: dict[Any, list[tuple[float, str, int]]] = defaultdict(list)

    def end(action_id: str, at: float) -> None:
        since, lease = held.pop(action_id)
        use = found[jobs[action_id][0]]
        for one in lease:
            if isinstance(one, Cores | CoreShare):
                use.core_s += one.units * (at - since)
            elif isinstance(one, FunctionSlots):
                use.slot_s += one.units * (at - since)
            elif isinstance(one, Devices):
                devices[one.node, one.first, one.service].append((at, action_id, -one.units))

    for entry in entries:
        for event in entry.events:
            match event:
                case TrajectoryOpened(name):
                    opened[name] = event
                case TrajectoryGone(name):
                    if name in lives:
                        use = found[opened[name].job]
                        use.memory_mb_s += opened[name].memory_mb * (entry.at - lives.pop(name))
                case Finished(action_id) if action_id in held:
                    end(action_id, entry.at)
            if hasattr(event, "action"):
                jobs[event.action.id] = (event.action.job, event.action.trajectory)
        for decision in entry.decisions:
            match decision:
                case Start(lease):
                    job, trajectory = jobs[lease.action_id]
                    held[lease.action_id] = (entry.at, lease.allocations)
                    for one in lease.allocations:
                        if isinstance(one, Cores | CoreShare):
                            lives.setdefault(trajectory, entry.at)
                        elif isinstance(one, Calls):
                            found[job].calls += one.units
                        elif isinstance(one, Devices):
                            place = (one.node, one.first, one.service)
                            devices[place].append((entry.at, lease.action_id, one.units))
                case Resize(action_id, cores):
                    since, (was, *rest) = held[action_id]
                    found[jobs[action_id][0]].core_s += was.units * (entry.at - since)
                    assert not any(isinstance(one, FunctionSlots | Devices) for one in rest)
                    held[action_id] = (entry.at, (cores, *rest))
                case Report(record):
                    found[record.job].actions += 1
                    if record.action_id in held:
                        end(record.action_id, record.ended_at)
    for name, since in lives.items():
        found[opened[name].job].memory_mb_s += opened[name].memory_mb * (until - since)
    for changes in devices.values():
        share_devices(found, jobs, changes)
    return dict(found)


def share_devices(found: Any, jobs: Any, changes: list[tuple[float, str, int]]) -> None:
    users: dict[str, int] = {}
    last_at = 0.0
    for at, action_id, units in changes:
        for user, degree in users.items():
            found[jobs[user][0]].device_s += degree * (at - last_at) / len(users)
        last_at = at
        if units < 0:
            del users[action_id]
        else:
            users[action_id] = units


def assert_adds_up(trace: Trace, setup: Setup) -> None:
    report, auditor = charged(trace, setup)
    total = report.total
    if not setup.policy.startswith(("pods", "overcommit")):  # These give shares, not cores.
        assert total.core_s == CLOSE(auditor.core_s, rel=0.01, abs=1e-6)
    expected = from_journal(auditor.entries, report.at)
    charged_to: dict[str, JobUse] = defaultdict(lambda: JobUse(job=""))
    for row in report.rows:
        mine = charged_to[row.job]
        for name in ("core_s", "memory_mb_s", "device_s", "slot_s", "calls", "actions"):
            setattr(mine, name, getattr(mine, name) + getattr(row, name))
    for job, use in expected.items():
        for name in ("core_s", "memory_mb_s", "device_s", "slot_s", "calls", "actions"):
            assert getattr(charged_to[job], name) == CLOSE(
                getattr(use, name), rel=0.01, abs=1e-6
            ), (job, name)
    assert total.pod_core_s >= total.core_s * 0.999 or setup.policy != "elastic"


@settings(max_examples=12, deadline=None)
@given(trace=traces(NEEDS, seconds=ANY_S))
@pytest.mark.parametrize("name", ["elastic", "tangram", "pods:1/4"])
def test_cores_and_memory_of_jobs_add_up_to_the_books(name: str, trace: Trace) -> None:
    cpu = CpuSpec(nodes=2, cores=4, memory_mb=1000, create_s=0.3, overhead_s=0.01)
    search = QuotaSpec(concurrency=2, limit=5, window_s=4.0)
    cluster = ClusterSpec(pools={CPU: cpu, Resource("search"): search})
    assert_adds_up(trace, Setup(cluster=cluster, policy=name))


@settings(max_examples=12, deadline=None)
@given(trace=traces(MIXED, seconds=ANY_S))
def test_devices_slots_and_calls_of_jobs_add_up_to_the_journal(trace: Trace) -> None:
    assert_adds_up(trace, Setup(cluster=a_mixed_cluster(), policy="elastic"))
