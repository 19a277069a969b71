"""The lives of actions and trajectories, event by event."""

import pytest
from builders import (
    CPU,
    a_cluster,
    a_cpu,
    a_gpu,
    a_scheduler,
    allocation,
    an_action,
    an_elastic,
    leases,
    policy,
    records,
    reported,
    started,
    stopped,
    wakes,
)

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, NodeId, Resource, ServiceId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import QuotaSpec, ServiceSpec
from artangram.core.scheduling.events import (
    Cancelled,
    ClockTicked,
    Finished,
    NodeJoined,
    NodeLost,
    ServiceLost,
    Submitted,
    Throttled,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.scheduler import MOST_ATTEMPTS, Scheduler

A, B, C = ActionId("a"), ActionId("b"), ActionId("c")
T, U = TrajectoryId("t"), TrajectoryId("u")
NODE = NodeId("cpu-0")


def busy(**fields: object) -> Scheduler:
    """One core, and `a` runs on it."""
    scheduler = a_scheduler(cpu=a_cpu(cores=1))
    scheduler.handle(Submitted(an_action("a", **fields)), 0.0)
    return scheduler


class TestLeases:
    def test_an_action_waits_until_a_lease_is_given_back(self):
        scheduler = busy()
        assert started(scheduler.handle(Submitted(an_action("b", work_s=1000.0)), 1.0)) == []
        assert started(scheduler.handle(Finished(A), 3.0)) == ["b"]

    def test_a_report_tells_the_whole_life(self):
        scheduler = busy()
        scheduler.handle(Submitted(an_action("b", task="swe", work_s=1000.0)), 1.0)
        scheduler.handle(Finished(A), 3.0)
        (record,) = records(scheduler.handle(Finished(B, began_at=4.0, reason="fine"), 9.0))
        assert (record.outcome, record.reason, record.task) == (Outcome.SUCCEEDED, "fine", "swe")
        assert (record.wait_s, record.overhead_s, record.run_s, record.act_s) == (
            2.0,
            1.0,
            5.0,
            8.0,
        )
        assert (record.attempts, record.units) == (1, 1)

    def test_nothing_began_after_it_ended(self):
        """Clocks of nodes differ."""
        scheduler = a_scheduler(cpu=a_cpu(cores=1))
        scheduler.handle(Submitted(an_action("a")), 0.0)
        (record,) = records(scheduler.handle(Finished(A, began_at=7.0), 5.0))
        assert (record.began_at, record.run_s) == (5.0, 0.0)

    def test_an_action_that_never_started_only_waited(self):
        scheduler = busy()
        scheduler.handle(Submitted(an_action("b", work_s=1000.0)), 1.0)
        (record,) = records(scheduler.handle(Cancelled(B, "enough"), 4.0))
        assert (record.wait_s, record.overhead_s, record.run_s, record.reason) == (
            3,
            0,
            0,
            "enough",
        )

    def test_events_of_one_instant_are_decided_together(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=1))
        scheduler.take_in([Submitted(an_action("a", work_s=9.0))], 0.0)
        decisions = scheduler.handle_all([Submitted(an_action("b", work_s=1.0))], 0.0)
        assert started(decisions) == ["b"]
        assert scheduler.num_waiting() == 1

    def test_an_end_that_is_told_twice_is_reported_once(self):
        scheduler = busy()
        assert reported(scheduler.handle(Finished(A), 1.0)) == {"a": "succeeded"}
        assert scheduler.handle(Finished(A), 2.0) == []

    def test_an_id_in_use_is_refused_loudly(self):
        scheduler = busy()
        with pytest.raises(BadInput, match="id: 'a' is already known; give"):
            scheduler.handle(Submitted(an_action("a")), 1.0)

    def test_what_could_never_run_is_refused_with_the_reason(self):
        scheduler = a_scheduler()
        (record,) = records(scheduler.handle(Submitted(an_action("a", 9)), 0.0))
        assert record.outcome is Outcome.REFUSED
        assert "8 is all one can have" in record.reason
        assert scheduler.num_waiting() == 0


