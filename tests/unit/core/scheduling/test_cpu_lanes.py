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

from artangram.core.ids import ActionId, TrajectoryId
from artangram.core.scheduling.cluster import QuotaSpec
from artangram.core.scheduling.events import (
    Cancelled,
    ClockTicked,
    Finished,
    Submitted,
    TrajectoryOpened,
)
from artangram.core.scheduling.policies.elastic import IDLE_S, MOST_PASSED, PASS_S
from artangram.core.scheduling.scheduler import Scheduler

A, B = ActionId("a"), ActionId("b")


def told(scheduler: Scheduler, *actions: object, now: float = 0.0) -> list[str]:
    """Submit one after the other; the names of all that started."""
    return [
        name for action in actions for name in started(scheduler.handle(Submitted(action), now))
    ]


class TestElastic:
    def test_a_lonely_action_gets_all_it_can_use(self):
        decisions = a_scheduler("elastic").handle(Submitted(an_elastic("a", 1, 6)), 0.0)
        assert allocation(decisions).units == 6
        assert leases(decisions)[0].workers == 6

    def test_it_gives_cores_to_those_who_come(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 2, 8))
        decisions = scheduler.handle(Submitted(an_action("b", 5)), 1.0)
        assert (resized(decisions), started(decisions)) == ({"a": 3}, ["b"])

    def test_it_keeps_its_least_amount_when_longer_work_comes(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 4, 8))
        assert told(scheduler, an_action("b", 5, work_s=1000.0)) == []
        assert told(scheduler, an_action("c", 4, work_s=0.01)) == ["c"]

    def test_it_grows_again_when_cores_come_back(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 2, 8), an_action("b", 5))
        decisions = scheduler.handle(Finished(B), 0.01)
        assert (resized(decisions), wakes(decisions)) == ({}, [IDLE_S])
        assert resized(scheduler.handle(ClockTicked(), IDLE_S)) == {"a": 8}

    def test_cores_that_nobody_could_use_are_not_divided_again_so_soon(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 2, 4), an_action("b"))
        assert wakes(scheduler.handle(ClockTicked(), PASS_S)) == [2 * PASS_S]
        assert wakes(scheduler.handle(Submitted(an_action("c")), PASS_S + 0.01)) == []

    def test_where_squeezing_costs_speed_it_starts_with_fewer_workers_in_a_crowd(self):
        scheduler = a_scheduler("elastic", cpu=a_cpu(squeeze_penalty=0.1))
        told(scheduler, an_action("a"))
        crowd = [Submitted(an_elastic(f"b{n}", 1, 8, speedup={"amdahl": 0.2})) for n in range(6)]
        workers = [lease.workers for lease in leases(scheduler.handle_all(crowd, 0.0))]
        assert max(workers) < 8

    def workers_of_guesses(self, name: str) -> set[int]:
        """Of twelve that come at once while one core is busy."""
        scheduler = a_scheduler(name, cpu=a_cpu(squeeze_penalty=0.1))
        told(scheduler, an_action("a"))
        crowd = [Submitted(an_elastic(f"b{n}", 1, 8, work_s=None)) for n in range(12)]
        return {lease.workers for lease in leases(scheduler.handle_all(crowd, 0.0))}

    def test_one_that_may_outlast_the_crowd_starts_with_all_workers(self):
        assert self.workers_of_guesses("elastic") == {8}

    def test_the_less_the_tail_counts_the_fewer_workers_it_starts_with(self):
        assert self.workers_of_guesses("elastic:0.1") == {1}

    def test_guesses_that_scale_alike_get_alike(self):
        scheduler = a_scheduler("elastic")
        guess = {"work_s": None, "speedup": {"amdahl": 0.1}}
        told(scheduler, an_elastic("a", 1, 8, **guess))
        decisions = scheduler.handle(Submitted(an_elastic("b", 1, 8, **guess)), 0.0)
        assert (resized(decisions), allocation(decisions).units) == ({"a": 4}, 4)

    def test_one_whose_duration_is_a_guess_gets_workers_for_the_crowd_to_come(self):
        """Six wait in either case. Where none can follow, they may be alone before they end."""

        def workers(thinking: int) -> int:
            cpu = a_cpu(squeeze_penalty=0.1, memory_mb=10_000)
            scheduler = a_scheduler("elastic", cpu=cpu)
            names = [f"t{n}" for n in range(6 + thinking)]
            for name in names:
                scheduler.handle(TrajectoryOpened(TrajectoryId(name), 1), 0.0)
                told(scheduler, an_action(f"first-{name}", trajectory=name, work_s=0.01))
                scheduler.handle(Finished(ActionId(f"first-{name}")), 0.0)
            told(scheduler, an_action("z", work_s=0.001, trajectory=names[0]), now=1000.0)
            fields = {"work_s": None, "speedup": {"amdahl": 0.2}}
            crowd = [an_elastic(f"b{n}", 1, 8, trajectory=names[n], **fields) for n in range(6)]
            decisions = scheduler.handle_all([Submitted(one) for one in crowd], 1000.0)
            return leases(decisions)[0].workers

        assert workers(thinking=0) > workers(thinking=100)

    @pytest.mark.parametrize("penalty", [0.0, 0.1])
    def test_more_cores_than_make_it_faster_are_left_to_others(self, penalty):
        scheduler = a_scheduler("elastic", cpu=a_cpu(squeeze_penalty=penalty))
        falls = {"table": {"1": 1.0, "2": 1.5, "4": 0.5}}
        (lease,) = leases(scheduler.handle(Submitted(an_elastic("a", 1, 4, speedup=falls)), 0.0))
        assert (lease.workers, len(lease.allocations[0].cores)) == (2, 2)

    def test_one_that_did_not_fit_starts_when_rigid_ones_have_gone(self):
        scheduler = a_scheduler("elastic")
        assert told(scheduler, an_action("a", 6), an_elastic("b", 4, 8)) == ["a"]
        assert started(scheduler.handle(Finished(A), 1.0)) == ["b"]

    def test_those_behind_one_that_did_not_fit_move_up_when_it_is_cancelled(self):
        scheduler = a_scheduler("elastic")
        first, second = an_elastic("b", 4, 8), an_elastic("c", 2, 8, work_s=50.0)
        assert told(scheduler, an_action("a", 6), first, second) == ["a"]
        assert started(scheduler.handle(Cancelled(B), 1.0)) == ["c"]

    def test_one_that_was_refused_gets_cores_that_nobody_who_runs_can_use(self):
        scheduler = a_scheduler("elastic")
        assert told(scheduler, an_elastic("a", 1, 4), an_action("b", 4)) == ["a", "b"]
        assert told(scheduler, an_elastic("c", 2, 8, work_s=500.0)) == []
        assert started(scheduler.handle(Finished(B), 5.0)) == ["c"]

    def test_cores_too_few_for_a_longer_one_stay_idle(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 3, 4, work_s=1.0), an_action("b", 2, work_s=1.0))
        assert told(scheduler, an_elastic("c", 4, 8, work_s=500.0)) == []
        assert started(scheduler.handle(ClockTicked(), PASS_S)) == []

    def test_cores_come_from_those_that_have_more_than_the_least(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 1, 6, work_s=5.0), an_elastic("b", 2, 3, work_s=50.0))
        told(scheduler, an_action("c", 1, work_s=0.1), an_action("d", 1, work_s=0.1))
        assert told(scheduler, an_action("e", 2, work_s=0.1)) == ["e"]

    def test_a_shorter_one_that_comes_after_one_that_was_refused_is_asked(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 1, 8, work_s=20.0))
        patient = an_elastic("b", 1, 8, work_s=500.0, speedup={"amdahl": 0.5})
        assert told(scheduler, patient) == []
        assert told(scheduler, an_elastic("c", 1, 8, work_s=1.0)) == ["c"]

    def test_an_overdue_one_starts_whatever_the_price(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 1, 8, work_s=1.0))
        patient = an_elastic("b", 1, 8, work_s=20.0, speedup={"amdahl": 0.5})
        assert told(scheduler, patient) == []
        assert started(scheduler.handle(ClockTicked(), 1.0)) == []
        assert started(scheduler.handle(ClockTicked(), 10_000.0)) == ["b"]

    def test_one_that_ends_leaves_its_cores_to_those_who_run(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 2, 8, work_s=1000.0), an_elastic("b", 2, 8))
        assert resized(scheduler.handle(Finished(B), 0.01)) == {"a": 8}

    def test_a_short_one_starts_beside_a_long_one(self):
        scheduler = a_scheduler("elastic")
        assert told(scheduler, an_elastic("a", 2, 8, work_s=1000.0)) == ["a"]
        assert told(scheduler, an_elastic("b", 2, 8)) == ["b"]

    def test_cores_come_from_the_longest_that_has_any_to_spare(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 2, 8, work_s=1000.0), an_elastic("b", 2, 8))
        decisions = scheduler.handle(Submitted(an_action("c", 3)), 0.01)
        assert (resized(decisions), started(decisions)) == ({"b": 3}, ["c"])

    def test_one_that_is_overdue_gets_the_cores_of_all_that_are_not(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("a", 8, work_s=1.0), an_action("b", 8, work_s=2.0))
        decisions = scheduler.handle(ClockTicked(), 1000.0)
        assert (resized(decisions), started(decisions)) == ({"a": 0}, ["b"])

    def test_the_node_drains_for_an_overdue_one_that_does_not_fit(self):
        search = QuotaSpec(concurrency=2)
        scheduler = a_scheduler("elastic", cpu=a_cpu(), search=search)
        needs = {"cpu": 6, "search": {"min": 1, "max": 2}}
        assert told(scheduler, an_action("lent", needs, elastic="search")) == ["lent"]
        assert told(scheduler, an_elastic("b", 4, 8)) == []
        assert told(scheduler, an_action("c", 1), now=10_000.0) == []
        assert "b" in started(scheduler.handle(Finished(ActionId("lent")), 10_001.0))

    def test_narrow_ones_pass_a_few_that_do_not_fit(self):
        search = QuotaSpec(concurrency=2)
        scheduler = a_scheduler("elastic", cpu=a_cpu(), search=search)
        needs = {"cpu": 6, "search": {"min": 1, "max": 2}}
        told(scheduler, an_action("lent", needs, elastic="search"))
        wide = [an_action(f"w{n}", 4, work_s=0.01) for n in range(MOST_PASSED)]
        assert told(scheduler, *wide, an_action("c", 1, work_s=50.0)) == ["c"]
        assert told(scheduler, an_action("w", 4, work_s=0.01), an_action("d", 1, work_s=60.0)) == []


