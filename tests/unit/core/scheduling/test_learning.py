"""What the end of one action tells about those that have not run."""

import pytest
from builders import CPU, a_cpu, a_scheduler, an_action, an_elastic, started

from artangram.core.ids import ActionId, NodeId
from artangram.core.scheduling.action import Action, Outcome
from artangram.core.scheduling.events import Cancelled, ClockTicked, Finished, NodeLost, Submitted
from artangram.core.scheduling.scheduler import Scheduler

A = ActionId("a")


def a_suite(name: str, problem: str = "", **fields: object) -> Action:
    return an_action(name, kind="suite", problem=problem, **fields)


def one_core(*actions: Action) -> Scheduler:
    scheduler = a_scheduler(cpu=a_cpu(cores=1))
    for action in actions:
        scheduler.handle(Submitted(action), 0.0)
    return scheduler


def median_s(scheduler: Scheduler, action: Action) -> float:
    return scheduler.estimates.belief(action, scheduler.estimates.cell(action)).median_s


def ended(scheduler: Scheduler, outcome: Outcome, after_s: float, times: int = 20) -> float:
    """What is believed after many that ended so."""
    for n in range(times):
        scheduler.handle(Submitted(a_suite(f"x{n}")), 1000.0 * n)
        scheduler.handle(Finished(ActionId(f"x{n}"), outcome), 1000.0 * n + after_s)
    return median_s(scheduler, a_suite("y"))


def test_siblings_of_one_that_took_long_let_others_go_first():
    scheduler = one_core(a_suite("a", "p"), a_suite("b", "p"), a_suite("c", "q"))
    assert started(scheduler.handle(Finished(A), 100.0)) == ["c"]


def test_siblings_of_one_that_was_quick_go_first():
    scheduler = one_core(a_suite("a", "p"), a_suite("b", "q"), a_suite("c", "p"))
    assert started(scheduler.handle(Finished(A), 0.05)) == ["c"]


def test_elastic_siblings_that_wait_go_first_once_they_are_known_to_be_short():
    scheduler = a_scheduler(cpu=a_cpu(cores=4))
    suites = {"work_s": None, "kind": "suite", "problem": "p"}
    scheduler.handle(Submitted(an_elastic("a", 3, 8, **suites)), 0.0)
    scheduler.handle(Submitted(an_elastic("b", 3, 8, **suites)), 0.0)
    scheduler.handle(Submitted(an_elastic("long", 3, 8, work_s=0.3, kind="other")), 0.0)
    assert scheduler.explain(ActionId("b"), 0.0).state == "waiting"
    scheduler.handle(Finished(A), 0.01)
    assert scheduler.explain(ActionId("b"), 0.01).state == "running"


def test_a_scheduler_made_anew_goes_on_with_what_was_learned():
    first, second = a_scheduler(), a_scheduler()
    ended(first, Outcome.SUCCEEDED, 30.0)
    second.estimates = first.estimates
    assert median_s(second, a_suite("y")) == pytest.approx(30.0, rel=0.2)


def test_without_a_problem_they_go_in_turn():
    scheduler = one_core(a_suite("a"), a_suite("b"), a_suite("c"))
    assert started(scheduler.handle(Finished(A), 0.05)) == ["b"]


def test_a_sibling_whose_caller_states_its_work_keeps_it():
    scheduler = one_core(a_suite("a", "p"), a_suite("b", "p", work_s=0.7), a_suite("c", "q"))
    assert started(scheduler.handle(Finished(A), 100.0)) == ["b"]


def test_a_sibling_that_still_runs_tells_the_others():
    """`a` has run for long; `b` waits beside `c`, and is expected to take long, too."""
    scheduler = a_scheduler(cpu=a_cpu(cores=2))
    for n in range(40):
        scheduler.handle(Submitted(a_suite(f"x{n}")), 100.0 * n)
        scheduler.handle(Finished(ActionId(f"x{n}")), 100.0 * n + [1.0, 50.0][n % 2])
    scheduler.handle(Submitted(a_suite("a", "p")), 5000.0)
    scheduler.handle(Submitted(an_action("z", kind="z", work_s=20.0)), 5000.0)
    scheduler.handle(Submitted(a_suite("w", "r")), 5000.0)
    scheduler.handle(ClockTicked(), 5030.0)
    likely, other = (median_s(scheduler, a_suite("s", problem)) for problem in "pq")
    assert likely > other


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_what_ends_by_itself_says_how_long_it_took(outcome):
    believed = ended(a_scheduler(), outcome, 30.0)
    assert believed == pytest.approx(30.0, rel=0.2)


def test_what_ran_into_its_limit_says_that_it_takes_longer():
    assert ended(a_scheduler(), Outcome.TIMED_OUT, 30.0) > 30.0


def test_a_failure_of_infrastructure_says_nothing():
    believed = ended(a_scheduler(), Outcome.INFRA_FAILED, 30.0)
    assert believed == pytest.approx(1.0, rel=0.2)


def test_what_was_cancelled_says_that_it_takes_longer():
    scheduler = a_scheduler()
    for n in range(20):
        name = ActionId(f"x{n}")
        scheduler.handle(Submitted(a_suite(name)), 1000.0 * n)
        scheduler.handle(Cancelled(name), 1000.0 * n + 50.0)
        scheduler.handle(Finished(name, Outcome.FAILED), 1000.0 * n + 50.0)
    assert median_s(scheduler, a_suite("y")) > 50.0


def test_one_cancelled_before_it_began_says_nothing():
    scheduler = a_scheduler(cpu=a_cpu(create_s=5.0))
    for n in range(20):
        name = ActionId(f"x{n}")
        scheduler.handle(Submitted(a_suite(name)), 1000.0 * n)
        scheduler.handle(Finished(name, Outcome.CANCELLED, began_at=1000.0 * n), 1000.0 * n)
    assert median_s(scheduler, a_suite("y")) == pytest.approx(1.0, rel=0.2)


def test_siblings_that_lost_their_node_are_expected_anew():
    scheduler = a_scheduler(cpu=a_cpu(nodes=2, cores=1))
    names = ["a", "b", "c", "d"]
    for name in names:
        scheduler.handle(Submitted(a_suite(name, "p", repeatable=True)), 0.0)
    scheduler.handle(NodeLost(CPU, NodeId("cpu-0"), "gone"), 1.0)
    running = [n for n in names if scheduler.explain(ActionId(n), 1.0).state == "running"]
    for _ in names:
        for name in running:
            scheduler.handle(Finished(ActionId(name), attempt=1), 2.0)
            scheduler.handle(Finished(ActionId(name), attempt=2), 2.0)
        names = [n for n in names if n not in running]
        running = [n for n in names if scheduler.explain(ActionId(n), 2.0).state == "running"]
    assert names == []
