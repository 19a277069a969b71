"""How long a job would wait now, as far as the scheduler can tell."""

import pytest
from builders import a_cluster, a_cpu, an_action

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.scheduling.cluster import QuotaSpec
from artangram.core.scheduling.events import (
    Cancelled,
    Finished,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.expected import ExpectedWait
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler

X, Y = JobId("x"), JobId("y")


def a_scheduler(**fields: object) -> Scheduler:
    cpu = a_cpu(**{"cores": 2, "memory_mb": 10} | fields)
    return Scheduler(a_cluster(cpu=cpu, search=QuotaSpec(concurrency=1)), policy("elastic"))


def come(scheduler: Scheduler, name: str, now: float, *, job: str = "x", **fields) -> None:
    scheduler.handle(TrajectoryOpened(TrajectoryId(name), 10, JobId(job)), now)
    scheduler.handle(Submitted(an_action(name, trajectory=name, job=job, **fields)), now)


def go(scheduler: Scheduler, name: str, now: float) -> None:
    gone = (TrajectoryClosed(TrajectoryId(name)), TrajectoryGone(TrajectoryId(name)))
    scheduler.handle_all([Finished(name), *gone], now)


def test_without_a_line_nothing_waits():
    scheduler = a_scheduler()
    assert scheduler.expected_wait(X, 0.0) == ExpectedWait()
    come(scheduler, "a", 0.0)
    assert scheduler.expected_wait(X, 0.0) == ExpectedWait()


def test_a_line_for_memory_moves_as_fast_as_it_did():
    scheduler = a_scheduler()
    for name in "abcd":
        come(scheduler, name, 0.0)
    waits = scheduler.expected_wait(X, 5.0)
    assert (waits.num_trajectories, waits.memory_s) == (3, 4 * 5.0)
    assert scheduler.expected_wait(Y, 5.0) == ExpectedWait()
    go(scheduler, "a", 10.0)
    waits = scheduler.expected_wait(X, 11.0)
    assert (waits.num_trajectories, waits.memory_s) == (2, 3 * 10.0)
    assert scheduler.expected_wait(X, 30.0).memory_s == 3 * 20.0
    go(scheduler, "b", 14.0)
    assert scheduler.expected_wait(X, 14.0).memory_s == pytest.approx(2 * 13.5 / 1.95)
    scheduler.handle(Cancelled("d"), 15.0)
    assert scheduler.expected_wait(X, 15.0) == ExpectedWait()


def test_a_line_for_cores_lasts_for_the_work_that_waits():
    scheduler = a_scheduler()
    for number in range(4):
        scheduler.handle(Submitted(an_action(f"x{number}", job="x", work_s=10.0)), 0.0)
    waits = scheduler.expected_wait(X, 0.0)
    assert (waits.num_actions, waits.memory_s) == (2, 0.0)
    assert waits.cores_s == pytest.approx(10.0, rel=0.05)


def test_other_jobs_take_their_part_of_the_cores():
    scheduler = a_scheduler()
    for number in range(4):
        for job in "xy":
            action = an_action(f"{job}{number}", job=job, work_s=10.0)
            scheduler.handle(Submitted(action), 0.0)
    waits = scheduler.expected_wait(X, 0.0)
    assert waits.cores_s == pytest.approx(10.0 * waits.num_actions, rel=0.05)


def test_calls_that_wait_are_no_line_for_cores():
    scheduler = a_scheduler()
    for name in "ab":
        scheduler.handle(Submitted(an_action(name, {"search": 1}, job="x")), 0.0)
    assert scheduler.expected_wait(X, 0.0) == ExpectedWait()


def test_the_part_of_a_job_that_is_not_there_counts_it_in():
    scheduler = a_scheduler()
    scheduler.handle(Submitted(an_action("y", job="y")), 0.0)
    use = scheduler._lanes.placement["cpu"].use  # No caller asks for it alone.
    assert (use.part_of(X), use.part_of(Y)) == (1.0, 2.0)
