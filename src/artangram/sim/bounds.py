"""Lower bounds on the mean ACT of a trace. `docs/lower-bound.md` says why each is one.

- `fastest_s` and `srpt_area` hold for every schedule, also one that resizes running actions or
  lets a kernel share cores.
- `mean_busy` and `lagrangian` hold for schedules that fix the units at the start; beside a policy
  that resizes they are a reference, not a bound.
- All but `fastest_s` need an open loop: arrivals that do not react to the schedule. Chains of calls
  on devices are one, seen from their ends (`sim.chains`); devices are never resized, so there
  `lagrangian` holds for every schedule.
- Bounds are means over the actions that fit the cluster at all, in seconds.
"""

from collections import defaultdict
from functools import lru_cache
from heapq import heappop, heappush, heapreplace
from math import inf

from msgspec import Struct

from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, GpuSpec
from artangram.core.scheduling.needs import Needs
from artangram.core.scheduling.speedup import DEFAULT
from artangram.observe.trace import TraceAction, TraceSource
from artangram.sim.chains import chain_steps
from artangram.sim.lagrangian import lagrangian
from artangram.sim.moldable import Moldable, moldable

MOST_FOR_LAGRANGIAN = 10_000
"""Actions; its memory grows with actions times grid cells when load is high."""

CHAIN_CELLS = 1200
"""Calls are short beside the step they are in: coarser cells hide how they crowd."""


class LowerBound(Struct, frozen=True, kw_only=True):
    """No schedule has a smaller mean ACT than `act_mean_s`."""

    act_mean_s: float
    kind: str
    """The argument it rests on: `min-time`, `srpt-area` or `chains`."""
    moldable_act_mean_s: float | None = None
    """The same for schedules that fix the units at the start; `None` where it is not computed."""


def lower_bound(trace: TraceSource, cluster: ClusterSpec) -> LowerBound:
    """The best bound for what `trace` allows."""
    arrivals = _arrivals(trace, cluster)
    if not arrivals:
        fastest_mean_s = _mean_fastest_s(trace, cluster)
        if (chained_s := chain_bound(trace, cluster)) is not None and chained_s > fastest_mean_s:
            return LowerBound(act_mean_s=chained_s, kind="chains")
        return LowerBound(act_mean_s=fastest_mean_s, kind="min-time")
    parts: dict[Resource | None, list[tuple[float, TraceAction]]] = defaultdict(list)
    for arrive_s, action in arrivals:
        parts[_cpu_pool(action.needs, cluster)].append((arrive_s, action))
    total, kind = 0.0, "min-time"
    for pool, part in parts.items():
        fastest = sum(fastest_s(action, cluster) for _, action in part)
        areas = srpt_area(_any_sizes(part, cluster, pool=pool)) * len(part) if pool else 0.0
        total += max(fastest, areas)
        kind = "srpt-area" if areas > fastest else kind
    act_mean_s = total / len(arrivals)
    reference = None
    if len(parts) == 1 and (pool := next(iter(parts))) and len(arrivals) <= MOST_FOR_LAGRANGIAN:
        actions = fixed_sizes(arrivals, cluster, pool=pool)
        reference = max(act_mean_s, lagrangian(actions), mean_busy(actions))
    return LowerBound(act_mean_s=act_mean_s, kind=kind, moldable_act_mean_s=reference)


def chain_bound(trace: TraceSource, cluster: ClusterSpec) -> float | None:
    """For trajectories that think once and then call services; `None` for all others."""

    def seconds(action: TraceAction, pool: Resource, degree: int) -> float:
        return _time_s(action, cluster, pool=pool, units=degree)

    steps = chain_steps(trace, cluster, seconds)
    if not steps:
        return None
    total = 0.0
    for unchained, whole in steps:
        counted = lagrangian(unchained, cells=CHAIN_CELLS) * len(unchained)
        total += max(counted, srpt_area(whole) * len(whole))
    return total / sum(len(step.unchained) for step in steps)


def critical_path_s(trace: TraceSource, cluster: ClusterSpec) -> dict[tuple[JobId, int], float]:
    """For each job and step the longest trajectory when nothing ever waits."""
    longest: dict[tuple[JobId, int], float] = defaultdict(float)
    for trajectory in trace.trajectories:
        life_s = trajectory.arrive_s
        for turn in trajectory.turns:
            life_s += turn.think_s + sum(fastest_s(action, cluster) for action in turn.actions)
        key = (trajectory.job, trajectory.step)
        longest[key] = max(longest[key], life_s)
    return dict(longest)


def srpt_area(actions: Moldable) -> float:
    """The pool as one machine that serves least areas, shortest remaining first."""
    sizes = (actions.least_area / actions.units).tolist()
    waiting: list[tuple[float, float]] = []
    now = total = 0.0
    for index, arrive_s in enumerate([*actions.arrive_s.tolist(), inf]):
        while waiting:
            left_s, came_s = waiting[0]
            if now + left_s > arrive_s:
                heapreplace(waiting, (left_s - (arrive_s - now), came_s))
                break
            heappop(waiting)
            now += left_s
            total += now - came_s
        now = arrive_s
        if index < len(sizes):
            heappush(waiting, (sizes[index], arrive_s))
    return total / len(actions)


