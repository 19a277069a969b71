"""Who starts on cores, how wide, and what becomes of those who run."""

import pytest
from builders import (
    a_cpu,
    a_scheduler,
    allocation,
    an_action,
    an_elastic,
    leases,
    reported,
    resized,
    started,
    wakes,
)

from artangram.core.ids import ActionId
from artangram.core.scheduling.cluster import QuotaSpec
from artangram.core.scheduling.events import Cancelled, ClockTicked, Finished, Submitted
from artangram.core.scheduling.policies.malleable import IDLE_S, PASS_S
from artangram.core.scheduling.scheduler import Scheduler

A, B = ActionId("a"), ActionId("b")


def told(scheduler: Scheduler, *actions: object, now: float = 0.0) -> list[str]:
    """Submit one after the other; the names of all that started."""
    return [
        name for action in actions for name in started(scheduler.handle(Submitted(action), now))
    ]


class TestMalleable:
    def test_a_lonely_action_gets_all_it_can_use(self):
        decisions = a_scheduler("malleable").handle(Submitted(an_elastic("a", 1, 6)), 0.0)
        assert allocation(decisions).units == 6
        assert leases(decisions)[0].workers == 6

    def test_it_gives_cores_to_those_who_come(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 2, 8))
        decisions = scheduler.handle(Submitted(an_action("b", 5)), 1.0)
        assert (resized(decisions), started(decisions)) == ({"a": 3}, ["b"])

    def test_it_keeps_its_least_amount_when_longer_work_comes(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 4, 8))
        assert told(scheduler, an_action("b", 5, work_s=1000.0)) == []
        assert told(scheduler, an_action("c", 4, work_s=0.01)) == ["c"]

    def test_it_grows_again_when_cores_come_back(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 2, 8), an_action("b", 5))
        decisions = scheduler.handle(Finished(B), 0.01)
        assert (resized(decisions), wakes(decisions)) == ({}, [IDLE_S])
        assert resized(scheduler.handle(ClockTicked(), IDLE_S)) == {"a": 8}

    def test_cores_that_nobody_could_use_are_not_divided_again_so_soon(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 2, 4), an_action("b"))
        assert wakes(scheduler.handle(ClockTicked(), PASS_S)) == []
        assert wakes(scheduler.handle(Submitted(an_action("c")), PASS_S + 0.01)) == [2 * PASS_S]

    def test_jobs_that_got_equally_much_go_by_their_keys(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_action("a", 8), an_action("b", 5, job="x", work_s=0.1))
        told(scheduler, an_elastic("c", 4, 8, job="y", work_s=100.0))
        assert started(scheduler.handle(Finished(A), 1.0)) == ["b"]

    def test_where_squeezing_costs_speed_it_starts_with_fewer_workers_in_a_crowd(self):
        scheduler = a_scheduler("malleable", cpu=a_cpu(squeeze_penalty=0.1))
        told(scheduler, an_action("a"))
        crowd = [Submitted(an_elastic(f"b{n}", 1, 8, speedup={"amdahl": 0.2})) for n in range(6)]
        workers = [lease.workers for lease in leases(scheduler.handle_all(crowd, 0.0))]
        assert max(workers) < 8

    @pytest.mark.parametrize("penalty", [0.0, 0.1])
    def test_more_cores_than_make_it_faster_are_left_to_others(self, penalty):
        scheduler = a_scheduler("malleable", cpu=a_cpu(squeeze_penalty=penalty))
        falls = {"table": {"1": 1.0, "2": 1.5, "4": 0.5}}
        (lease,) = leases(scheduler.handle(Submitted(an_elastic("a", 1, 4, speedup=falls)), 0.0))
        assert (lease.workers, len(lease.allocations[0].cores)) == (2, 2)

    def test_one_that_did_not_fit_starts_when_rigid_ones_have_gone(self):
        scheduler = a_scheduler("malleable")
        assert told(scheduler, an_action("a", 6), an_elastic("b", 4, 8)) == ["a"]
        assert started(scheduler.handle(Finished(A), 1.0)) == ["b"]

    def test_those_behind_one_that_did_not_fit_move_up_when_it_is_cancelled(self):
        scheduler = a_scheduler("malleable")
        first, second = an_elastic("b", 4, 8), an_elastic("c", 2, 8, work_s=50.0)
        assert told(scheduler, an_action("a", 6), first, second) == ["a"]
        assert started(scheduler.handle(Cancelled(B), 1.0)) == ["c"]

    def test_one_that_was_refused_gets_cores_that_nobody_who_runs_can_use(self):
        scheduler = a_scheduler("malleable")
        assert told(scheduler, an_elastic("a", 1, 4), an_action("b", 4)) == ["a", "b"]
        assert told(scheduler, an_elastic("c", 2, 8, work_s=500.0)) == []
        assert started(scheduler.handle(Finished(B), 5.0)) == ["c"]

    def test_an_overdue_one_starts_whatever_the_price(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 1, 8, work_s=1.0))
        patient = an_elastic("b", 1, 8, work_s=20.0, speedup={"amdahl": 0.5})
        assert told(scheduler, patient) == []
        assert started(scheduler.handle(ClockTicked(), 1.0)) == []
        assert started(scheduler.handle(ClockTicked(), 10_000.0)) == ["b"]

    def test_an_overdue_one_is_not_passed_by_its_own_job_from_the_other_queue(self):
        """`h` of the other job goes first by its share, and does not fit."""
        scheduler = a_scheduler("malleable")
        told(scheduler, an_action("a", 4, job="x", work_s=5.0))
        told(scheduler, an_elastic("h", 6, 8, job="y", work_s=1000.0))
        assert told(scheduler, an_elastic("e", 1, 2, job="x", work_s=0.01)) == []
        assert sorted(told(scheduler, an_action("r", 1, job="x"), now=100.0)) == ["e", "r"]

    def test_one_that_ends_leaves_its_cores_to_those_who_run(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 2, 8, work_s=1000.0), an_elastic("b", 2, 8))
        assert resized(scheduler.handle(Finished(B), 0.01)) == {"a": 8}

    def test_a_short_one_starts_beside_a_long_one(self):
        scheduler = a_scheduler("malleable")
        assert told(scheduler, an_elastic("a", 2, 8, work_s=1000.0)) == ["a"]
        assert told(scheduler, an_elastic("b", 2, 8)) == ["b"]

    def test_cores_come_from_the_longest_that_has_any_to_spare(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 2, 8, work_s=1000.0), an_elastic("b", 2, 8))
        decisions = scheduler.handle(Submitted(an_action("c", 3)), 0.01)
        assert (resized(decisions), started(decisions)) == ({"b": 3}, ["c"])

    def test_the_node_drains_for_an_overdue_one_that_does_not_fit(self):
        scheduler = a_scheduler("malleable")
        assert told(scheduler, an_action("a", 6), an_elastic("b", 4, 8)) == ["a"]
        assert told(scheduler, an_action("c", 1), now=10_000.0) == []

    def a_scheduler_with_two_wakes(self) -> Scheduler:
        """`b` is to start at its key at the latest; before that, cores are to be divided."""
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 1, 8, work_s=1.0))
        told(scheduler, an_elastic("b", 1, 8, work_s=20.0, speedup={"amdahl": 0.5}))
        (overdue_at,) = wakes(scheduler.handle(ClockTicked(), PASS_S))
        assert wakes(scheduler.handle(Submitted(an_action("c", 4)), 0.3)) == [2 * PASS_S]
        assert overdue_at > 2 * PASS_S
        return scheduler

    def test_a_tick_that_came_too_late_for_two_wakes_serves_both(self):
        scheduler = self.a_scheduler_with_two_wakes()
        assert started(scheduler.handle(ClockTicked(), 10_000.0)) == ["b"]

    def test_nobody_is_woken_for_one_that_was_cancelled(self):
        scheduler = self.a_scheduler_with_two_wakes()
        scheduler.handle(Cancelled(B), 0.4)
        assert wakes(scheduler.handle(ClockTicked(), 2 * PASS_S)) == []


