"""The least and the most that a job has of cores, calls and function slots."""

import pytest
from builders import (
    a_cluster,
    a_cpu,
    a_gpu,
    an_action,
    an_elastic,
    leases,
    records,
    reported,
    resized,
    started,
)
from gpu_support import FakeLaneContext, a_pool
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, ServiceId, TrajectoryId
from artangram.core.scheduling.cluster import FunctionsSpec, JobLimits, QuotaSpec, ServiceSpec
from artangram.core.scheduling.events import (
    Cancelled,
    Finished,
    Reconfigured,
    Submitted,
    TrajectoryOpened,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.policies.residency import ResidencyLane
from artangram.core.scheduling.reconfigure import checked
from artangram.core.scheduling.scheduler import Scheduler


def a_scheduler(limits: dict[str, JobLimits], **pools: object) -> Scheduler:
    cluster = a_cluster(**({"cpu": a_cpu()} | pools))
    named = {JobId(job): one for job, one in limits.items()}
    services = {ServiceId("judge"): ServiceSpec(pool="gpu", weights_mb=1)} if "gpu" in pools else {}
    spec = structs.replace(cluster, limits=named, services=services)
    return Scheduler(spec, policy("elastic"))


def submit(scheduler: Scheduler, name: str, needs: object = 1, now: float = 0.0, **fields) -> list:
    return scheduler.handle(Submitted(an_action(name, needs, **fields)), now)


def sizes(decisions: list) -> dict[str, int]:
    return {str(one.action_id): one.allocations[0].units for one in leases(decisions)}


def because(scheduler: Scheduler, name: str, now: float = 0.0) -> str:
    return scheduler.explain(name, now).summary


class TestMostCores:
    def test_a_job_waits_for_its_own_cores_while_others_are_free(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=2)})
        for name in "abc":
            submit(scheduler, name, job="x")
        assert because(scheduler, "c") == "cpu: job x has its maximum of 2 cores"
        assert started(submit(scheduler, "other", job="y")) == ["other"]
        assert started(scheduler.handle(Finished("a"), 1.0)) == ["c"]

    def test_it_waits_for_them_on_all_nodes(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=2)}, cpu=a_cpu(nodes=3, cores=2))
        for name in "abc":
            submit(scheduler, name, job="x")
        assert started(scheduler.handle(Finished("b"), 1.0)) == ["c"]

    def test_an_elastic_action_grows_up_to_it_and_others_have_the_rest(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=3)})
        actions = (an_elastic("a", job="x"), an_elastic("b", job="x"), an_elastic("c", job="y"))
        out = scheduler.handle_all([Submitted(one) for one in actions], 0.0)
        found = sizes(out)
        assert (found["a"] + found["b"], found["c"]) == (3, 5)

    def test_elastic_ones_become_narrow_for_another_of_their_job(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=4)})
        out = scheduler.handle(Submitted(an_elastic("a", job="x")), 0.0)
        assert sizes(out) == {"a": 4}
        out = submit(scheduler, "b", 2, 0.01, job="x")
        assert (resized(out)["a"], started(out)) == (1, ["b"])
        assert resized(scheduler.handle(Finished("b"), 1.0)) == {"a": 4}

    def test_what_needs_more_is_refused(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=2)})
        (record,) = records(submit(scheduler, "wide", 3, job="x"))
        assert "asks for at least 3, and job x may hold 2 cores at most" in record.reason

    def test_a_lower_one_lets_what_runs_go_on_and_refuses_what_waits(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=4)}, cpu=a_cpu(cores=4))
        submit(scheduler, "a", 4, job="x")
        submit(scheduler, "b", 4, job="x")
        submit(scheduler, "c", job="x")
        out = scheduler.handle(Reconfigured(limits={JobId("x"): JobLimits(max_cores=1)}), 1.0)
        assert reported(out) == {"b": "refused"}
        assert started(scheduler.handle(Finished("a"), 2.0)) == ["c"]

    def test_without_one_what_waited_starts(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=1)})
        for name in "ab":
            submit(scheduler, name, job="x")
        assert started(scheduler.handle(Reconfigured(limits={}), 1.0)) == ["b"]

    def test_cores_lent_to_a_call_count(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=1)}, gpu=a_gpu())
        for name in "abc":
            submit(scheduler, name, {"gpu": 1, "cpu": 1}, job="x", service="judge")
        assert because(scheduler, "b") == "cpu: job x has its maximum of 1 cores"
        assert reported(scheduler.handle(Cancelled("b"), 0.5)) == {"b": "cancelled"}
        assert started(scheduler.handle(Finished("a"), 1.0)) == ["c"]

    def test_an_overdue_one_at_its_maximum_keeps_no_loan_from_others(self):
        scheduler = a_scheduler({"x": JobLimits(max_cores=1)}, cpu=a_cpu(cores=2), gpu=a_gpu())
        for name in "abc":
            submit(scheduler, name, job="x", work_s=0.01)
        needs = {"gpu": 1, "cpu": 1}
        assert started(submit(scheduler, "d", needs, 100.0, job="y", service="judge")) == ["d"]