class TestCancelling:
    def test_a_waiting_action_ends_at_once(self):
        scheduler = busy()
        scheduler.handle(Submitted(an_action("b")), 0.0)
        assert reported(scheduler.handle(Cancelled(B), 1.0)) == {"b": "cancelled"}
        assert started(scheduler.handle(Finished(A), 2.0)) == []

    def test_a_running_action_keeps_its_lease_until_it_is_gone(self):
        scheduler = busy()
        scheduler.handle(Submitted(an_action("b")), 0.0)
        assert stopped(scheduler.handle(Cancelled(A), 1.0)) == {"a": "cancelled"}
        assert stopped(scheduler.handle(Cancelled(A), 1.5)) == {}
        decisions = scheduler.handle(Finished(A, Outcome.FAILED), 2.0)
        assert reported(decisions) == {"a": "cancelled"}
        assert started(decisions) == ["b"]
        assert records(decisions)[0].reason == "stopped: cancelled"

    def test_an_action_that_succeeded_before_it_was_stopped_has_succeeded(self):
        scheduler = busy()
        scheduler.handle(Cancelled(A), 1.0)
        assert reported(scheduler.handle(Finished(A), 2.0)) == {"a": "succeeded"}

    def test_an_unknown_action_is_nothing_to_cancel(self):
        assert a_scheduler().handle(Cancelled(A), 0.0) == []


class TestDeadlines:
    def test_it_asks_to_be_woken_at_the_deadline(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=1))
        decisions = scheduler.handle(Submitted(an_action("a", deadline_at=5.0)), 0.0)
        assert wakes(decisions) == [5.0]

    def test_a_waiting_action_expires(self):
        scheduler = busy()
        scheduler.handle(Submitted(an_action("b", deadline_at=5.0)), 0.0)
        (record,) = records(scheduler.handle(ClockTicked(), 5.0))
        assert (record.outcome, record.reason) == (Outcome.EXPIRED, "its deadline passed")

    def test_a_running_action_is_stopped_then_reported_once(self):
        scheduler = busy(deadline_at=5.0)
        assert stopped(scheduler.handle(ClockTicked(), 5.0)) == {"a": "expired"}
        assert reported(scheduler.handle(Finished(A, Outcome.FAILED), 6.0)) == {"a": "expired"}

    def test_a_deadline_that_has_passed_expires_at_once(self):
        scheduler = a_scheduler()
        assert reported(scheduler.handle(Submitted(an_action("a", deadline_at=1.0)), 2.0)) == {
            "a": "expired"
        }

    def test_an_action_that_ended_in_time_does_not_expire(self):
        scheduler = busy(deadline_at=5.0)
        scheduler.handle(Finished(A), 1.0)
        assert scheduler.handle(ClockTicked(), 5.0) == []


class TestRepeating:
    def test_infrastructure_may_fail_under_a_repeatable_action(self):
        scheduler = busy(repeatable=True)
        (lease,) = leases(scheduler.handle(Finished(A, Outcome.INFRA_FAILED), 1.0))
        assert (lease.action_id, lease.attempt) == ("a", 2)
        assert reported(scheduler.handle(Finished(A), 2.0)) == {}
        assert reported(scheduler.handle(Finished(A, attempt=2), 3.0)) == {"a": "succeeded"}

    def test_it_is_given_up_after_some_attempts(self):
        scheduler = busy(repeatable=True)
        for attempt in range(1, MOST_ATTEMPTS):
            assert not reported(
                scheduler.handle(Finished(A, Outcome.INFRA_FAILED, attempt=attempt), 1.0)
            )
        (record,) = records(
            scheduler.handle(Finished(A, Outcome.INFRA_FAILED, attempt=MOST_ATTEMPTS), 2.0)
        )
        assert (record.outcome, record.attempts) == (Outcome.INFRA_FAILED, MOST_ATTEMPTS)

    def test_others_are_not_repeated(self):
        scheduler = busy()
        assert reported(scheduler.handle(Finished(A, Outcome.INFRA_FAILED), 1.0)) == {
            "a": "infra_failed"
        }

    def test_a_failure_of_the_program_is_its_own(self):
        scheduler = busy(repeatable=True)
        assert reported(scheduler.handle(Finished(A, Outcome.FAILED), 1.0)) == {"a": "failed"}

    def test_nothing_is_repeated_after_its_deadline(self):
        scheduler = busy(repeatable=True, deadline_at=1.0)
        decisions = scheduler.handle(Finished(A, Outcome.INFRA_FAILED), 1.0)
        assert reported(decisions) == {"a": "infra_failed"}

    def test_a_stopped_action_is_not_repeated(self):
        scheduler = busy(repeatable=True)
        scheduler.handle(Cancelled(A), 0.5)
        decisions = scheduler.handle(Finished(A, Outcome.INFRA_FAILED), 1.0)
        assert reported(decisions) == {"a": "cancelled"}

    def test_a_repeated_action_that_finds_no_room_can_be_cancelled(self):
        scheduler = a_scheduler("pods:1", cpu=a_cpu(cores=1))
        scheduler.handle(Submitted(an_action("a", repeatable=True)), 0.0)
        scheduler.handle(TrajectoryOpened(T), 0.0)
        scheduler.handle(Submitted(an_action("b", trajectory="t")), 0.0)
        scheduler.handle(Finished(A, Outcome.INFRA_FAILED), 1.0)
        assert reported(scheduler.handle(Cancelled(A), 2.0)) == {"a": "cancelled"}
        assert started(scheduler.handle(TrajectoryClosed(T), 3.0)) == []