class TestStandingAside:
    def a_scheduler_with_one_aside(self, **fields: object) -> Scheduler:
        """`a`, which is long and needs 6 of 8 cores, stands aside for `b`, which needs 4."""
        scheduler = a_scheduler("malleable", **fields)
        told(scheduler, an_elastic("a", 6, 8, work_s=100.0))
        decisions = scheduler.handle(Submitted(an_action("b", 4, work_s=0.1)), 1.0)
        assert (resized(decisions), started(decisions)) == ({"a": 0}, ["b"])
        return scheduler

    def test_it_runs_on_when_there_is_room_again(self):
        scheduler = self.a_scheduler_with_one_aside()
        assert resized(scheduler.handle(Finished(B), 1.1))["a"] >= 6

    def test_it_runs_on_before_anything_elastic_or_longer_starts(self):
        scheduler = self.a_scheduler_with_one_aside()
        told(scheduler, an_elastic("c", 6, 8, work_s=0.01), an_action("d", 6, work_s=500.0))
        decisions = scheduler.handle(Finished(B), 1.1)
        assert (list(resized(decisions)), started(decisions)) == (["a"], [])

    def test_it_waits_on_while_others_pass_it(self):
        scheduler = self.a_scheduler_with_one_aside()
        assert told(scheduler, an_action("c", 5, work_s=0.1), now=1.05) == []
        decisions = scheduler.handle(Finished(B), 1.1)
        assert (resized(decisions), started(decisions)) == ({}, ["c"])

    def test_it_stands_aside_for_nobody_once_it_is_overdue(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 6, 8, work_s=100.0))
        assert told(scheduler, an_action("b", 4, work_s=0.1), now=10_000.0) == []

    def test_nor_once_half_of_its_time_limit_is_over(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 6, 8, work_s=100.0, timeout_s=10.0))
        assert told(scheduler, an_action("b", 4, work_s=0.1), now=6.0) == []
        assert told(a_scheduler("malleable"), an_action("b", 4, work_s=0.1), now=6.0) == ["b"]

    def test_a_shorter_one_does_then(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 3, 8, work_s=1000.0, timeout_s=10.0))
        told(scheduler, an_elastic("b", 3, 8, work_s=100.0))
        decisions = scheduler.handle(Submitted(an_action("c", 4, work_s=0.1)), 6.0)
        assert (resized(decisions)["b"], started(decisions)) == (0, ["c"])

    def test_nor_before_it_has_started(self):
        """`a` goes first because its job got less, and has no cores yet when `b` asks."""
        scheduler = a_scheduler("malleable")
        told(scheduler, an_action("z", job="y"))
        scheduler.handle(Finished(ActionId("z")), 0.5)
        crowd = [an_elastic("a", 6, 8, work_s=100.0), an_action("b", 4, job="y", work_s=0.1)]
        decisions = scheduler.handle_all([Submitted(one) for one in crowd], 0.5)
        assert (resized(decisions), started(decisions)) == ({}, ["a"])

    def test_it_may_end_meanwhile(self):
        scheduler = self.a_scheduler_with_one_aside()
        assert reported(scheduler.handle(Finished(A), 1.05)) == {"a": "succeeded"}
        assert told(scheduler, an_action("c", 4), now=1.06) == ["c"]

    def a_scheduler_with_a_wide_one_waiting(self) -> Scheduler:
        """`c` passes `a`, but needs more than `x` leaves of the cores."""
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 4, 8, work_s=100.0), an_action("x", 4, work_s=1000.0))
        told(scheduler, an_action("b", 4, work_s=0.1))
        assert told(scheduler, an_action("c", 5, work_s=0.1)) == []
        return scheduler

    def test_it_runs_on_till_who_passes_it_fits(self):
        scheduler = self.a_scheduler_with_a_wide_one_waiting()
        decisions = scheduler.handle(Finished(B), 0.1)
        assert (resized(decisions), started(decisions)) == ({"a": 4}, [])
        decisions = scheduler.handle(Finished(ActionId("x")), 0.2)
        assert (resized(decisions), started(decisions)) == ({"a": 0}, ["c"])

    def test_the_node_drains_for_who_passes_it_and_is_overdue(self):
        scheduler = self.a_scheduler_with_a_wide_one_waiting()
        decisions = scheduler.handle(Finished(B), 100.0)
        assert (resized(decisions), started(decisions)) == ({}, [])
        decisions = scheduler.handle(Finished(ActionId("x")), 101.0)
        assert (resized(decisions), started(decisions)) == ({}, ["c"])

    def a_scheduler_with_two_aside(self) -> Scheduler:
        """`a` goes first and needs two cores, `b` one; `r` and `s` have two of the three."""
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 2, 6, work_s=100.0), an_elastic("b", 1, 6, work_s=200.0))
        assert told(scheduler, an_action("x", 5, work_s=1e5)) == ["x"]
        decisions = scheduler.handle(Submitted(an_action("r", 1, work_s=0.1)), 1.0)
        assert (resized(decisions), started(decisions)) == ({"b": 0}, ["r"])
        decisions = scheduler.handle(Submitted(an_action("s", 1, work_s=0.1)), 1.0)
        assert (resized(decisions)["a"], started(decisions)) == (0, ["s"])
        return scheduler

    def test_what_is_too_little_for_the_first_is_given_to_the_next(self):
        scheduler = self.a_scheduler_with_two_aside()
        told(scheduler, an_action("t", 1, work_s=0.1), now=1.05)
        assert resized(scheduler.handle(Finished(ActionId("t")), 1.1)) == {"b": 1}
        ended = [Finished(ActionId(name)) for name in "rs"]
        assert resized(scheduler.handle_all(ended, 1.2)) == {"a": 2}

    def test_but_the_node_drains_for_the_first_once_it_is_overdue(self):
        scheduler = self.a_scheduler_with_two_aside()
        told(scheduler, an_action("t", 1, work_s=0.1), now=1.05)
        assert resized(scheduler.handle(Finished(ActionId("t")), 5000.0)) == {}
        assert resized(scheduler.handle(Finished(ActionId("r")), 5000.0)) == {"a": 2}

    def test_its_cores_are_not_lent_to_others(self):
        search = QuotaSpec(concurrency=2)
        scheduler = self.a_scheduler_with_one_aside(cpu=a_cpu(), search=search)
        needs = {"cpu": 1, "search": {"min": 1, "max": 2}}
        assert told(scheduler, an_action("c", needs, elastic="search"), now=1.05) == []
        assert "c" in started(scheduler.handle(Finished(B), 1.1))

    def test_nobody_is_passed_that_is_overdue_and_elastic(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 4, 8, work_s=1e6), an_action("x", 4, work_s=1e6))
        assert told(scheduler, an_elastic("e", 4, 8, work_s=0.01)) == []
        assert told(scheduler, an_action("r", 1, work_s=0.1), now=100.0) == []

    def test_what_is_learned_of_it_leaves_that_time_out(self):
        scheduler = a_scheduler("malleable")
        told(scheduler, an_elastic("a", 6, 8, work_s=None, speedup={"amdahl": 1.0}))
        short = an_action("b", 4, work_s=0.1, kind="tool")
        assert told(scheduler, short, now=0.5) == ["b"]
        scheduler.handle(Finished(B), 10.5)
        scheduler.handle(Finished(A), 12.0)
        assert scheduler.estimates.work_s(an_elastic("c", 6, 8, work_s=None)) == pytest.approx(2.0)


