"""The books of somebody who sees only the scheduler's events and decisions.

Every check of `LiveCounts` is one promise of the scheduler; none looks inside it.
"""

from dataclasses import dataclass, field
from math import inf

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Action, Outcome
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    NodeSpec,
    QuotaSpec,
    node_ids,
)
from artangram.core.scheduling.decisions import (
    Decision,
    Release,
    Report,
    Resize,
    Start,
    Stop,
    WakeAt,
)
from artangram.core.scheduling.events import TrajectoryOpened
from artangram.core.scheduling.lease import (
    Allocation,
    Calls,
    Cores,
    CoreShare,
    Devices,
    FunctionSlots,
    Lease,
)
from artangram.core.scheduling.policies.policy import SchedulingPolicy
from artangram.core.scheduling.pools.buddy import chunk_size


@dataclass
class Life:
    """What is known of an action that was submitted and not reported."""

    action: Action
    submitted_at: float
    lease: Lease | None = None
    cores: tuple[int, ...] = ()
    started_at: float = 0.0
    attempt: int = 0
    stop: Outcome | None = None

    @property
    def is_running(self) -> bool:
        return self.lease is not None

    @property
    def is_elastic(self) -> bool:
        """Does it run on cores that may change?"""
        elastic = self.action.needs.elastic
        return elastic is not None and len(self.action.needs.of(elastic)) > 1

    @property
    def least(self) -> int:
        return self.action.needs.of(self.primary)[0]

    @property
    def primary(self) -> Resource:
        assert self.lease is not None
        return self.lease.allocations[0].resource


@dataclass
class Calling:
    """The calls of one API: under way, and every start ever."""

    under_way: int = 0
    starts: list[tuple[float, int]] = field(default_factory=list)
    closed_until: float = 0.0


Device = tuple[NodeId, int]


