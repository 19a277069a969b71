"""The simulated world that carries decisions out: how fast what was started really runs.

- It knows the true work and speed-up of every action; the scheduler only knows its estimates.
- Exclusive cores run at the action's speed for that number of cores; below its workers it loses the
  node's squeeze penalty.
- A node whose kernel shares its cores is a `SharedNode`.
- Actions that share one resident service slow each other by the service's batch cost.
"""

from heapq import heappop, heappush
from math import inf

from artangram.core.ids import ActionId, NodeId, Resource
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, FunctionsSpec, GpuSpec, PoolSpec
from artangram.core.scheduling.lease import Allocation, Cores, CoreShare, Devices, Lease
from artangram.core.scheduling.policies.width import malleable_widths
from artangram.core.scheduling.speedup import DEFAULT
from artangram.observe.trace import TraceAction
from artangram.sim.sharednode import Contender, SharedNode
from artangram.sim.timeline import Timeline


class SimRun:
    """One action under way."""

    __slots__ = (
        "action",
        "action_id",
        "allocation",
        "attempt",
        "began_at",
        "fail_left_s",
        "limit_at",
        "limit_left_s",
        "limit_outcome",
        "pace",
        "rate",
        "secondary",
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
        self.secondary = lease.allocations[1:]
        self.attempt = lease.attempt
        self.workers = lease.workers
        self.began_at = now + lease.prepare_s
        self.updated_at = self.began_at
        self.work_left_s = action.work_s
        self.rate = 0.0
        #: Units of the first allocation it really uses.
        self.used = 0.0
        self.version = 0
        #: Seconds with cores until it fails, and of its time limit; how fast the latter pass.
        self.fail_left_s = inf if action.fail_at_s is None else action.fail_at_s
        self.limit_left_s = inf if action.timeout_s is None else action.timeout_s
        self.pace = lease.pace
        self.limit_at, self.limit_outcome = _limit(self)


def _limit(run: SimRun) -> tuple[float, Outcome]:
    """When `run` ends although its work is not done, if nothing changes, and how."""
    if not run.pace:
        return inf, Outcome.SUCCEEDED
    fails_at = run.updated_at + run.fail_left_s
    timed_out_at = run.updated_at + run.limit_left_s / run.pace
    if fails_at <= timed_out_at:
        return fails_at, Outcome.FAILED
    return timed_out_at, Outcome.TIMED_OUT


class ActionEnded:
    """An action that has just ended."""

    __slots__ = ("outcome", "run")

    def __init__(self, run: SimRun, outcome: Outcome) -> None:
        self.run = run
        self.outcome = outcome


class Machine:
    """Everything that runs, and when it ends. The driver stops at every `next_at`."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        #: How much of each pool is in use, where a pool has a capacity.
        self.use: dict[Resource, Timeline] = {
            name: Timeline(capacity)
            for name, spec in cluster.pools.items()
            if (capacity := capacity_of(spec)) is not None
        }
        self._runs: dict[ActionId, SimRun] = {}
        self._instants: list[tuple[float, int, SimRun | SharedNode, int]] = []
        self._seq = 0
        self._shared: dict[NodeId, SharedNode] = {}
        #: Actions that share a resident service.
        self._batches: dict[tuple[NodeId, int, int, str], dict[ActionId, SimRun]] = {}

    def next_at(self) -> float | None:
        """When something here changes next by itself: an action ends or begins to contend."""
        instants = self._instants
        while instants and instants[0][2].version != instants[0][3]:
            heappop(instants)
        return instants[0][0] if instants else None

    def start(self, action: TraceAction, lease: Lease, now: float) -> SimRun:
        """`action` begins to run, once its lease is made real."""
        run = SimRun(action, lease, now)
        self._runs[run.action_id] = run
        for side in run.secondary:
            if isinstance(side, CoreShare):
                self._contend(_beside(run, side), side, now)
            else:
                self._count(side.resource, side.units, now)
        match run.allocation:
            case CoreShare() as share:
                self._contend(_contender(run, share), share, now)
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

    def resize(self, action_id: ActionId, cores: Cores, now: float, *, pace: float = 1.0) -> SimRun:
        """A running action has other cores from now on, and its limit passes at another pace."""
        run = self._runs[action_id]
        run.allocation = cores
        self._set_used(run, cores.units, now)
        self._set_rate(run, self._alone(run), now, pace=pace)
        return run

    def ended(self, now: float) -> list[ActionEnded]:
        """What ends at `now`."""
        out = []
        while (at := self.next_at()) is not None and at <= now:
            match heappop(self._instants)[2]:
                case SharedNode() as node:
                    for action_id, is_cut in node.ended(now):
                        out.append(_end(self._forget(action_id, now), is_cut))
                    self._remember(node.next_at(), node)
                case SimRun() as run:
                    out.append(_end(run, run.limit_at <= now and _left(run, now) > 1e-9))
                    self._leave(run, now)
        return out

    def stop(self, action_id: ActionId, now: float) -> SimRun:
        """Something running is stopped before its end."""
        run = self._runs[action_id]
        self._leave(run, now)
        return run

    def _leave(self, run: SimRun, now: float) -> None:
        """`run` is over; those that shared something with it run on without it."""
        self._forget(run.action_id, now)
        match run.allocation:
            case CoreShare() as share:
                self._yield(run, share, now)
            case Devices() as devices:
                members = self._batches[_batch(devices)]
                del members[run.action_id]
                self._rerate_batch(devices, now)
                for heir in members.values():
                    self._set_used(heir, devices.degree, now)
                    break
                else:
                    del self._batches[_batch(devices)]

    def _forget(self, action_id: ActionId, now: float) -> SimRun:
        run = self._runs.pop(action_id)
        run.version += 1
        self._set_used(run, 0.0, now)
        for side in run.secondary:
            if isinstance(side, CoreShare):
                self._yield(run, side, now)
            else:
                self._count(side.resource, -side.units, now)
        return run

    def _contend(self, contender: Contender, share: CoreShare, now: float) -> None:
        node = self._shared_node(share)
        node.start(contender, now)
        self._remember(node.next_at(), node)

    def _yield(self, run: SimRun, share: CoreShare, now: float) -> None:
        node = self._shared_node(share)
        node.stop(run.action_id, now)
        self._remember(node.next_at(), node)

    def _shared_node(self, share: CoreShare) -> SharedNode:
        node = self._shared.get(share.node)
        if node is None:
            spec = self._cluster.pools[share.resource]
            assert isinstance(spec, CpuSpec)
            node = SharedNode(spec.cores, spec.squeeze_penalty, self.use[share.resource])
            self._shared[share.node] = node
        return node

    def _alone(self, run: SimRun) -> float:
        """The speed of an action that shares its units with no other."""
        needs, allocation = run.action.needs, run.allocation
        if not allocation.units:
            return 0.0  # It was preempted.
        if needs.elastic != allocation.resource:
            return 1.0
        curve = needs.speedup or DEFAULT
        if not isinstance(allocation, Cores):
            return curve.speed(allocation.units)
        amounts = needs.of(allocation.resource)
        spec = self._cluster.pools[allocation.resource]
        assert isinstance(spec, CpuSpec)
        widths = malleable_widths(amounts, curve, run.workers, spec.squeeze_penalty)
        return widths.speed[allocation.units]

    def _rerate_batch(self, devices: Devices, now: float) -> None:
        members = self._batches[_batch(devices)]
        service = self._cluster.services.get(devices.service)
        cost = service.batch_cost if service is not None else 0.0
        slowdown = 1.0 + cost * (len(members) - 1)
        for run in members.values():
            self._set_rate(run, self._alone(run) / slowdown, now)

    def _set_used(self, run: SimRun, units: float, now: float) -> None:
        self._count(run.allocation.resource, units - run.used, now)
        run.used = units

    def _count(self, resource: Resource, units: float, now: float) -> None:
        timeline = self.use.get(resource)
        if timeline is not None and units:
            timeline.add(units, now)

    def _set_rate(self, run: SimRun, rate: float, now: float, *, pace: float | None = None) -> None:
        pace = run.pace if pace is None else pace
        if rate == run.rate and pace == run.pace and run.version:
            return
        elapsed_s = max(0.0, now - run.updated_at)
        run.work_left_s = _left(run, now)
        run.limit_left_s -= elapsed_s * run.pace
        run.fail_left_s -= elapsed_s if run.pace else 0.0
        run.updated_at = max(run.updated_at, now)
        run.rate, run.pace = rate, pace
        run.version += 1
        run.limit_at, run.limit_outcome = _limit(run)
        ends_at = run.updated_at + run.work_left_s / rate if rate else inf
        self._remember(min(ends_at, run.limit_at), run)

    def _remember(self, at: float, thing: SimRun | SharedNode) -> None:
        if at < inf:
            self._seq += 1
            heappush(self._instants, (at, self._seq, thing, thing.version))


def _left(run: SimRun, now: float) -> float:
    return max(0.0, run.work_left_s - max(0.0, now - run.updated_at) * run.rate)


def _batch(devices: Devices) -> tuple[NodeId, int, int, str]:
    return (devices.node, devices.first, devices.degree, devices.service)


def _contender(run: SimRun, share: CoreShare) -> Contender:
    needs = run.action.needs
    is_elastic = needs.elastic == share.resource
    return Contender(
        action_id=run.action_id,
        weight_milli=share.weight_milli,
        limit_milli=share.limit_milli,
        workers=run.workers,
        curve=(needs.speedup or DEFAULT) if is_elastic else None,
        work_s=run.action.work_s,
        begins_at=run.began_at,
        cut_at=run.limit_at,
    )


def _beside(run: SimRun, share: CoreShare) -> Contender:
    """Takes part of a node for as long as the action runs elsewhere, which it does not slow."""
    return Contender(
        action_id=run.action_id,
        weight_milli=share.weight_milli,
        limit_milli=share.limit_milli,
        workers=run.action.needs.of(share.resource)[0],
        curve=None,
        work_s=inf,
        begins_at=run.began_at,
        cut_at=inf,
    )


def _end(run: SimRun, is_cut: bool) -> ActionEnded:
    return ActionEnded(run, run.limit_outcome if is_cut else Outcome.SUCCEEDED)


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