class TestMoldable:
    def test_a_lonely_action_gets_what_it_is_worth(self):
        decisions = a_scheduler("moldable").handle(Submitted(an_elastic("a", 1, 6)), 0.0)
        assert allocation(decisions).units == leases(decisions)[0].workers == 6

    def test_it_waits_for_more_cores_that_come_soon(self):
        scheduler = a_scheduler("moldable")
        told(scheduler, an_action("a", 7, work_s=0.5))
        assert told(scheduler, an_elastic("b", 1, 8, work_s=100.0)) == []
        assert allocation(scheduler.handle(Finished(A), 0.5)).units == 8

    def test_it_starts_narrow_when_it_is_overdue(self):
        scheduler = a_scheduler("moldable")
        told(scheduler, an_action("a", 7, work_s=0.5))
        told(scheduler, an_elastic("b", 1, 8, work_s=100.0))
        assert allocation(scheduler.handle(ClockTicked(), 10_000.0)).units == 1

    def test_nothing_elastic_passes_an_overdue_one_that_does_not_fit(self):
        scheduler = a_scheduler("moldable")
        told(scheduler, an_action("a", 6))
        assert told(scheduler, an_elastic("b", 4, 8, work_s=0.01)) == []
        assert told(scheduler, an_elastic("c", 1, 2), now=100.0) == []
        assert told(scheduler, an_action("d", 1), now=100.0) == []

    def test_an_overdue_rigid_one_is_not_passed_by_its_own_job(self):
        """`h` of the other job goes first by its share, then `r`, which is overdue, then `e`."""
        scheduler = a_scheduler("moldable")
        told(scheduler, an_action("a", 8, job="x", work_s=5.0))
        told(scheduler, an_action("r", 4, job="x", work_s=0.01))
        told(scheduler, an_elastic("h", 1, 2, job="y"), an_elastic("e", 1, 2, job="x"), now=50.0)
        assert started(scheduler.handle(Finished(A), 100.0)) == ["h", "r", "e"]

    def test_it_looks_again_when_nobody_knows_when_cores_come_back(self):
        scheduler = a_scheduler("moldable", cpu=a_cpu(), search=QuotaSpec(concurrency=2))
        needs = {"cpu": 6, "search": {"min": 1, "max": 2}}
        assert told(scheduler, an_action("a", needs, elastic="search")) == ["a"]
        decisions = scheduler.handle(Submitted(an_elastic("b", 4, 8)), 0.0)
        assert (started(decisions), wakes(decisions)) == ([], [1.0])
        assert started(scheduler.handle(Finished(A), 0.5)) == ["b"]

    def test_a_rigid_one_that_does_not_fit_is_not_passed_by_its_like(self):
        scheduler = a_scheduler("moldable")
        assert told(scheduler, an_action("a", 6), an_action("b", 4)) == ["a"]
        assert told(scheduler, an_action("c", work_s=1000.0)) == []

    def test_it_does_not_wait_for_what_ends_too_late(self):
        scheduler = a_scheduler("moldable")
        told(scheduler, an_action("a", 7, work_s=1000.0))
        assert told(scheduler, an_elastic("b", 1, 8, work_s=1.0)) == ["b"]

    def test_it_waits_for_the_first_end_if_the_second_is_not_worth_it(self):
        scheduler = a_scheduler("moldable")
        told(scheduler, an_action("a", 3, work_s=1.0), an_action("c", 4, work_s=1.8))
        assert told(scheduler, an_elastic("b", 1, 8, work_s=4.0)) == []
        assert allocation(scheduler.handle(Finished(A), 1.0)).units == 4

    def test_cores_that_one_waits_for_are_not_promised_to_another(self):
        scheduler = a_scheduler("moldable")
        told(scheduler, an_action("a", 7, work_s=0.5))
        crowd = [an_elastic("b", 4, 8, work_s=100.0), an_elastic("c", 4, 8, work_s=200.0)]
        assert started(scheduler.handle_all([Submitted(one) for one in crowd], 0.0)) == []
        assert started(scheduler.handle(Finished(A), 0.5))[0] == "b"

    def test_one_that_comes_later_changes_no_plan(self):
        scheduler = a_scheduler("moldable")
        told(scheduler, an_action("a", 6, work_s=0.5))
        assert told(scheduler, an_elastic("b", 1, 8, work_s=100.0)) == []
        assert told(scheduler, an_elastic("c", 1, 8, work_s=200.0)) == []
        assert started(scheduler.handle(Finished(A), 0.5))[0] == "b"

    def test_one_that_is_overdue_waits_for_cores_and_not_for_time(self):
        """However long the other one goes on after it should have ended."""
        scheduler = a_scheduler("moldable")
        scheduler.handle(Submitted(an_action("a", 4, work_s=1.0)), 0.0)
        scheduler.handle(Submitted(an_elastic("b", 6, 8, work_s=1.0)), 0.0)
        assert wakes(scheduler.handle(ClockTicked(), 29.0)) == [pytest.approx(29.05)]
        assert wakes(scheduler.handle(ClockTicked(), 1000.0)) == []
        assert started(scheduler.handle(Finished(ActionId("a")), 2000.0)) == ["b"]


