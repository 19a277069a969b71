"""Time limits pass with what a program is given."""

import pytest
from builders import a_cpu, a_scheduler, an_action, an_elastic, leases

from artangram.core.scheduling.decisions import Decision, Resize
from artangram.core.scheduling.events import Submitted


def paces(decisions: list[Decision]) -> dict[str, float]:
    return {str(d.action_id): d.pace for d in decisions if isinstance(d, Resize)}


def test_with_all_the_cores_it_can_use_it_passes_with_the_clock():
    (lease,) = leases(a_scheduler().handle(Submitted(an_elastic("a", 1, 8, timeout_s=9.0)), 0.0))
    assert lease.pace == 1.0


def test_on_half_of_them_half_as_fast():
    scheduler = a_scheduler()
    scheduler.handle(Submitted(an_elastic("a", 1, 8, timeout_s=9.0)), 0.0)
    decisions = scheduler.handle(Submitted(an_action("b", 4, work_s=0.1)), 1.0)
    assert paces(decisions) == {"a": 0.5}


def test_what_a_squeeze_costs_is_left_out():
    scheduler = a_scheduler(cpu=a_cpu(squeeze_penalty=0.1))
    scheduler.handle(Submitted(an_elastic("a", 1, 8, timeout_s=9.0)), 0.0)
    decisions = scheduler.handle(Submitted(an_action("b", 4, work_s=0.1)), 1.0)
    assert paces(decisions) == {"a": pytest.approx(0.45)}


def test_a_preempted_one_has_all_the_time_there_is():
    scheduler = a_scheduler()
    (lease,) = leases(
        scheduler.handle(Submitted(an_action("a", 8, work_s=100.0, timeout_s=200.0)), 0.0)
    )
    decisions = scheduler.handle(Submitted(an_action("b", 1, work_s=0.1)), 1.0)
    assert (lease.pace, paces(decisions)) == (1.0, {"a": 0.0})


def test_cores_that_would_not_make_it_faster_are_not_missed():
    falls = {"table": {"1": 1.0, "2": 1.5, "4": 0.5}}
    action = an_elastic("a", 1, 4, speedup=falls, timeout_s=9.0)
    (lease,) = leases(a_scheduler().handle(Submitted(action), 0.0))
    assert (lease.workers, lease.pace) == (2, 1.0)


@pytest.mark.parametrize("name", ["overcommit", "pods:1"])
def test_where_a_kernel_shares_it_passes_with_the_clock(name):
    (lease,) = leases(
        a_scheduler(name).handle(Submitted(an_elastic("a", 1, 8, timeout_s=9.0)), 0.0)
    )
    assert lease.pace == 1.0