class LiveCounts:
    """Who holds what, kept from events and decisions alone."""

    def __init__(
        self, cluster: ClusterSpec, policy: SchedulingPolicy, *, is_deployed: bool = False
    ) -> None:
        """`is_deployed`: services run at the degree of their deployment, whatever is asked."""
        self.cluster = cluster
        self.policy = policy
        self.is_deployed = is_deployed
        self.lives: dict[ActionId, Life] = {}
        self.outcomes: dict[ActionId, Outcome] = {}
        self.submitted_ids: set[ActionId] = set()
        self.wake_at: float | None = None
        self.nodes: dict[NodeId, Resource] = {}
        self.specs: dict[NodeId, NodeSpec] = {}
        self.opened: dict[TrajectoryId, TrajectoryOpened] = {}
        #: Closed, with nothing left to run: their sandboxes are still there.
        self.leaving: dict[TrajectoryId, None] = {}
        #: Draining nodes, how many had been submitted by then, and who had no node by then.
        self.draining: dict[NodeId, tuple[int, set[TrajectoryId | None]]] = {}
        #: When a trajectory, or an action without one, first asked for anything.
        self._asked: dict[str, int] = {}
        self.placement: dict[TrajectoryId, NodeId] = {}
        self.calls: dict[Resource, Calling] = {}
        self.busy_slots: dict[Resource, int] = {}
        self._cores: dict[Device, ActionId] = {}
        self._devices: dict[Device, list[tuple[ActionId, Devices]]] = {}
        for resource, spec in cluster.pools.items():
            if isinstance(spec, CpuSpec | GpuSpec):
                for node in node_ids(resource, spec.nodes):
                    self.join(resource, node, None)
            elif isinstance(spec, QuotaSpec):
                self.calls[resource] = Calling()
            else:
                self.busy_slots[resource] = 0

    def running(self) -> list[Life]:
        return [life for life in self.lives.values() if life.is_running]

    def waiting(self) -> list[Life]:
        return [life for life in self.lives.values() if not life.is_running]

    def submitted(self, action: Action, now: float) -> None:
        self.lives[action.id] = Life(action, now)
        self.submitted_ids.add(action.id)
        self._asked.setdefault(action.trajectory or action.id, len(self.submitted_ids))

    def open(self, opened: TrajectoryOpened) -> None:
        self.opened[opened.trajectory] = opened

    def join(self, resource: Resource, node: NodeId, spec: NodeSpec | None) -> None:
        """A node is there, empty."""
        self.nodes[node] = resource
        pool = self.cluster.pools[resource]
        if isinstance(pool, CpuSpec):
            self.specs[node] = spec or pool.node()

    def drain(self, node: NodeId, without_a_node: set[TrajectoryId | None]) -> None:
        self.draining.setdefault(node, (len(self.submitted_ids), without_a_node))

    def undrain(self, node: NodeId) -> None:
        del self.draining[node]

    def free_cores(self, node: NodeId) -> int:
        return self.specs[node].cores - sum(at == node for at, _ in self._cores)

    def free_slots(self, resource: Resource) -> int:
        spec = self.cluster.pools[resource]
        assert isinstance(spec, FunctionsSpec)
        return max(0, spec.ceiling - self.busy_slots[resource])  # It may have been lowered.

    def carry_out(self, decisions: list[Decision], now: float) -> None:
        """Do what was decided, in order, and see that it can be done."""
        for decision in decisions:
            match decision:
                case Start(lease):
                    self._start(lease, now)
                case Resize(action_id, cores):
                    self._resize(self.lives[action_id], cores)
                case Stop(action_id, reason):
                    life = self.lives[action_id]
                    assert life.is_running, f"{action_id} is to be stopped, but does not run"
                    assert life.stop is None, f"{action_id} is to be stopped twice"
                    life.stop = Outcome(reason.value)
                case Report():
                    self._report(decision, now)
                case Release(_, node):
                    self._check_released(node)
                case WakeAt(at):
                    assert now < at < inf, f"at {now} it wants to be woken at {at}"
                    self.wake_at = at

    def release(self, life: Life, *, lost: NodeId | None = None) -> None:
        """The lease ended: everything is free again, but for what was lost."""
        assert life.lease is not None
        for allocation in life.lease.allocations:
            match allocation:
                case Cores(_, node):
                    mine = [c for c, owner in self._cores.items() if owner == life.action.id]
                    for core in mine:
                        del self._cores[core]
                case Devices(_, node):
                    for device in _devices(allocation) if node != lost else ():
                        users = self._devices[device]
                        users.remove((life.action.id, allocation))
                case Calls(resource, units):
                    self.calls[resource].under_way -= units
                case FunctionSlots(resource, units):
                    self.busy_slots[resource] -= units
        life.lease = None

    def lose(self, node: NodeId) -> None:
        """A node is gone, with the leases and the homes on it."""
        for life in self.running():
            assert life.lease is not None
            if any(getattr(a, "node", None) == node for a in life.lease.allocations):
                self.release(life, lost=node)
        del self.nodes[node]
        self.specs.pop(node, None)
        self.draining.pop(node, None)
        self.placement = {t: at for t, at in self.placement.items() if at != node}
        self._devices = {d: users for d, users in self._devices.items() if d[0] != node}

    def leave(self, trajectory: TrajectoryId) -> None:
        del self.leaving[trajectory]
        del self.opened[trajectory]
        self.placement.pop(trajectory, None)

    def _check_released(self, node: NodeId) -> None:
        assert node in self.draining, f"{node} is let go, but does not drain"
        here = [t for t, at in self.placement.items() if at == node]
        here += [life.action.id for life in self.running() if _runs_on(life, node)]
        assert not here, f"{node} is let go with {here}"

    def _start(self, lease: Lease, now: float) -> None:
        life = self.lives[lease.action_id]
        assert not life.is_running, f"{lease.action_id} was started twice"
        assert lease.attempt > life.attempt, f"{lease.action_id} repeats attempt {lease.attempt}"
        assert lease.prepare_s >= 0
        self._check_complete(life.action, lease)
        life.attempt, life.started_at, life.lease = lease.attempt, now, lease
        for allocation in lease.allocations:
            self._take(life, allocation, now)

    def _check_complete(self, action: Action, lease: Lease) -> None:
        """All of its needs are met, each with an admissible amount."""
        given = {a.resource: a for a in lease.allocations}
        assert len(given) == len(lease.allocations)
        assert set(given) == {name for name, _ in action.needs.amounts}
        primary = lease.allocations[0].resource
        for resource, amounts in action.needs.amounts:
            allocation = given[resource]
            if isinstance(allocation, Devices) and self.is_deployed:
                continue  # A deployment serves every call at its own degree.
            if resource == primary:
                assert lease.workers in amounts, f"{lease} has an odd number of workers"
                least, most = amounts[0], lease.workers
            else:
                least = most = amounts[0]
            if isinstance(allocation, Devices):
                least, most = chunk_size(least), chunk_size(most)
            if not isinstance(allocation, CoreShare):
                assert least <= allocation.units <= most, f"{allocation} is not what it needs"

    def _take(self, life: Life, allocation: Allocation, now: float) -> None:
        match allocation:
            case Cores(_, node, cores):
                self._settle(life, node)
                self._take_cores(life, node, cores)
            case CoreShare(_, node):
                self._settle(life, node)
            case Devices():
                self._take_devices(life, allocation)
            case Calls(resource, units):
                self._take_calls(resource, units, now)
            case FunctionSlots(resource, units, cold):
                spec = self.cluster.pools[resource]
                assert isinstance(spec, FunctionsSpec)
                assert 0 <= cold <= units
                self.busy_slots[resource] += units
                assert self.busy_slots[resource] <= spec.ceiling, f"{resource} is above its ceiling"

    def _take_cores(self, life: Life, node: NodeId, cores: tuple[int, ...]) -> None:
        spec = self.specs[node]
        assert len(set(cores)) == len(cores), f"{life.action.id} got a core twice: {cores}"
        for core in cores:
            assert 0 <= core < spec.cores, f"{node} has no core {core}"
            holder = self._cores.setdefault((node, core), life.action.id)
            assert holder == life.action.id, f"{node}:{core} is {holder}'s, not {life.action.id}'s"
        life.cores = cores

    def _resize(self, life: Life, cores: Cores) -> None:
        assert life.lease is not None, f"{life.action.id} is resized, but does not run"
        first = life.lease.allocations[0]
        assert isinstance(first, Cores)
        assert first.node == cores.node, f"{life.action.id} was moved to another node"
        is_preempted = cores.units == 0
        is_within = life.least <= cores.units <= life.lease.workers
        assert is_preempted or is_within, f"{life.action.id}: {cores}"
        for core in life.cores:
            del self._cores[cores.node, core]
        self._take_cores(life, cores.node, cores.cores)

    def _settle(self, life: Life, node: NodeId) -> None:
        """Its trajectory lives there from now on; the node has room for all who do."""
        trajectory = life.action.trajectory
        assert node in self.nodes, f"{node} is not there"
        if trajectory not in self.placement:
            self._check_new(life.action, node)
        if trajectory is None:
            return
        home = self.placement.setdefault(trajectory, node)
        assert home == node, f"{trajectory} lives on {home}, not on {node}"
        here = [t for t, at in self.placement.items() if at == node]
        spec = self.specs[node]
        held_mb = sum(self.opened[t].memory_mb for t in here)
        assert held_mb <= spec.memory_mb, f"{node} is over-committed: {held_mb} MB"
        assert len(here) * self.policy.request_milli <= 1000 * spec.cores, f"{node} is full"

    def _check_new(self, action: Action, node: NodeId) -> None:
        """A trajectory, or an action without one, comes to a node that may have it."""
        trajectory, labels = action.trajectory, self.specs[node].labels
        selector = {} if trajectory is None else self.opened[trajectory].selector
        has_all = all(labels.get(label) == value for label, value in selector.items())
        assert has_all, f"{trajectory} asks for {selector}, {node} has {labels}"
        num_submitted, waiting = self.draining.get(node, (len(self.submitted_ids), set()))
        is_known = self._asked[trajectory or action.id] <= num_submitted
        is_late = not is_known or (trajectory is not None and trajectory in waiting)
        assert not is_late, f"{trajectory or action.id} came to {node}, which drains"

    def _take_devices(self, life: Life, given: Devices) -> None:
        spec = self.cluster.pools[given.resource]
        assert isinstance(spec, GpuSpec)
        assert given.node in self.nodes, f"{given.node} is not there"
        assert given.degree == chunk_size(given.degree), f"{given} is no power of two"
        assert given.first % given.degree == 0, f"{given} is not aligned"
        assert 0 <= given.first <= spec.devices - given.degree, f"{given} is not on the node"
        service = self.cluster.services.get(given.service)
        for device in _devices(given):
            users = self._devices.setdefault(device, [])
            users.append((life.action.id, given))
            places = {(at.first, at.degree, at.service) for _, at in users}
            assert len(places) == 1, f"{device} is used twice: {users}"
            assert len(users) <= (1 if service is None else service.batch), f"{users}"

    def _take_calls(self, resource: Resource, units: int, now: float) -> None:
        spec, calls = self.cluster.pools[resource], self.calls[resource]
        assert isinstance(spec, QuotaSpec)
        assert now >= calls.closed_until, f"{resource} is closed until {calls.closed_until}"
        calls.under_way += units
        calls.starts.append((now, units))
        recent = sum(n for at, n in calls.starts if at + spec.window_s > now)
        assert spec.limit is None or recent <= spec.limit, f"{recent} calls of {resource}"
        is_within = spec.concurrency is None or calls.under_way <= spec.concurrency
        assert is_within, f"{calls.under_way} calls of {resource} are under way"

    def _report(self, report: Report, now: float) -> None:
        record = report.record
        assert record.action_id not in self.outcomes, f"{record.action_id} was reported twice"
        life = self.lives.pop(record.action_id)
        assert not life.is_running, f"{record.action_id} was reported while it runs"
        self.outcomes[record.action_id] = record.outcome
        assert record.submitted_at == life.submitted_at
        assert record.ended_at == now
        assert abs(record.wait_s + record.overhead_s + record.run_s - record.act_s) < 1e-9
        assert record.started_at is None or record.started_at == life.started_at


def _runs_on(life: Life, node: NodeId) -> bool:
    assert life.lease is not None
    return any(getattr(a, "node", None) == node for a in life.lease.allocations)


def _devices(given: Devices) -> list[Device]:
    return [(given.node, n) for n in range(given.first, given.first + given.degree)]