class TestTangram:
    def test_rigid_and_elastic_ones_are_divided_together(self):
        scheduler = a_scheduler("tangram")
        events = [Submitted(an_action("a", 2)), Submitted(an_elastic("b", 1, 8))]
        assert [x.workers for x in leases(scheduler.handle_all(events, 0.0))] == [2, 6]
        scheduler.handle(Finished(B), 1.0)
        assert allocation(scheduler.handle(Submitted(an_elastic("c", 1, 8)), 1.0)).units == 6

    def test_cores_are_divided_among_all_that_fit(self):
        scheduler = a_scheduler("tangram")
        events = [Submitted(an_elastic(name, 1, 8)) for name in "ab"]
        sizes = [lease.workers for lease in leases(scheduler.handle_all(events, 0.0))]
        assert sizes in ([4, 4], [8])

    def test_the_first_that_does_not_fit_blocks_the_rest(self):
        scheduler = a_scheduler("tangram")
        assert told(scheduler, an_action("a", 6), an_action("b", 4), an_action("c")) == ["a"]


@pytest.mark.parametrize("name", ["fcfs", "tangram", "moldable", "malleable", "overcommit"])
def test_cores_are_lent_to_an_action_that_waits_for_calls(name):
    scheduler = a_scheduler(name, cpu=a_cpu(), search=QuotaSpec(concurrency=2))
    needs = {"cpu": 3, "search": {"min": 1, "max": 2}}
    (lease,) = leases(scheduler.handle(Submitted(an_action("a", needs, elastic="search")), 0.0))
    assert [a.resource for a in lease.allocations] == ["search", "cpu"]
    scheduler.handle(Finished(A), 1.0)
    assert told(scheduler, an_action("b", 8)) == ["b"]