class TestPreemption:
    def a_scheduler_with_one_preempted(self, **fields: object) -> Scheduler:
        """`a`, which is long and needs 6 of 8 cores, was preempted for `b`, which needs 4."""
        scheduler = a_scheduler("elastic", **fields)
        told(scheduler, an_elastic("a", 6, 8, work_s=100.0))
        decisions = scheduler.handle(Submitted(an_action("b", 4, work_s=0.1)), 1.0)
        assert (resized(decisions), started(decisions)) == ({"a": 0}, ["b"])
        return scheduler

    def test_it_runs_on_when_there_is_room_again(self):
        scheduler = self.a_scheduler_with_one_preempted()
        assert resized(scheduler.handle(Finished(B), 1.1))["a"] >= 6

    def test_what_ends_sooner_still_goes_before_it(self):
        scheduler = self.a_scheduler_with_one_preempted()
        assert told(scheduler, an_action("c", 5, work_s=0.1), now=1.05) == []
        decisions = scheduler.handle(Finished(B), 1.1)
        assert (resized(decisions), started(decisions)) == ({}, ["c"])

    def test_it_goes_before_what_takes_longer(self):
        scheduler = self.a_scheduler_with_one_preempted()
        told(scheduler, an_action("d", 6, work_s=500.0), now=1.05)
        decisions = scheduler.handle(Finished(B), 1.1)
        assert (list(resized(decisions)), started(decisions)) == (["a"], [])

    def test_rigid_work_gives_way_too(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("long", 8, work_s=600.0))
        decisions = scheduler.handle(Submitted(an_action("ls", 1, work_s=0.05)), 10.0)
        assert (resized(decisions), started(decisions)) == ({"long": 0}, ["ls"])
        assert resized(scheduler.handle(Finished(ActionId("ls")), 10.05)) == {"long": 8}

    def test_elastic_work_passes_long_work_too(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("long", 8, work_s=600.0))
        decisions = scheduler.handle(Submitted(an_elastic("suite", 2, 8, work_s=1.0)), 10.0)
        assert (resized(decisions)["long"], started(decisions)) == (0, ["suite"])

    def test_work_about_as_long_does_not_interrupt_it(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("a", 8, work_s=10.0))
        assert told(scheduler, an_action("b", 8, work_s=9.0)) == []

    def test_nor_is_it_interrupted_where_longer_work_has_priority(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("a", 4, work_s=600.0, priority=5), an_action("b", 4, work_s=1.0))
        assert told(scheduler, an_action("c", 4, work_s=1.0)) == []

    def test_nor_does_a_job_ahead_of_its_share(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("a", 8, job="y", work_s=100.0, kind="long"))
        assert told(scheduler, an_action("b", 4, job="x", work_s=1.0)) == ["b"]
        scheduler.handle(Finished(ActionId("b")), 1.0)
        assert told(scheduler, an_action("c", 4, job="x", work_s=1.0), now=1.0) == []
        said = scheduler.explain(ActionId("c"), 1.0).summary
        assert "cpu: 0 that" not in said
        assert started(scheduler.handle(ClockTicked(), 2.0)) == ["c"]

    def test_a_job_behind_its_share_interrupts_shorter_work_of_others(self):
        scheduler = a_scheduler("elastic")
        for n in range(8):
            told(scheduler, an_action(f"x{n}", job="x", work_s=60.0))
        assert told(scheduler, an_action("y", job="y", work_s=600.0), now=1.0) == ["y"]
        said = [scheduler.explain(ActionId(f"x{n}"), 1.0).summary for n in range(8)]
        assert sum("or of a job that used less for its share" in one for one in said) == 1

    def test_elastic_work_of_a_job_behind_its_share_is_not_refused_for_its_price(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("x", 1, 8, job="x", work_s=50.0))
        assert told(scheduler, an_elastic("y", 1, 8, job="y", work_s=5000.0), now=2.0) == ["y"]

    def test_an_action_of_a_job_that_used_more_is_told_so(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, *(an_action(f"x{n}", job="x", work_s=60.0) for n in range(9)))
        told(scheduler, *(an_action(f"y{n}", 8, job="y", work_s=60.0) for n in range(2)), now=0.5)
        said = scheduler.explain(ActionId("x8"), 0.5).hindrances[0].because
        assert "its job has used more of cpu for its share" in said

    def test_one_that_is_being_stopped_is_left_alone(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("a", 8, work_s=600.0))
        scheduler.handle(Cancelled(A), 1.0)
        assert told(scheduler, an_action("b", 1, work_s=0.05), now=1.1) == []

    def test_one_that_went_without_cores_for_its_slack_is_not_preempted_again(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("a", 8, work_s=10.0))
        assert told(scheduler, an_action("b", 8, work_s=0.1), now=1.0) == ["b"]
        assert resized(scheduler.handle(ClockTicked(), 10_000.0)) == {"b": 0, "a": 8}
        assert told(scheduler, an_action("c", 1, work_s=0.01), now=10_000.1) == []

    def test_the_time_it_had_cores_for_gives_it_more_slack(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("a", 8, work_s=10.0))
        assert told(scheduler, an_action("b", 8, work_s=0.1), now=20_000.0) == ["b"]

    def test_one_without_cores_yet_is_not_preempted(self):
        """`a` goes first because its job got less, and has no cores yet when `b` asks."""
        scheduler = a_scheduler("elastic")
        told(scheduler, an_action("z", job="y"))
        crowd = [an_elastic("a", 6, 8, work_s=100.0), an_action("b", 4, job="y", work_s=0.1)]
        decisions = scheduler.handle_all([Submitted(one) for one in crowd], 0.5)
        assert (resized(decisions), started(decisions)) == ({}, ["a"])

    def test_it_may_end_meanwhile(self):
        scheduler = self.a_scheduler_with_one_preempted()
        assert reported(scheduler.handle(Finished(A), 1.05)) == {"a": "succeeded"}
        assert told(scheduler, an_action("c", 4), now=1.06) == ["c"]

    def test_what_is_learned_of_it_leaves_that_time_out(self):
        scheduler = a_scheduler("elastic")
        told(scheduler, an_elastic("a", 6, 8, work_s=None, speedup={"amdahl": 1.0}))
        short = an_action("b", 4, work_s=0.01, kind="tool")
        assert told(scheduler, short, now=0.5) == ["b"]
        scheduler.handle(Finished(B), 10.5)
        scheduler.handle(Finished(A), 12.0)
        like = an_elastic("c", work_s=None)
        belief = scheduler.estimates.belief(like, scheduler.estimates.cell(like))
        assert belief.median_s == pytest.approx(2.0, rel=0.2)


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

    def test_read_the_other_way_rigid_ones_start_while_elastic_ones_are_held_back(self):
        """`wide` would end later if it started on the one core that is free, so it is held back."""

        def started_beside(name: str) -> list[str]:
            scheduler = a_scheduler(name)
            told(scheduler, an_action("a", 5, work_s=0.1))
            wide = an_elastic("wide", 1, 8, work_s=100.0)
            crowd = [wide, an_elastic("next", 1, 8, work_s=0.1), an_action("r", work_s=0.1)]
            return started(scheduler.handle_all([Submitted(one) for one in crowd], 0.0))

        assert "r" in started_beside("tangram:elastic")

    def test_the_first_that_does_not_fit_blocks_the_rest(self):
        scheduler = a_scheduler("tangram")
        assert told(scheduler, an_action("a", 6), an_action("b", 4), an_action("c")) == ["a"]