class TestLeastCores:
    def test_a_job_below_its_minimum_takes_cores_that_others_run_on(self):
        scheduler = a_scheduler({"sure": JobLimits(min_cores=2)}, cpu=a_cpu(cores=4))
        for number in range(6):
            submit(scheduler, f"x{number}", job="x", work_s=0.1)
        for name in "abc":
            out = submit(scheduler, name, job="sure", work_s=1000.0)
            assert bool(started(out)) is (name != "c")

    def test_others_do_not_take_what_is_within_a_minimum(self):
        scheduler = a_scheduler({"sure": JobLimits(min_cores=4)}, cpu=a_cpu(cores=4))
        for name in "abcd":
            submit(scheduler, name, job="sure", work_s=1000.0)
        assert started(submit(scheduler, "x", 1, 5.0, job="x", work_s=0.1)) == []
        scheduler.handle(Finished("a"), 6.0)
        assert started(submit(scheduler, "e", 1, 6.0, job="sure", work_s=1000.0)) == ["e"]

    def test_jobs_without_one_take_cores_from_each_other_as_before(self):
        scheduler = a_scheduler({"sure": JobLimits(min_cores=1)}, cpu=a_cpu(cores=1))
        submit(scheduler, "x", job="x", work_s=1000.0)
        assert started(submit(scheduler, "y", 1, 5.0, job="y", work_s=0.1)) == ["y"]

    def test_it_goes_before_shares(self):
        scheduler = a_scheduler({"sure": JobLimits(min_cores=1)}, cpu=a_cpu(cores=1))
        actions = [an_action("x", job="x", work_s=0.1), an_action("s", job="sure", work_s=99.0)]
        assert started(scheduler.handle_all(map(Submitted, actions), 0.0)) == ["s"]


class TestCalls:
    @pytest.mark.parametrize("pool", [QuotaSpec(concurrency=8), FunctionsSpec(ceiling=8)])
    def test_a_job_has_no_more_calls_than_its_maximum(self, pool):
        scheduler = a_scheduler({"x": JobLimits(max_calls=2)}, search=pool)
        for name in "abc":
            submit(scheduler, name, {"search": 1}, job="x")
        assert because(scheduler, "c") == "search: job x has its maximum of 2 calls"
        assert started(submit(scheduler, "other", {"search": 1}, job="y")) == ["other"]
        assert started(scheduler.handle(Finished("a"), 1.0)) == ["c"]

    def test_the_minimum_of_another_job_is_kept_free(self):
        limits = {"sure": JobLimits(min_calls=2)}
        scheduler = a_scheduler(limits, search=QuotaSpec(concurrency=3))
        for name in "ab":
            submit(scheduler, name, {"search": 1}, job="x")
        kept = "search: the calls that are free are kept for the minimum of another job"
        assert because(scheduler, "b") == kept
        for name in "cd":
            assert started(submit(scheduler, name, {"search": 1}, job="sure")) == [name]
        assert started(scheduler.handle(Finished("a"), 1.0)) == ["b"]

    def test_jobs_without_one_go_by_their_shares(self):
        limits = {"sure": JobLimits(min_calls=1)}
        scheduler = a_scheduler(limits, search=QuotaSpec(concurrency=2))
        for name in "abc":
            submit(scheduler, name, {"search": 1}, job="x")
        submit(scheduler, "y", {"search": 1}, job="y")
        assert started(scheduler.handle(Finished("a"), 1.0)) == ["y"]

    def test_minimums_that_are_more_than_there_is_keep_nothing_free(self):
        limits = {job: JobLimits(min_calls=2) for job in ("sure", "safe")}
        scheduler = a_scheduler(limits, search=QuotaSpec(concurrency=3))
        for name in "abcd":
            submit(scheduler, name, {"search": 1}, job="x")
        submit(scheduler, "s", {"search": 1}, job="sure")
        assert started(scheduler.handle(Finished("a"), 1.0)) == ["s"]

    def test_where_only_a_rate_is_limited_a_minimum_goes_first(self):
        limits = {"sure": JobLimits(min_calls=2)}
        scheduler = a_scheduler(limits, search=QuotaSpec(limit=1, window_s=1.0))
        for name in "ab":
            submit(scheduler, name, {"search": 1}, job="x")
        submit(scheduler, "s", {"search": 1}, job="sure")
        assert "s" not in started(scheduler.handle(Finished("a"), 0.5))
        assert started(scheduler.handle(Finished("a"), 1.0)) == ["s"]

    def test_calls_on_the_side_count(self):
        search = QuotaSpec(concurrency=8)
        scheduler = a_scheduler({"x": JobLimits(max_calls=1)}, search=search)
        for name in "ab":
            submit(scheduler, name, {"cpu": 1, "search": 1}, job="x")
        assert because(scheduler, "b") == "search: job x has its maximum of 1 calls"
        assert started(scheduler.handle(Finished("a"), 1.0)) == ["b"]


def test_jobs_have_no_limits_of_devices():
    lane = ResidencyLane(a_pool(), FakeLaneContext())
    lane.reconfigure()
    assert (lane.allows(JobId("x"), 9), lane.bound_of(JobId("x"))) == (True, (None, "units"))


@pytest.mark.parametrize("what", ["cores", "calls"])
def test_a_minimum_above_the_maximum_is_refused(what):
    limits = JobLimits(**{f"min_{what}": 2, f"max_{what}": 1})
    with pytest.raises(BadInput, match=f"2 is above max_{what}, which is 1"):
        checked(Reconfigured(limits={JobId("x"): limits}), a_cluster())


def test_a_call_whose_trajectory_has_no_node_waits_for_memory_alone():
    scheduler = a_scheduler({}, cpu=a_cpu(memory_mb=10), gpu=a_gpu())
    needs = {"gpu": 1, "cpu": 1}
    for name in "ab":
        scheduler.handle(TrajectoryOpened(TrajectoryId(name), 10), 0.0)
        submit(scheduler, name, needs, trajectory=name, service="judge")
    (said,) = scheduler.explain("b", 0.0).hindrances
    assert said.resource == "cpu memory_mb"