class TestTrajectories:
    def test_closing_cancels_what_waits_and_stops_what_runs(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=1))
        scheduler.handle(TrajectoryOpened(T), 0.0)
        for name in ("a", "b"):
            scheduler.handle(Submitted(an_action(name, trajectory="t")), 0.0)
        decisions = scheduler.handle(TrajectoryClosed(T), 1.0)
        assert (reported(decisions), stopped(decisions)) == ({"b": "cancelled"}, {"a": "cancelled"})
        assert records(decisions)[0].reason == "its trajectory was closed"

    def test_its_memory_is_free_once_its_sandbox_is_gone(self):
        scheduler = a_scheduler(cpu=a_cpu(memory_mb=100))
        for trajectory in (T, U):
            scheduler.handle(TrajectoryOpened(trajectory, 100), 0.0)
        scheduler.handle(Submitted(an_action("a", trajectory="t")), 0.0)
        scheduler.handle(Submitted(an_action("b", trajectory="u")), 0.0)
        assert started(scheduler.handle(TrajectoryClosed(T), 1.0)) == []
        assert started(scheduler.handle(TrajectoryGone(T), 1.5)) == []  # Too early: an action runs.
        assert started(scheduler.handle(Finished(A), 2.0)) == []
        with pytest.raises(BadInput, match="already open"):
            scheduler.handle(TrajectoryOpened(T), 2.0)
        assert started(scheduler.handle(TrajectoryGone(T), 3.0)) == ["b"]
        scheduler.handle(TrajectoryOpened(T), 4.0)

    def test_closing_twice_changes_nothing(self):
        scheduler = a_scheduler()
        scheduler.handle(TrajectoryOpened(T), 0.0)
        scheduler.handle(TrajectoryClosed(T), 0.0)
        assert scheduler.handle(TrajectoryClosed(T), 1.0) == []

    def test_an_open_one_cannot_be_opened(self):
        scheduler = a_scheduler()
        scheduler.handle(TrajectoryOpened(T), 0.0)
        with pytest.raises(BadInput, match="trajectory: 't' is already open; use a new id"):
            scheduler.handle(TrajectoryOpened(T), 0.0)

    def test_nothing_joins_one_that_is_not_open(self):
        (record,) = records(a_scheduler().handle(Submitted(an_action("a", trajectory="t")), 0.0))
        assert record.reason == "trajectory: 't' is not open; open it first"

    def test_its_actions_run_where_its_files_are(self):
        scheduler = a_scheduler(cpu=a_cpu(nodes=4, cores=1))
        scheduler.handle(TrajectoryOpened(T), 0.0)
        first = allocation(scheduler.handle(Submitted(an_action("a", trajectory="t")), 0.0))
        assert started(scheduler.handle(Submitted(an_action("b", trajectory="t")), 0.0)) == []
        assert allocation(scheduler.handle(Finished(A), 1.0)).node == first.node

    def test_only_its_first_action_pays_for_the_sandbox(self):
        scheduler = a_scheduler(cpu=a_cpu(create_s=2.0, overhead_s=0.5))
        scheduler.handle(TrajectoryOpened(T), 0.0)
        costs = [
            leases(scheduler.handle(Submitted(an_action(name, trajectory=t)), 1.0))[0].prepare_s
            for name, t in (("a", "t"), ("b", "t"), ("c", None))
        ]
        assert costs == [2.5, 0.5, 2.5]