@pytest.mark.parametrize("name", ["fcfs", "tangram", "elastic", "overcommit"])
def test_cores_are_lent_to_an_action_that_waits_for_calls(name):
    scheduler = a_scheduler(name, cpu=a_cpu(), search=QuotaSpec(concurrency=2))
    needs = {"cpu": 3, "search": {"min": 1, "max": 2}}
    (lease,) = leases(scheduler.handle(Submitted(an_action("a", needs, elastic="search")), 0.0))
    assert [a.resource for a in lease.allocations] == ["search", "cpu"]
    scheduler.handle(Finished(A), 1.0)
    assert told(scheduler, an_action("b", 8)) == ["b"]


@pytest.mark.parametrize("name", ["fcfs", "tangram", "elastic", "overcommit"])
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


@pytest.mark.parametrize("name", ["fcfs", "tangram", "elastic"])
def test_those_behind_one_that_was_cancelled_move_up(name):
    scheduler = a_scheduler(name)
    assert told(scheduler, an_action("a", 8, work_s=0.01), an_action("b"), an_elastic("c")) == ["a"]
    scheduler.handle(Cancelled(B), 0.5)
    assert started(scheduler.handle(Finished(A), 1.0)) == ["c"]


def test_a_kernel_runs_nothing_that_was_cancelled_at_once():
    scheduler = a_scheduler("overcommit")
    decisions = scheduler.handle_all([Submitted(an_action("a")), Cancelled(A)], 0.0)
    assert (started(decisions), reported(decisions)) == ([], {"a": "cancelled"})