@pytest.mark.parametrize("name", ["fcfs", "tangram", "moldable", "malleable", "overcommit"])
@pytest.mark.parametrize("cores", [1, {"min": 1, "max": 2}])
def test_who_lacks_a_call_starts_when_it_is_there_and_so_do_those_behind(name, cores):
    scheduler = a_scheduler(name, cpu=a_cpu(), search=QuotaSpec(concurrency=1))
    both = {"cpu": cores, "search": 1}
    elastic = None if cores == 1 else "cpu"
    assert told(scheduler, an_action("a", both, elastic=elastic)) == ["a"]
    two = [an_action("b", both, elastic=elastic), an_action("c")]
    at_once = started(scheduler.handle_all([Submitted(one) for one in two], 0.0))
    assert "b" not in at_once
    assert sorted(at_once + started(scheduler.handle(Finished(A), 1.0))) == ["b", "c"]


@pytest.mark.parametrize("name", ["fcfs", "tangram", "moldable", "malleable"])
def test_those_behind_one_that_was_cancelled_move_up(name):
    scheduler = a_scheduler(name)
    assert told(scheduler, an_action("a", 8), an_action("b"), an_elastic("c")) == ["a"]
    scheduler.handle(Cancelled(B), 0.5)
    assert started(scheduler.handle(Finished(A), 1.0)) == ["c"]


def test_a_kernel_runs_nothing_that_was_cancelled_at_once():
    scheduler = a_scheduler("overcommit")
    decisions = scheduler.handle_all([Submitted(an_action("a")), Cancelled(A)], 0.0)
    assert (started(decisions), reported(decisions)) == ([], {"a": "cancelled"})