def mean_busy(actions: Moldable) -> float:
    """The same machine, shortest area first: runs end half their time behind their middle."""
    sizes = (actions.least_area / actions.units).tolist()
    middle = [0.0] * len(actions)
    waiting: list[tuple[float, int, float]] = []
    now = 0.0
    for index, arrive_s in enumerate([*actions.arrive_s.tolist(), inf]):
        while waiting and now < arrive_s:
            size, nth, left_s = waiting[0]
            served_s = min(left_s, arrive_s - now)
            middle[nth] += served_s / size * (now + served_s / 2)
            now += served_s
            if served_s < left_s:
                heapreplace(waiting, (size, nth, left_s - served_s))
            else:
                heappop(waiting)
        now = arrive_s
        if index < len(sizes) and sizes[index] > 0:
            heappush(waiting, (sizes[index], index, sizes[index]))
        elif index < len(sizes):
            middle[index] = arrive_s
    total = sum(middle) - float(actions.arrive_s.sum()) + float(actions.fastest_s.sum()) / 2
    return total / len(actions)


def fastest_s(action: TraceAction, cluster: ClusterSpec) -> float:
    """The least time `action` runs, on whatever it can get of `cluster`."""
    if action.needs.elastic is None:
        return min(_limit_s(action), action.work_s)
    widest = _widest(action.needs, cluster, pool=action.needs.elastic)
    return min(_limit_s(action), action.work_s / _top_speed(action.needs, widest))


def fixed_sizes(
    arrivals: list[tuple[float, TraceAction]], cluster: ClusterSpec, *, pool: Resource
) -> Moldable:
    """Actions that run on one of their admissible amounts of `pool` from start to end."""
    options = []
    for _, action in arrivals:
        sizes = [n for n in action.needs.of(pool) if n <= (_node_units(cluster, pool) or n)]
        options.append([(n, _time_s(action, cluster, pool=pool, units=n)) for n in sizes])
    return moldable([at for at, _ in arrivals], options, units=_pool_units(cluster, pool))


def _any_sizes(
    arrivals: list[tuple[float, TraceAction]], cluster: ClusterSpec, *, pool: Resource
) -> Moldable:
    """Actions whose units may change at any time: each as its least area, spread at will."""
    options = [[(_least_area(action, cluster, pool=pool), 1.0)] for _, action in arrivals]
    return moldable([at for at, _ in arrivals], options, units=_pool_units(cluster, pool))


def _least_area(action: TraceAction, cluster: ClusterSpec, *, pool: Resource) -> float:
    needs = action.needs
    if _limit_s(action) < inf:
        return 0.0  # a kernel may give it next to nothing until it is cut off
    if needs.elastic != pool:
        return needs.of(pool)[0] * fastest_s(action, cluster)
    curve, widest = needs.speedup or DEFAULT, _widest(needs, cluster, pool=pool)
    return action.work_s * min(n / curve.speed(n) for n in range(1, widest + 1))


def _time_s(action: TraceAction, cluster: ClusterSpec, *, pool: Resource, units: int) -> float:
    if action.needs.elastic != pool:
        return fastest_s(action, cluster)
    speed = (action.needs.speedup or DEFAULT).speed(units)
    return min(_limit_s(action), action.work_s / speed)


def _limit_s(action: TraceAction) -> float:
    """When it ends although its work is not done."""
    limits = (action.fail_at_s, action.timeout_s)
    return min((limit for limit in limits if limit is not None), default=inf)


def _widest(needs: Needs, cluster: ClusterSpec, *, pool: Resource) -> int:
    """The most units of its elastic resource that `needs` can be served on."""
    widest = needs.of(pool)[-1]
    service = cluster.services.get(needs.service) if needs.service is not None else None
    if service is not None and service.pool == pool:
        # A deployment serves every call at its own degree, whatever was asked for.
        widest = max(widest, *service.degrees)
    return min(widest, _node_units(cluster, pool) or widest)


@lru_cache(maxsize=1 << 16)
def _top_speed(needs: Needs, widest: int) -> float:
    curve = needs.speedup or DEFAULT
    return max(curve.speed(n) for n in range(1, widest + 1))


def _arrivals(trace: TraceSource, cluster: ClusterSpec) -> list[tuple[float, TraceAction]] | None:
    """When each action is submitted; `None` if that depends on the schedule (a closed loop)."""
    arrivals = []
    step = None
    for trajectory in trace.trajectories:
        step = trajectory.step if step is None else step
        turn = trajectory.turns[0]
        if trajectory.step != step or len(trajectory.turns) > 1 or len(turn.actions) != 1:
            return None
        if _fits(turn.actions[0].needs, cluster):
            arrivals.append((trajectory.arrive_s + turn.think_s, turn.actions[0]))
    return arrivals


def _mean_fastest_s(trace: TraceSource, cluster: ClusterSpec) -> float:
    total, count = 0.0, 0
    for trajectory in trace.trajectories:
        for turn in trajectory.turns:
            fitting = [action for action in turn.actions if _fits(action.needs, cluster)]
            total += sum(fastest_s(action, cluster) for action in fitting)
            count += len(fitting)
    return total / count if count else 0.0


def _fits(needs: Needs, cluster: ClusterSpec) -> bool:
    """Can it ever run? If not, the scheduler refuses it."""
    return all(
        resource in cluster.pools and amounts[0] <= (_node_units(cluster, resource) or amounts[0])
        for resource, amounts in needs.amounts
    )


def _cpu_pool(needs: Needs, cluster: ClusterSpec) -> Resource | None:
    """The pool whose cores `needs` competes for. Only there does nothing share what it holds."""
    for resource, _ in needs.amounts:
        if isinstance(cluster.pools.get(resource), CpuSpec):
            return resource
    return None


def _node_units(cluster: ClusterSpec, resource: Resource | None) -> int | None:
    """The most of `resource` one action can have; `None` if nothing limits it."""
    match cluster.pools.get(resource) if resource is not None else None:
        case CpuSpec(cores=cores):
            return cores
        case GpuSpec(devices=devices):
            return devices
    return None


def _pool_units(cluster: ClusterSpec, pool: Resource) -> int:
    spec = cluster.pools[pool]
    assert isinstance(spec, CpuSpec)
    return spec.nodes * spec.cores