class TestLostNodes:
    def test_what_ran_there_has_failed_through_no_fault_of_its_own(self):
        scheduler = busy()
        (record,) = records(scheduler.handle(NodeLost(CPU, NODE, "power cut"), 2.0))
        assert (record.outcome, record.reason) == (Outcome.INFRA_FAILED, "power cut")
        assert record.run_s == 2.0
        assert scheduler.handle(Finished(A), 3.0) == []

    def test_what_may_be_repeated_moves_to_another_node(self):
        scheduler = a_scheduler(cpu=a_cpu(nodes=2))
        first = allocation(scheduler.handle(Submitted(an_action("a", repeatable=True)), 0.0))
        second = allocation(scheduler.handle(NodeLost(CPU, first.node), 1.0))
        assert first.node != second.node

    def test_what_waited_there_without_files_moves(self):
        scheduler = busy()
        scheduler.handle(Submitted(an_action("b")), 0.0)
        assert reported(scheduler.handle(NodeLost(CPU, NODE), 1.0)) == {"a": "infra_failed"}
        assert started(scheduler.handle(NodeJoined(CPU, NODE), 2.0)) == ["b"]

    def test_what_waited_there_with_files_has_failed(self):
        scheduler = a_scheduler(cpu=a_cpu(nodes=2, cores=1))
        scheduler.handle(TrajectoryOpened(T), 0.0)
        node = allocation(scheduler.handle(Submitted(an_action("a", trajectory="t")), 0.0)).node
        scheduler.handle(Submitted(an_action("b", trajectory="t")), 0.0)
        scheduler.handle(Submitted(an_action("c", trajectory="t", repeatable=True)), 0.0)
        decisions = scheduler.handle(NodeLost(CPU, node), 1.0)
        assert reported(decisions) == {"a": "infra_failed", "b": "infra_failed"}
        assert started(decisions) == ["c"]

    def test_a_trajectory_lives_on_elsewhere(self):
        scheduler = a_scheduler(cpu=a_cpu(nodes=2, create_s=2.0))
        scheduler.handle(TrajectoryOpened(T, 100), 0.0)
        node = allocation(scheduler.handle(Submitted(an_action("a", trajectory="t")), 0.0)).node
        scheduler.handle(NodeLost(CPU, node), 1.0)
        (lease,) = leases(scheduler.handle(Submitted(an_action("b", trajectory="t")), 2.0))
        assert (lease.allocations[0].node != node, lease.prepare_s) == (True, 2.0)

    def test_losing_it_twice_or_joining_it_twice_changes_nothing(self):
        scheduler = busy()
        assert scheduler.handle(NodeJoined(CPU, NODE), 0.0) == []
        assert started(scheduler.handle(Submitted(an_action("b")), 0.0)) == []
        scheduler.handle(NodeLost(CPU, NODE), 1.0)
        assert scheduler.handle(NodeLost(CPU, NODE), 1.0) == []

    def test_one_that_was_to_be_stopped_is_reported_so(self):
        scheduler = busy()
        scheduler.handle(Cancelled(A), 1.0)
        assert reported(scheduler.handle(NodeLost(CPU, NODE), 2.0)) == {"a": "cancelled"}

    def test_devices_come_back_when_the_node_of_the_cores_is_lost(self):
        scheduler = a_cluster_with_gpus()
        needs = {"cpu": 1, "gpu": 4}
        scheduler.handle(Submitted(an_action("a", needs, service="judge")), 0.0)
        assert reported(scheduler.handle(NodeLost(CPU, NODE), 1.0)) == {"a": "infra_failed"}
        assert started(
            scheduler.handle(Submitted(an_action("b", {"gpu": 4}, service="judge")), 2.0)
        ) == ["b"]

    def test_cores_come_back_when_the_node_of_the_devices_is_lost(self):
        scheduler = a_cluster_with_gpus()
        needs = {"cpu": 8, "gpu": 4}
        scheduler.handle(Submitted(an_action("a", needs, service="judge")), 0.0)
        gpu = Resource("gpu")
        assert reported(scheduler.handle(NodeLost(gpu, NodeId("gpu-0")), 1.0)) == {
            "a": "infra_failed"
        }
        assert started(scheduler.handle(Submitted(an_action("b", 8)), 2.0)) == ["b"]
        for _ in "twice":
            scheduler.handle(NodeJoined(gpu, NodeId("gpu-0")), 3.0)
        calls = [a_call_of_the_judge(name) for name in "cd"]
        assert started(scheduler.handle_all(calls, 4.0)) == ["c"]

    def test_a_service_and_then_its_node_may_be_lost_under_one_call(self):
        scheduler = a_cluster_with_gpus()
        gpu, node = Resource("gpu"), NodeId("gpu-0")
        scheduler.handle(a_call_of_the_judge("a"), 0.0)
        died = ServiceLost(gpu, node, first=0, degree=4, service=ServiceId("judge"))
        assert reported(scheduler.handle(died, 1.0)) == {}
        lost = scheduler.handle(NodeLost(gpu, node), 1.0)
        assert reported(lost) == {"a": "infra_failed"}


