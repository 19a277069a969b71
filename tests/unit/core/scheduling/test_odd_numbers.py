"""A caller's odd numbers never stop the scheduler, which belongs to all callers."""

import pytest

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, Resource
from artangram.core.scheduling.action import MOST_WORK_S, Action, Outcome, checked
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.decisions import Start
from artangram.core.scheduling.events import Finished, Submitted
from artangram.core.scheduling.needs import Needs, parse_needs
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler


def a_scheduler(name: str = "elastic") -> Scheduler:
    cpu = CpuSpec(nodes=1, cores=4, memory_mb=1000)
    return Scheduler(ClusterSpec(pools={Resource("cpu"): cpu}), policy(name))


def wide(speedup: object = None) -> Needs:
    return parse_needs({"cpu": {"min": 1, "max": 4}}, elastic="cpu", speedup=speedup)


def an_action(name: str, *, needs: Needs | None = None, work_s: float | None = 1.0) -> Action:
    return Action(id=ActionId(name), kind="x", needs=needs or wide(), work_s=work_s)


@pytest.mark.parametrize("work_s", [5e-324, 1e-20, MOST_WORK_S])
def test_a_wild_guess_of_the_work_is_survived(work_s: float):
    scheduler = a_scheduler()
    scheduler.handle(Submitted(an_action("wild", work_s=work_s)), 0.0)
    scheduler.handle(Finished(ActionId("wild"), Outcome.SUCCEEDED), 1.0)
    scheduler.handle(Submitted(an_action("next")), 1.0)
    rigid = an_action("rigid", needs=parse_needs({"cpu": 2}))
    decisions = scheduler.handle(Submitted(rigid), 1.1)  # It squeezes the other.
    assert [d.lease.action_id for d in decisions if isinstance(d, Start)] == ["rigid"]


def test_many_wild_guesses_are_corrected_within_reason():
    scheduler = a_scheduler()
    for number in range(20):
        scheduler.handle(Submitted(an_action(f"{number}", work_s=5e-324)), number)
        scheduler.handle(Finished(ActionId(f"{number}"), Outcome.SUCCEEDED), number + 0.5)
    assert 1.0 < scheduler.estimates.work_s(an_action("honest")) < 1e5


def test_work_that_nobody_lives_to_see_is_refused():
    with pytest.raises(BadInput, match=r"work_s: 1e\+20 is too long; give 1e\+09 at most"):
        checked(an_action("a", work_s=1e20))


@pytest.mark.parametrize("speed", [1e-300, 5e-324, 1e300, float("inf"), float("nan")])
def test_a_speed_next_to_nothing_or_without_end_is_refused(speed: float):
    with pytest.raises(BadInput, match="is not units: speed"):
        wide({"table": {"1": 1.0, "2": speed}})


def test_work_that_takes_no_time_holds_its_cores_all_the_same():
    scheduler = a_scheduler("elastic")
    actions = [an_action(f"a{number}", work_s=0.0) for number in range(6)]
    decisions = scheduler.handle_all([Submitted(action) for action in actions], 0.0)
    assert sum(d.lease.allocations[0].units for d in decisions if isinstance(d, Start)) <= 4
