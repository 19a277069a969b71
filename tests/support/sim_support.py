"""Builders for tests of the simulator, and the plain version of a node that shares its cores."""

from collections.abc import Iterable, Sequence
from math import inf

from artangram.core.ids import ActionId, JobId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, PoolSpec
from artangram.core.scheduling.needs import parse_needs
from artangram.core.scheduling.policies.catalog import policy
from artangram.observe.trace import Trace, TraceAction, TraceSource, TraceTrajectory, TraceTurn
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.sharednode import Contender
from artangram.sim.timeline import Timeline

CPU = Resource("cpu")


def an_action(
    work_s: float = 1.0,
    *,
    needs: object = None,
    elastic: str | None = None,
    speedup: object = None,
    service: str | None = None,
    **fields: object,
) -> TraceAction:
    parsed = parse_needs(needs or {"cpu": 1}, elastic=elastic, speedup=speedup, service=service)
    return TraceAction(**{"kind": "tool", "needs": parsed, "work_s": work_s} | fields)


def an_elastic_action(work_s: float, most: int, *, serial: float, **fields: object) -> TraceAction:
    return an_action(
        work_s,
        needs={"cpu": {"min": 1, "max": most}},
        elastic="cpu",
        speedup={"amdahl": serial},
        **fields,
    )


def a_turn(think_s: float = 0.0, *actions: TraceAction) -> TraceTurn:
    return TraceTurn(think_s=think_s, actions=actions)


def a_trajectory(
    name: str, *turns: TraceTurn, step: int = 0, job: str = "j", **fields: object
) -> TraceTrajectory:
    return TraceTrajectory(
        **{"trajectory": TrajectoryId(name), "turns": turns, "step": step, "job": JobId(job)}
        | fields
    )


def a_trace(*trajectories: TraceTrajectory, train_s: float = 0.0) -> Trace:
    return Trace(name="test", train_s=train_s, trajectories=trajectories)


def a_cpu_cluster(cores: int, *, nodes: int = 1, **fields: object) -> ClusterSpec:
    spec = CpuSpec(**{"nodes": nodes, "cores": cores, "memory_mb": 100_000} | fields)
    return ClusterSpec(pools={CPU: spec})


def a_cluster(services: object = None, **pools: PoolSpec) -> ClusterSpec:
    named = {Resource(name): spec for name, spec in pools.items()}
    return ClusterSpec(pools=named, services=services or {})


def simulated(
    trace: TraceSource, cluster: ClusterSpec, name: str = "fcfs", *, estimates: str = "exact"
) -> Simulation:
    simulation = Simulation(trace, cluster, policy(name), beliefs(estimates, 0))
    simulation.run()
    return simulation


def acts(simulation: Simulation, kind: str) -> list[float]:
    return list(simulation.tally.by_kind[kind].act)


def all_times(simulation: Simulation) -> dict[str, list[float]]:
    """Everything the tally knows of times, to compare two simulations by."""
    found: dict[str, Iterable[float]] = {}
    for kind, times in simulation.tally.by_kind.items():
        found |= {f"{kind} {name}": getattr(times, name) for name in times.__slots__}
    return {name: list(column) for name, column in found.items()}


def fair_shares(contenders: Sequence[tuple[int, int]], capacity: float) -> list[float]:
    """The weighted max-min fair share of each (weight, wants), one contender after the other."""
    order = sorted(range(len(contenders)), key=lambda i: contenders[i][1] / contenders[i][0])
    shares = [0.0] * len(contenders)
    weights = float(sum(weight for weight, _ in contenders))
    for index in order:
        weight, wants = contenders[index]
        shares[index] = min(wants, capacity * weight / weights)
        capacity -= shares[index]
        weights -= weight
    return shares


class PlainNode:
    """What `SharedNode` does, as one would say it: every change re-rates every contender."""

    def __init__(self, cores: int, penalty: float, use: Timeline) -> None:
        self.version = 0
        self._capacity = 1000 * cores
        self._penalty = penalty
        self._use = use
        self._used = 0.0
        self._all: dict[ActionId, Contender] = {}
        self._left_s: dict[ActionId, float] = {}
        self._rate: dict[ActionId, float] = {}
        self._now = 0.0

    def next_at(self) -> float:
        coming = [c.begins_at for name, c in self._all.items() if name not in self._rate]
        return min([self._ends_at(name) for name in self._rate] + coming, default=inf)

    def start(self, contender: Contender, now: float) -> None:
        self._work(now)
        self._all[contender.action_id] = contender
        self._left_s[contender.action_id] = contender.work_s
        self._share(now)

    def stop(self, action_id: ActionId, now: float) -> None:
        self._work(now)
        del self._all[action_id]
        self._share(now)

    def ended(self, now: float) -> list[tuple[ActionId, bool]]:
        over = [name for name in self._rate if self._ends_at(name) <= now]
        self._work(now)
        ends = []
        for name in over:
            contender = self._all.pop(name)
            ends.append((name, contender.cut_at <= now and self._left_s[name] > 1e-9))
        self._share(now)
        return ends

    def _ends_at(self, name: ActionId) -> float:
        return min(self._now + self._left_s[name] / self._rate[name], self._all[name].cut_at)

    def _work(self, now: float) -> None:
        for name, rate in self._rate.items():
            self._left_s[name] = max(0.0, self._left_s[name] - rate * (now - self._now))
        self._now = now

    def _share(self, now: float) -> None:
        self.version += 1
        there = [c for c in self._all.values() if c.begins_at <= now]
        shares = fair_shares([(c.weight_milli, c.wants_milli) for c in there], self._capacity)
        self._rate = {
            c.action_id: self._speed(c, share / 1000)
            for c, share in zip(there, shares, strict=True)
        }
        self._use.add(sum(shares) / 1000 - self._used, now)
        self._used = sum(shares) / 1000

    def _speed(self, contender: Contender, cores: float) -> float:
        is_squeezed = contender.workers > 1 and cores < contender.workers - 1e-9
        penalty = self._penalty if is_squeezed else 0.0
        if contender.curve is None:
            return min(1.0, cores / contender.workers) * (1 - penalty)
        return min(cores, 1) * contender.curve.speed(max(cores, 1)) * (1 - penalty)
