"""The simulated world that carries decisions out: how fast what was started really runs.

- It knows the true work and speed-up of every action; the scheduler only knows its estimates.
- Exclusive cores run at the action's speed for so many cores; below its workers it loses the
  node's squeeze penalty.
- A node whose kernel shares its cores gives each contender its weighted share, none more than its
  limit or its workers can use.
- Actions that share one resident service slow each other by the service's batch cost.
"""

from heapq import heappop, heappush

from artangram.core.cluster import ClusterSpec, CpuSpec, FunctionsSpec, GpuSpec, PoolSpec
from artangram.core.ids import ActionId, NodeId, Resource
from artangram.core.lease import Allocation, Cores, CoreShare, Devices, Lease
from artangram.core.policies.width import malleable_widths
from artangram.core.records import Outcome
from artangram.core.speedup import DEFAULT
from artangram.observe.trace import TraceAction
from artangram.sim.kernel import Contender, fair_shares
from artangram.sim.timeline import Timeline


class Run:
    """One action under way."""

    __slots__ = (
        "action",
        "action_id",
        "allocation",
        "attempt",
        "began_at",
        "limit_at",
        "limit_outcome",
        "rate",
        "sides",
        "updated_at",
        "used",
        "version",
        "work_left_s",
        "workers",
    )

    def __init__(self, action: TraceAction, lease: Lease, now: float) -> None:
        self.action = action
        self.action_id = lease.action_id
        self.allocation: Allocation = lease.allocations[0]
        self.sides = lease.allocations[1:]
        self.attempt = lease.attempt
        self.workers = lease.workers
        self.began_at = now + lease.prepare_s
        self.updated_at = self.began_at
        self.work_left_s = action.work_s
        self.rate = 0.0
        #: Units of the first allocation it really uses.
        self.used = 0.0
        self.version = 0
        self.limit_at, self.limit_outcome = _limit(action, self.began_at)


def _limit(action: TraceAction, began_at: float) -> tuple[float, Outcome]:
    """When an action ends although its work is not done, and how."""
    limits = [(float("inf"), Outcome.SUCCEEDED)]
    if action.fail_at_s is not None:
        limits.append((began_at + action.fail_at_s, Outcome.FAILED))
    if action.timeout_s is not None:
        limits.append((began_at + action.timeout_s, Outcome.TIMED_OUT))
    return min(limits, key=lambda limit: limit[0])


class Ended:
    """An action that has just ended."""

    __slots__ = ("outcome", "run")

    def __init__(self, run: Run, outcome: Outcome) -> None:
        self.run = run
        self.outcome = outcome