class TestDevices:
    @pytest.mark.parametrize("name", ["elastic", "fcfs", "static"])
    def test_calls_meet_on_a_copy_and_leave_it_one_by_one(self, name):
        scheduler = a_cluster_with_gpus(name, batch=2)
        calls = [a_call_of_the_judge(name) for name in "abc"]
        assert started(scheduler.handle_all(calls, 0.0)) == ["a", "b"]
        assert started(scheduler.handle(Finished(A), 5.0)) == ["c"]

    def test_an_idle_copy_is_waited_for_while_another_service_runs_on_its_devices(self):
        """`c` could have a copy of its own on the other devices, but that would take 200 s."""
        model = ServiceSpec(pool=Resource("gpu"), weights_mb=800, degrees=(4,))
        cluster = a_cluster(
            gpu=a_gpu(devices=8, restore_mb_per_s=1.0),
            services={"judge": model, "teacher": model},
        )
        scheduler = Scheduler(cluster, policy("elastic"))
        place = allocation(scheduler.handle(a_call("a", "judge"), 0.0)).first
        scheduler.handle(Finished(A), 200.0)
        taught = scheduler.handle(a_call("b", "teacher", work_s=5.0), 200.0)
        assert allocation(taught).first == place
        assert started(scheduler.handle(a_call("c", "judge"), 402.0)) == []
        decisions = scheduler.handle(Finished(B), 405.0)
        assert (started(decisions), allocation(decisions).restored) == (["c"], False)

    def test_static_deployments_lend_no_devices(self):
        scheduler = a_cluster_with_gpus("static")
        needs = {"cpu": {"min": 1, "max": 2}, "gpu": 4}
        told = Submitted(an_action("a", needs, elastic="cpu", service="judge"))
        (record,) = records(scheduler.handle(told, 0.0))
        assert (record.outcome, record.reason.split(":")[0]) == ("refused", "needs.gpu")


def a_call(name: str, service: str, **fields: object) -> Submitted:
    return Submitted(an_action(name, {"gpu": 4}, service=service, **fields))


def a_call_of_the_judge(name: str) -> Submitted:
    return a_call(name, "judge")


def a_cluster_with_gpus(name: str = "elastic", *, batch: int = 1) -> Scheduler:
    judge = ServiceSpec(pool=Resource("gpu"), weights_mb=10, degrees=(4,), batch=batch)
    return Scheduler(a_cluster(cpu=a_cpu(), gpu=a_gpu(), services={"judge": judge}), policy(name))


