"""Which job has used least of a pool's cores for its share."""

from artangram.core.ids import JobId
from artangram.core.scheduling.policies.ranking import (
    LEAST_GAP,
    LOOK_S,
    MOST_JOBS,
    CoreUse,
    NodeUse,
)

A, B, C = JobId("a"), JobId("b"), JobId("c")


def wanting(*jobs: JobId, shares: dict[JobId, float] | None = None) -> CoreUse:
    use = CoreUse(shares or {})
    use.cores = 8
    for job in jobs:
        use.want(job, 0.0)
    return use


def test_a_job_is_charged_for_what_it_holds_while_it_holds_it():
    use = wanting(A, B, shares={B: 2.0})
    use.hold(A, 2, 0.0)
    use.hold(B, 2, 0.0)
    assert (use.standing(A, 3.0), use.standing(B, 3.0)) == (6.0 + 2 * LOOK_S, 3.0 + LOOK_S)
    use.hold(A, -2, 3.0)
    assert use.standing(A, 9.0) == 6.0


def test_a_job_that_comes_later_starts_level_with_the_least_served_that_waits():
    use = wanting(A, B)
    use.hold(A, 4, 0.0)
    use.hold(B, 1, 0.0)
    use.want(C, 10.0)
    assert use.standing(C, 10.0) == 10.0


def test_nothing_is_owed_while_no_job_is_short_of_cores():
    use = wanting(A, B)
    use.hold(A, 4, 0.0)
    for job in (A, B):
        use.unwant(job)
    use.want(B, 10.0)
    assert use.standing(B, 10.0) == 40.0


def test_a_job_that_was_ahead_is_still_so_when_it_comes_back():
    use = wanting(A, B)
    use.hold(A, 4, 0.0)
    use.hold(A, -4, 10.0)
    use.unwant(A)
    use.want(A, 20.0)
    assert use.standing(A, 20.0) == 40.0
    assert (use.is_ahead(A, 20.0), use.is_ahead(B, 20.0)) == (True, False)


def test_only_what_is_clearly_behind_is_owed_cores():
    use = wanting(A, B)
    use.hold(A, 4, 0.0)
    assert not use.is_behind(A, 1, 1.0)
    assert not use.is_behind(B, 1, 0.0)
    assert use.is_behind(B, 1, 2.0)
    assert use.lead(B, A, 2.0, taken=1, given=1) == -(8.0 + 4 * LOOK_S) + 2 * LOOK_S


def test_many_jobs_on_few_cores_do_not_switch_all_the_time():
    use = wanting(*map(JobId, map(str, range(100))))
    assert use.gap(JobId("3"), 1.0) == LEAST_GAP


def test_a_job_that_is_alone_is_behind_no_other():
    use = wanting(A)
    use.hold(A, 4, 0.0)
    assert not use.is_behind(A, 1, 100.0)


def test_what_a_lost_node_held_and_wanted_is_over():
    pool = CoreUse({})
    one, other = NodeUse(pool, 8), NodeUse(pool, 4)
    one.want(A, 0.0)
    one.hold(B, 2, 0.0)
    other.hold(B, 1, 0.0)
    other.hold(B, 0, 0.0)
    one.lose(5.0)
    assert (pool.cores, pool.standing(B, 7.0)) == (4, 10.0 + 7.0 + LOOK_S)
    other.hold(B, -1, 7.0)
    assert not pool.is_ahead(B, 7.0)


def test_a_new_share_counts_from_then_on():
    shares = {A: 1.0}
    use = wanting(A, shares=shares)
    use.hold(A, 2, 0.0)
    shares[A] = 4.0
    use.reconfigure(10.0)
    assert use.standing(A, 12.0) == 20.0 + 1.0 + LOOK_S * 2 / 4.0


def test_jobs_that_are_forgotten_gain_nothing():
    use = CoreUse({})
    use.want(A, 0.0)
    for number in range(2 * MOST_JOBS):
        job = JobId(f"job-{number}")
        use.hold(job, 1, float(number))
        use.hold(job, -1, number + 0.5)
    assert len(use) <= MOST_JOBS
    use.unwant(A)
    use.want(JobId("job-0"), 2.0 * MOST_JOBS)
    assert use.standing(JobId("job-0"), 2.0 * MOST_JOBS) >= 0.5