class Machine:
    """Everything that runs, and when it ends."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        #: How much of each pool is in use, where a pool has a capacity.
        self.use: dict[Resource, Timeline] = {
            name: Timeline(capacity)
            for name, spec in cluster.pools.items()
            if (capacity := capacity_of(spec)) is not None
        }
        self._runs: dict[ActionId, Run] = {}
        self._ends: list[tuple[float, int, Run, int]] = []
        self._seq = 0
        #: Contenders for the cores of a node, or members of a batch on a resident service.
        self._nodes: dict[NodeId, dict[ActionId, Run]] = {}
        self._crowded: set[NodeId] = set()
        self._batches: dict[tuple[NodeId, int, int, str], dict[ActionId, Run]] = {}

    def next_end(self) -> float | None:
        """When the next action ends."""
        ends = self._ends
        while ends and ends[0][2].version != ends[0][3]:
            heappop(ends)
        return ends[0][0] if ends else None

    def start(self, action: TraceAction, lease: Lease, now: float) -> Run:
        """`action` begins to run, once its lease is made real."""
        run = Run(action, lease, now)
        self._runs[run.action_id] = run
        for side in run.sides:
            self._count(side.resource, side.units, now)
        match run.allocation:
            case CoreShare(node=node):
                self._nodes.setdefault(node, {})[run.action_id] = run
                self._share(node, run, now)
            case Devices() as devices:
                members = self._batches.setdefault(_batch(devices), {})
                members[run.action_id] = run
                # A batch uses its devices once, however many share them.
                self._set_used(run, devices.degree if len(members) == 1 else 0, now)
                self._rerate_batch(devices, now)
            case allocation:
                self._set_used(run, allocation.units, now)
                self._set_rate(run, self._alone(run), now)
        return run

    def resize(self, action_id: ActionId, cores: Cores, now: float) -> Run:
        """A running action has other cores from now on."""
        run = self._runs[action_id]
        run.allocation = cores
        self._set_used(run, cores.units, now)
        self._set_rate(run, self._alone(run), now)
        return run

    def ended(self, now: float) -> list[Ended]:
        """What ends at `now`."""
        out = []
        while (at := self.next_end()) is not None and at <= now:
            run = heappop(self._ends)[2]
            is_cut = run.limit_at <= now and _left(run, now) > 1e-9
            out.append(Ended(run, run.limit_outcome if is_cut else Outcome.SUCCEEDED))
            self._leave(run, now)
        return out

    def stop(self, action_id: ActionId, now: float) -> Run:
        """Something running is stopped before its end."""
        run = self._runs[action_id]
        self._leave(run, now)
        return run

    def lost(self, node: NodeId, now: float) -> list[Run]:
        """All that ran on `node` is gone."""
        gone = [run for run in self._runs.values() if _node_of(run.allocation) == node]
        for run in gone:
            self._leave(run, now)
        return gone

    def _leave(self, run: Run, now: float) -> None:
        run.version += 1
        del self._runs[run.action_id]
        self._set_used(run, 0.0, now)
        for side in run.sides:
            self._count(side.resource, -side.units, now)
        match run.allocation:
            case CoreShare(node=node):
                del self._nodes[node][run.action_id]
                if node in self._crowded:
                    self._share_all(node, now)
            case Devices() as devices:
                members = self._batches[_batch(devices)]
                del members[run.action_id]
                self._rerate_batch(devices, now)
                for heir in members.values():
                    self._set_used(heir, devices.degree, now)
                    break
                else:
                    del self._batches[_batch(devices)]

    def _alone(self, run: Run) -> float:
        """The speed of an action that shares its units with nobody."""
        needs, allocation = run.action.needs, run.allocation
        if needs.elastic != allocation.resource:
            return 1.0
        curve = needs.speedup or DEFAULT
        if not isinstance(allocation, Cores):
            return curve.speed(allocation.units)
        amounts = needs.of(allocation.resource)
        widths = malleable_widths(amounts, curve, run.workers, self._penalty(allocation))
        return widths.speed[allocation.units]

    def _penalty(self, allocation: Cores | CoreShare) -> float:
        spec = self._cluster.pools[allocation.resource]
        assert isinstance(spec, CpuSpec)
        return spec.squeeze_penalty

    def _share(self, node: NodeId, run: Run, now: float) -> None:
        """One more contender: alone if there is room for all, else everybody's share changes."""
        assert isinstance(run.allocation, CoreShare)
        spec = self._cluster.pools[run.allocation.resource]
        assert isinstance(spec, CpuSpec)
        wanted = sum(_wants_milli(r) for r in self._nodes[node].values())
        if node not in self._crowded and wanted <= 1000 * spec.cores:
            self._set_share(run, _wants_milli(run), now)
            return
        self._share_all(node, now)

    def _share_all(self, node: NodeId, now: float) -> None:
        runs = list(self._nodes[node].values())
        if not runs:
            self._crowded.discard(node)
            return
        allocation = runs[0].allocation
        spec = self._cluster.pools[allocation.resource]
        assert isinstance(spec, CpuSpec)
        contenders = [Contender(_weight(run), _wants_milli(run)) for run in runs]
        shares = fair_shares(contenders, 1000 * spec.cores)
        for run, share in zip(runs, shares, strict=True):
            self._set_share(run, share, now)
        is_crowded = sum(c.wants for c in contenders) > 1000 * spec.cores
        (self._crowded.add if is_crowded else self._crowded.discard)(node)

    def _set_share(self, run: Run, share_milli: float, now: float) -> None:
        self._set_used(run, share_milli / 1000, now)
        self._set_rate(run, self._shared_rate(run, share_milli), now)

    def _shared_rate(self, run: Run, share_milli: float) -> float:
        """The speed on a share of cores. Below one core a share is a share of one core's time."""
        assert isinstance(run.allocation, CoreShare)
        cores = share_milli / 1000
        needs = run.action.needs
        penalty = self._penalty(run.allocation) if cores < run.workers - 1e-9 else 0.0
        if needs.elastic != run.allocation.resource:
            return min(1.0, cores / run.workers) * (1 - penalty)
        curve = needs.speedup or DEFAULT
        return (cores if cores < 1 else curve.speed(cores)) * (1 - penalty)

    def _rerate_batch(self, devices: Devices, now: float) -> None:
        members = self._batches[_batch(devices)]
        service = self._cluster.services.get(devices.service)
        cost = service.batch_cost if service is not None else 0.0
        slowdown = 1.0 + cost * (len(members) - 1)
        for run in members.values():
            self._set_rate(run, self._alone(run) / slowdown, now)

    def _set_used(self, run: Run, units: float, now: float) -> None:
        self._count(run.allocation.resource, units - run.used, now)
        run.used = units

    def _count(self, resource: Resource, units: float, now: float) -> None:
        timeline = self.use.get(resource)
        if timeline is not None and units:
            timeline.add(units, now)

    def _set_rate(self, run: Run, rate: float, now: float) -> None:
        if rate == run.rate and run.version:
            return
        run.work_left_s = _left(run, now)
        run.updated_at = max(run.updated_at, now)
        run.rate = rate
        run.version += 1
        self._seq += 1
        end = min(run.updated_at + run.work_left_s / rate, run.limit_at)
        heappush(self._ends, (end, self._seq, run, run.version))


def _left(run: Run, now: float) -> float:
    return max(0.0, run.work_left_s - max(0.0, now - run.updated_at) * run.rate)


def _batch(devices: Devices) -> tuple[NodeId, int, int, str]:
    return (devices.node, devices.first, devices.degree, devices.service)


def _wants_milli(run: Run) -> int:
    """What a contender can use: its threads, up to its limit."""
    assert isinstance(run.allocation, CoreShare)
    return min(run.allocation.limit_milli, 1000 * run.workers)


def _weight(run: Run) -> int:
    assert isinstance(run.allocation, CoreShare)
    return run.allocation.weight_milli


def _node_of(allocation: Allocation) -> NodeId | None:
    return allocation.node if isinstance(allocation, Cores | CoreShare | Devices) else None


def capacity_of(spec: PoolSpec) -> int | None:
    """Units of a pool that can be in use at once; `None` where nothing limits them."""
    match spec:
        case CpuSpec():
            return spec.nodes * spec.cores
        case GpuSpec():
            return spec.nodes * spec.devices
        case FunctionsSpec():
            return spec.ceiling
    return spec.concurrency