class TestSeveralResources:
    """All together or none."""

    def a_scheduler(self, name: str = "elastic", **quota: object) -> Scheduler:
        return a_scheduler(
            name, cpu=a_cpu(cores=2), search=QuotaSpec(**({"concurrency": 2} | quota))
        )

    def both(self, name: str, calls: int = 1, **fields: object) -> Submitted:
        return Submitted(an_action(name, {"cpu": 1, "search": calls}, **fields))

    def test_nothing_is_held_while_something_is_missing(self):
        scheduler = self.a_scheduler()
        scheduler.handle(Submitted(an_action("a", {"search": 2})), 0.0)
        assert started(scheduler.handle(self.both("b"), 0.0)) == []
        both = an_action("c", 2, work_s=0.01)
        assert started(scheduler.handle(Submitted(both), 0.0)) == ["c"]
        assert started(scheduler.handle(Finished(A), 0.001)) == []
        assert started(scheduler.handle(Finished(C), 2.0)) == ["b"]

    def test_all_of_them_are_given_back(self):
        scheduler = self.a_scheduler()
        scheduler.handle(self.both("a", calls=2), 0.0)
        scheduler.handle(Finished(A), 1.0)
        assert started(scheduler.handle(Submitted(an_action("b", {"search": 2})), 1.0)) == ["b"]
        assert started(scheduler.handle(Submitted(an_action("c", 2)), 1.0)) == ["c"]

    def test_who_lacks_a_call_is_woken_when_the_window_moves(self):
        scheduler = self.a_scheduler(concurrency=None, limit=1, window_s=10.0)
        scheduler.handle(self.both("a"), 0.0)
        assert 10.0 in wakes(scheduler.handle(self.both("b", work_s=100.0), 1.0))
        assert started(scheduler.handle(ClockTicked(), 10.0)) == ["b"]

    def test_a_pause_that_grows_while_somebody_waits_for_it_forgets_nobody(self):
        scheduler = self.a_scheduler()
        search = Resource("search")
        scheduler.handle(Throttled(search, 10.0), 0.0)
        scheduler.handle(self.both("a", work_s=100.0), 0.0)
        scheduler.handle(Throttled(search, 20.0), 5.0)
        assert wakes(scheduler.handle(ClockTicked(), 10.0)) == [20.0]
        assert started(scheduler.handle(ClockTicked(), 20.0)) == ["a"]

    def test_an_overdue_action_claims_what_it_needs(self):
        scheduler = self.a_scheduler()
        scheduler.handle(Submitted(an_action("a", {"search": 1})), 0.0)
        wake_at = wakes(scheduler.handle(self.both("b", calls=2, work_s=0.1), 0.0))
        scheduler.handle(ClockTicked(), wake_at[-1])
        assert started(scheduler.handle(Submitted(an_action("c", {"search": 1})), 50.0)) == []
        decisions = scheduler.handle(Finished(A), 51.0)
        assert started(decisions) == ["b"]
        assert started(scheduler.handle(Finished(B), 52.0)) == ["c"]

    def test_a_claim_ends_with_its_owner(self):
        scheduler = self.a_scheduler("fcfs")
        scheduler.handle(Submitted(an_action("a", {"search": 1})), 0.0)
        scheduler.handle(self.both("b", calls=2), 0.0)
        assert started(scheduler.handle(Submitted(an_action("c", {"search": 1})), 1.0)) == []
        assert started(scheduler.handle(Cancelled(B), 2.0)) == ["c"]

    def test_the_claim_of_one_who_was_refused_too_often_ends_too(self):
        apis = {"search": QuotaSpec(), "judge": QuotaSpec(concurrency=2)}
        scheduler = a_scheduler("unmanaged", cpu=a_cpu(), **apis)
        scheduler.handle(Submitted(an_action("s", {"judge": 1})), 0.0)
        scheduler.handle(Submitted(an_action("a", {"cpu": 1, "judge": 2})), 0.0)
        # It may not have the call that is left for `a`, and claims one of `search` meanwhile.
        scheduler.handle(Submitted(an_action("b", {"judge": 1, "search": 1})), 0.1)
        assert started(scheduler.handle(Finished(ActionId("s")), 0.5)) == ["a"]
        c = Submitted(an_action("c", {"cpu": 1, "search": 1}))
        assert started(scheduler.handle(c, 1.0)) == []
        for at in (1.5, 3.5, 7.5):
            decisions = scheduler.handle(ClockTicked(), at)
        assert (reported(decisions), started(decisions)) == ({"b": "infra_failed"}, ["c"])

    def test_who_lacks_one_of_two_calls_is_told_which(self):
        one = QuotaSpec(concurrency=1)
        scheduler = a_scheduler(cpu=a_cpu(), judge=one, search=one)
        scheduler.handle(Submitted(an_action("a", {"search": 1})), 0.0)
        scheduler.handle(Submitted(an_action("b", {"cpu": 1, "judge": 1, "search": 1})), 0.0)
        assert [h.resource for h in scheduler.explain(B, 0.0).hindrances] == ["search"]
        assert started(scheduler.handle(Finished(A), 1.0)) == ["b"]

    def test_one_that_was_cancelled_while_it_lacked_something_is_forgotten(self):
        scheduler = self.a_scheduler(concurrency=1)
        scheduler.handle_all([self.both("a"), self.both("b"), self.both("c")], 0.0)
        scheduler.handle(Cancelled(B), 0.5)
        assert started(scheduler.handle(Finished(A), 1.0)) == ["c"]

    def test_an_elastic_action_lends_its_cores_to_others(self):
        scheduler = a_cluster_with_gpus()
        scheduler.handle(Submitted(an_elastic("a")), 0.0)
        decisions = scheduler.handle(
            Submitted(an_action("b", {"cpu": 3, "gpu": 4}, service="judge")), 0.0
        )
        assert started(decisions) == ["b"]
        assert allocation(decisions, 1).units == 3
        assert decisions[0].cores.units == 5
