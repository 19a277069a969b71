"""The report is the JSON contract of `artangram simulate`, with numbers worked out by hand."""

import msgspec
import pytest
from sim_support import (
    CPU,
    a_cluster,
    a_cpu_cluster,
    a_trace,
    a_trajectory,
    a_turn,
    an_action,
    an_elastic_action,
    simulated,
)

from artangram.core.ids import JobId
from artangram.core.scheduling.cluster import CpuSpec, FunctionsSpec, GpuSpec, QuotaSpec
from artangram.sim.bounds import critical_path_s, lower_bound
from artangram.sim.report import SimReport, report

ONE_CORE = a_cpu_cluster(1, overhead_s=0.5)
QUEUE = a_trace(
    a_trajectory("a", a_turn(0, an_action(2.0, kind="short"))),
    a_trajectory("b", a_turn(0, an_action(4.0, kind="long"))),
    a_trajectory("c", a_turn(0, an_action(8.0, kind="long", fail_at_s=1.0))),
)


def reported(trace=QUEUE, cluster=ONE_CORE, name="fcfs") -> SimReport:
    """One core, half a second to begin: 2 s, 4 s and a failure after 1 s, one after the other."""
    return report(
        simulated(trace, cluster, name),
        policy=name,
        trace=trace,
        cluster=cluster,
        bound=lower_bound(trace, cluster),
        critical_paths=critical_path_s(trace, cluster),
    )


def test_the_json_has_the_fields_of_the_contract():
    found = msgspec.json.decode(msgspec.json.encode(reported()))
    times = {"mean_s", "p50_s", "p99_s", "max_s", "wait_mean_s", "overhead_mean_s", "run_mean_s"}
    assert set(found["act"]) == times
    assert set(found["by_kind"]["long"]) == times | {"count"}
    assert [set(step) for step in found["steps"]] == [
        {"step", "duration_s", "job", "critical_path_s"}
    ]
    assert set(found["lower_bound"]) == {"act_mean_s", "kind", "moldable_act_mean_s"}
    assert set(found["decision_us"]) == {"mean", "p99"}
    contract = {"policy", "actions", "act", "by_kind", "steps", "failed", "utilisation"}
    ours = {"resizes", "restores", "refused", "simulated_s", "trace", "cluster", "estimates"}
    assert set(found) == contract | ours | {"lower_bound", "decision_us", "given_up"}


def test_act_is_wait_overhead_and_run():
    act = reported().act
    # They end at 2.5, 7 and 8.5 and start at 0, 2.5 and 7.
    assert act.mean_s == pytest.approx((2.5 + 7.0 + 8.5) / 3)
    assert act.wait_mean_s == pytest.approx((0 + 2.5 + 7.0) / 3)
    assert act.overhead_mean_s == pytest.approx(0.5)
    assert act.run_mean_s == pytest.approx((2.0 + 4.0 + 1.0) / 3)
    assert (act.p50_s, act.max_s) == (pytest.approx(7.0), pytest.approx(8.5))
    assert act.p99_s == pytest.approx(7.0 + 0.98 * 1.5)


def test_kinds_are_told_apart():
    found = reported()
    assert list(found.by_kind) == ["long", "short"]
    assert found.by_kind["short"].count == 1
    assert found.by_kind["short"].mean_s == pytest.approx(2.5)
    assert found.by_kind["long"].count == 2
    assert found.by_kind["long"].mean_s == pytest.approx((7.0 + 8.5) / 2)


def test_steps_failures_and_utilisation_are_counted():
    found = reported()
    (step,) = found.steps
    assert (step.job, step.step) == (JobId("j"), 0)
    assert step.duration_s == pytest.approx(8.5)
    assert step.critical_path_s == pytest.approx(4.0)
    assert (found.actions, found.failed, found.refused) == (3, 1, 0)
    assert found.utilisation == {CPU: pytest.approx(1.0)}
    assert found.simulated_s == pytest.approx(8.5)


def test_the_lower_bound_is_below_the_mean():
    found = reported()
    assert found.lower_bound is not None
    assert 0 < found.lower_bound.act_mean_s <= found.act.mean_s


def test_a_refused_action_is_counted_but_has_no_times():
    trace = a_trace(a_trajectory("a", a_turn(0, an_action(3.0), an_action(1.0, needs={"cpu": 9}))))
    found = reported(trace)
    assert (found.actions, found.failed, found.refused) == (2, 1, 1)
    assert found.act.mean_s == pytest.approx(3.5)
    assert found.lower_bound is not None
    assert found.lower_bound.act_mean_s <= found.act.mean_s


@pytest.mark.parametrize("work_s", [60.0, 700.0])
def test_calls_that_a_client_gave_up_are_counted(work_s: float):
    """Of two calls where one may be made, one is refused too often; 700 s nobody waits for."""
    cluster = a_cluster(search=QuotaSpec(concurrency=1))
    call = an_action(work_s, needs={"search": 1})
    trace = a_trace(a_trajectory("a", a_turn(0, call)), a_trajectory("b", a_turn(0, call)))
    found = reported(trace, cluster, "unmanaged")
    assert (found.actions, found.refused) == (2, 0)
    assert found.failed == found.given_up == (1 if work_s < 600 else 2)
    assert found.lower_bound is not None
    assert found.act.mean_s < found.lower_bound.act_mean_s
    assert reported(trace, cluster, "elastic").given_up == 0


def test_resizes_are_counted_where_a_policy_resizes():
    wide = a_trajectory("a", a_turn(0, an_elastic_action(20.0, 4, serial=0.0)))
    late = a_trajectory("b", a_turn(1, an_action(1.0)))
    found = reported(a_trace(wide, late), a_cpu_cluster(4), "elastic")
    assert found.resizes >= 2


def test_the_cost_of_deciding_is_per_action():
    simulation = simulated(QUEUE, ONE_CORE)
    seconds = simulation.tally.decisions_s
    seconds[:] = type(seconds)("d", [3e-6, 9e-6])
    found = report(simulation, policy="fcfs", trace=QUEUE, cluster=ONE_CORE)
    assert found.decision_us.mean == pytest.approx(4.0)
    assert found.decision_us.p99 == pytest.approx(8.94)


def test_a_trace_without_actions_has_zeros():
    trace = a_trace(a_trajectory("a", a_turn(2.0)))
    found = report(simulated(trace, ONE_CORE), policy="fcfs", trace=trace, cluster=ONE_CORE)
    assert (found.actions, found.act.mean_s, found.act.p99_s, found.act.max_s) == (0, 0, 0, 0)
    assert (found.lower_bound, found.steps[0].critical_path_s) == (None, None)
    assert found.steps[0].duration_s == pytest.approx(2.0)


def test_the_cluster_is_summed_up():
    cluster = a_cluster(
        cpu=CpuSpec(nodes=2, cores=8, memory_mb=100),
        gpu=GpuSpec(nodes=3, devices=4, memory_mb=100),
        search=QuotaSpec(limit=5),
        score=FunctionsSpec(ceiling=7),
    )
    trace = a_trace(a_trajectory("a", a_turn(1.0)))
    found = report(simulated(trace, cluster), policy="fcfs", trace=trace, cluster=cluster)
    summed = {name: (pool.kind, pool.nodes, pool.units) for name, pool in found.cluster.items()}
    assert summed == {
        "cpu": ("cpu", 2, 16),
        "gpu": ("gpu", 3, 12),
        "search": ("quota", None, None),
        "score": ("functions", None, 7),
    }
    assert set(found.utilisation) == {"cpu", "gpu", "score"}
