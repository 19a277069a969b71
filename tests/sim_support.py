"""Builders for tests of the simulator."""

from collections.abc import Iterable

from artangram.core.cluster import ClusterSpec, CpuSpec, PoolSpec
from artangram.core.ids import JobId, Resource, TrajectoryId
from artangram.core.needs import parse_needs
from artangram.core.policies.catalog import policy
from artangram.observe.trace import Trace, TraceAction, TraceSource, TraceTrajectory, TraceTurn
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation

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
