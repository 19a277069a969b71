"""Whatever runs where and under which policy: a report adds up, and nobody beats the bounds.

Random traces on random clusters of every kind of pool: open and closed loops, several steps and
jobs, services that batch, quotas, functions, failures, time limits, work of no time.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_support import a_trace, a_trajectory, a_turn, an_action, simulated

from artangram.core.ids import Resource, ServiceId
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    PoolSpec,
    QuotaSpec,
    ServiceSpec,
)
from artangram.observe.trace import Trace, TraceAction, TraceTrajectory
from artangram.sim.bounds import critical_path_s, lower_bound
from artangram.sim.report import SimReport, report

POLICIES = [
    *("elastic", "tangram", "fcfs", "fixed:2"),
    *("pods:1", "pods:0.5/4", "overcommit", "static", "static:1", "load-per-call", "unmanaged"),
]
FIXED_UNITS = {"tangram", "fcfs", "fixed:2"}
CURVES = [
    *(None, {"amdahl": 0.0}, {"amdahl": 0.3}, {"power": 0.6}),
    *({"table": {"1": 1.0, "2": 1.9, "4": 0.7}}, {"table": {"2": 3.0}}),
]
LARGEST = 8


def a_random_cluster(rng: Random) -> ClusterSpec:
    cpu = CpuSpec(
        nodes=rng.choice([1, 2]),
        cores=LARGEST,
        memory_mb=1000,
        squeeze_penalty=rng.choice([0.0, 0.1, 0.6]),
        create_s=rng.choice([0.0, 1.5]),
        overhead_s=rng.choice([0.0, 0.02]),
        pods_per_s=rng.choice([0.5, 20.0]),
    )
    gpu = GpuSpec(nodes=1, devices=LARGEST, memory_mb=80_000, overhead_s=rng.choice([0.0, 0.02]))
    search = QuotaSpec(concurrency=rng.choice([None, 2]), limit=3, window_s=rng.choice([1.0, 9.0]))
    score = FunctionsSpec(ceiling=rng.choice([2, 5]), idle_s=rng.choice([0.0, 60.0]))
    service = ServiceSpec(
        pool=Resource("gpu"),
        weights_mb=rng.choice([1, 60_000]),
        degrees=(1, 2, 4),
        batch=rng.choice([1, 3]),
        batch_cost=rng.choice([0.0, 0.5]),
    )
    pools: dict[str, PoolSpec] = {"cpu": cpu, "gpu": gpu, "search": search, "score": score}
    kept = rng.choice([["cpu"], ["gpu"], ["search"], list(pools)])
    services = {ServiceId(name): service for name in ("judge", "teacher")}
    return ClusterSpec(
        pools={Resource(name): pools[name] for name in kept},
        services=services if "gpu" in kept else {},
    )


def a_random_action(rng: Random, cluster: ClusterSpec) -> TraceAction:
    names = rng.sample(sorted(cluster.pools), min(len(cluster.pools), rng.choice([1, 1, 2])))
    amounts: dict[str, object] = {
        "cpu": rng.choice([1, 3, {"min": 1, "max": rng.choice([2, 4, 32])}]),
        "gpu": {"choices": rng.choice([[1], [2, 4], [1, 2, 4]])},
        "search": 1,
        "score": rng.choice([1, 2]),
    }
    elastic = rng.choice([None, *names])
    work_s = rng.choice([0.0, 5.0, rng.lognormvariate(0, 1.5), 700.0 if rng.random() < 0.1 else 1])
    return an_action(
        work_s,
        needs={name: amounts[name] for name in names},
        elastic=elastic,
        speedup=rng.choice(CURVES) if elastic is not None else None,
        service=rng.choice(["judge", "teacher"]) if "gpu" in names else None,
        kind=rng.choice("xyz"),
        fail_at_s=rng.choice([None, None, None, 0.0, rng.uniform(0, work_s)]),
        timeout_s=rng.choice([None, None, None, rng.uniform(0, work_s + 1)]),
    )


def a_random_life(rng: Random, cluster: ClusterSpec, *, name: str, step: int) -> TraceTrajectory:
    turns, actions = (1, 1) if step < 0 else (rng.choice([1, 1, 3]), rng.choice([0, 1, 2]))
    return a_trajectory(
        name,
        *(
            a_turn(
                rng.choice([0.0, rng.uniform(0, 4)]),
                *(a_random_action(rng, cluster) for _ in range(actions)),
            )
            for _ in range(turns)
        ),
        step=max(0, step),
        job=rng.choice("aab"),
        arrive_s=rng.choice([0.0, rng.uniform(0, 9)]),
        memory_mb=rng.choice([0, 300, 1000]),
    )


def a_random_trace(rng: Random, cluster: ClusterSpec) -> Trace:
    """An open loop, single actions in one step, or a closed one."""
    steps = rng.choice([[-1], [0], [0, 1]])
    return a_trace(
        *(
            a_random_life(rng, cluster, name=f"{step}-{index}", step=step)
            for step in steps
            for index in range(rng.choice([1, 6, 20]))
        ),
        train_s=rng.choice([0.0, 5.0]),
    )


def reported(trace: Trace, cluster: ClusterSpec, name: str, estimates: str) -> SimReport:
    return report(
        simulated(trace, cluster, name, estimates=estimates),
        policy=name,
        trace=trace,
        cluster=cluster,
        bound=lower_bound(trace, cluster),
        critical_paths=critical_path_s(trace, cluster),
    )


@given(
    seed=st.integers(0, 1 << 30),
    name=st.sampled_from(POLICIES),
    estimates=st.sampled_from(["exact", "learned", "noisy:1"]),
)
@settings(max_examples=1000, deadline=None)
def test_a_report_adds_up_and_never_beats_its_bounds(seed: int, name: str, estimates: str):
    rng = Random(seed)
    cluster = a_random_cluster(rng)
    trace = a_random_trace(rng, cluster)
    found = reported(trace, cluster, name, estimates)
    act = found.act
    assert found.actions == sum(len(turn.actions) for t in trace.trajectories for turn in t.turns)
    assert act.wait_mean_s + act.overhead_mean_s + act.run_mean_s == pytest.approx(act.mean_s)
    assert min(act.wait_mean_s, act.overhead_mean_s, act.run_mean_s) >= 0
    assert 0 <= act.p50_s <= act.p99_s <= act.max_s <= found.simulated_s
    assert sum(kind.count for kind in found.by_kind.values()) == found.actions - found.refused
    assert all(0 <= share <= 1 + 1e-9 for share in found.utilisation.values())
    assert {(one.job, one.step) for one in found.steps} == {
        (one.job, one.step) for one in trace.trajectories
    }
    if found.refused or found.given_up:
        return  # Less was done than the bounds count.
    assert found.lower_bound is not None
    assert act.mean_s >= found.lower_bound.act_mean_s * (1 - 1e-9) - 1e-9
    if name in FIXED_UNITS and found.lower_bound.moldable_act_mean_s is not None:
        assert act.mean_s >= found.lower_bound.moldable_act_mean_s * (1 - 1e-9) - 1e-9
    for step in found.steps:
        assert step.critical_path_s is not None
        assert step.duration_s >= step.critical_path_s * (1 - 1e-9) - 1e-9
