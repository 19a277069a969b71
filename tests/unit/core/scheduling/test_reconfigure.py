"""A cluster that changes while it runs."""

import pytest
from builders import a_cluster, a_cpu, an_action, records, reported, started
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec, FunctionsSpec, JobLimits, QuotaSpec
from artangram.core.scheduling.events import (
    ClockTicked,
    Finished,
    Reconfigured,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.reconfigure import applied, checked, difference, fixed
from artangram.core.scheduling.scheduler import Scheduler

SEARCH, FUNCTIONS = Resource("search"), Resource("functions")
QUOTA = QuotaSpec(concurrency=2)
SLOTS = FunctionsSpec(ceiling=2, cold_s=0.0)


def a_spec(**fields: object) -> ClusterSpec:
    cluster = a_cluster(cpu=a_cpu(cores=4), search=QUOTA, functions=SLOTS)
    return structs.replace(cluster, **fields)


def a_running(**fields: object) -> Scheduler:
    return Scheduler(a_spec(**fields), policy("elastic"))


def submit(scheduler: Scheduler, name: str, now: float = 0.0, **fields: object) -> list[str]:
    return started(scheduler.handle(Submitted(an_action(name, **fields)), now))


def become(scheduler: Scheduler, now: float, **fields: object) -> list:
    return scheduler.handle(Reconfigured(**fields), now)


def quota(**fields: object) -> dict:
    return {"pools": {SEARCH: QuotaSpec(**fields)}}


def test_a_higher_quota_starts_what_waits_at_once():
    scheduler = a_running()
    for name in "abcd":
        submit(scheduler, name, needs={"search": 1})
    assert started(become(scheduler, 1.0, **quota(concurrency=3))) == ["c"]
    assert scheduler.cluster.pools[SEARCH] == QuotaSpec(concurrency=3)


def test_a_lower_quota_lets_what_is_under_way_end():
    scheduler = a_running()
    for name in "abc":
        submit(scheduler, name, needs={"search": 1})
    assert become(scheduler, 1.0, **quota(concurrency=1)) == []
    (said,) = scheduler.explain("c", 1.0).hindrances
    assert (said.needed, said.free) == (1, 0)
    assert started(scheduler.handle(Finished("a"), 2.0)) == []
    assert started(scheduler.handle(Finished("b"), 3.0)) == ["c"]


def test_what_a_lower_quota_can_never_serve_is_refused():
    scheduler = a_running()
    submit(scheduler, "a", needs={"search": 2})
    submit(scheduler, "wide", needs={"search": 2, "cpu": 1})
    out = become(scheduler, 1.0, **quota(concurrency=1))
    assert reported(out) == {"wide": "refused"}
    assert "can never fit: 1 is all one can have" in records(out)[0].reason
    assert reported(scheduler.handle(Submitted(an_action("b", {"search": 2})), 1.0)) == {
        "b": "refused"
    }


def test_a_new_limit_counts_what_is_under_way():
    scheduler = a_running()
    submit(scheduler, "a", needs={"search": 1})
    become(scheduler, 1.0, **quota(limit=2, window_s=10.0))
    assert submit(scheduler, "b", 1.0, needs={"search": 1}) == ["b"]
    assert submit(scheduler, "c", 1.0, needs={"search": 1}) == []
    assert started(scheduler.handle(ClockTicked(), 11.0)) == ["c"]
    become(scheduler, 12.0, **quota(limit=2, window_s=10.0))
    assert submit(scheduler, "d", 12.0, needs={"search": 1}) == ["d"]
    assert submit(scheduler, "e", 12.0, needs={"search": 1}) == []
    assert started(become(scheduler, 13.0, **quota())) == ["e"]


def test_a_limit_on_an_idle_api_counts_nothing():
    scheduler = a_running()
    become(scheduler, 1.0, **quota(limit=1, window_s=10.0))
    assert submit(scheduler, "a", 1.0, needs={"search": 1}) == ["a"]
    assert submit(scheduler, "b", 1.0, needs={"search": 1}) == []


def test_a_ceiling_moves_both_ways():
    scheduler = a_running()
    for name in "abc":
        submit(scheduler, name, needs={"functions": 1})
    more = {FUNCTIONS: structs.replace(SLOTS, ceiling=3)}
    assert started(become(scheduler, 1.0, pools=more)) == ["c"]
    become(scheduler, 2.0, pools={FUNCTIONS: structs.replace(SLOTS, ceiling=1)})
    assert submit(scheduler, "d", 2.0, needs={"functions": 1}) == []
    assert scheduler.explain("d", 2.0).hindrances[0].free == 0


def test_new_shares_decide_who_is_next():
    def order(**fields: object) -> list[str]:
        scheduler = a_running()
        for job in "xy":
            for n in range(8):
                submit(scheduler, f"{job}{n}", needs={"search": 1}, job=job)
        if fields:
            become(scheduler, 0.0, **fields)
        begun, running = [], ["x0", "x1"]
        for now in range(1, 7):
            begun += (new := started(scheduler.handle(Finished(running.pop(0)), float(now))))
            running += new
        return begun

    assert sum(name[0] == "y" for name in order()) == 3
    assert sum(name[0] == "y" for name in order(shares={JobId("y"): 10.0})) >= 5


def test_a_higher_maximum_lets_trajectories_in_and_a_minimum_keeps_room():
    x, y = JobId("x"), JobId("y")
    scheduler = a_running(limits={x: JobLimits(max_trajectories=1)})
    for name in ("x1", "x2", "x3", "y1"):
        opened = TrajectoryOpened(TrajectoryId(name), 400, JobId(name[0]))
        scheduler.handle(opened, 0.0)
    assert submit(scheduler, "a", job="x", trajectory="x1") == ["a"]
    assert submit(scheduler, "b", job="x", trajectory="x2") == []
    assert started(become(scheduler, 1.0, limits={x: JobLimits(max_trajectories=2)})) == ["b"]
    become(scheduler, 2.0, limits={y: JobLimits(min_memory_mb=400)})
    scheduler.handle(Finished("a"), 2.0)
    scheduler.handle(TrajectoryClosed(TrajectoryId("x1")), 2.0)
    scheduler.handle(TrajectoryGone(TrajectoryId("x1")), 2.0)
    assert submit(scheduler, "c", 2.0, job="x", trajectory="x3") == []
    assert submit(scheduler, "d", 2.0, job="y", trajectory="y1") == ["d"]


def test_limits_that_go_away_hold_nothing_back():
    x = JobId("x")
    scheduler = a_running(limits={x: JobLimits(max_trajectories=1)})
    for name in ("x1", "x2"):
        scheduler.handle(TrajectoryOpened(TrajectoryId(name), 10, x), 0.0)
    submit(scheduler, "a", job="x", trajectory="x1")
    assert submit(scheduler, "b", job="x", trajectory="x2") == []
    assert started(become(scheduler, 1.0, limits={})) == ["b"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"shares": {JobId("x"): 0.0}}, "jobs.x.share: 0.0 is not a share"),
        ({"limits": {JobId("x"): JobLimits(min_memory_mb=2, max_memory_mb=1)}}, "above max_memory"),
        ({"pools": {Resource("gpu"): QUOTA}}, "pools.gpu: is not a pool .* functions, search"),
        ({"pools": {SEARCH: SLOTS}}, "pools.search: cannot become this"),
        ({"pools": {SEARCH: QuotaSpec(overhead_s=1.0)}}, "pools.search: cannot become this"),
        ({"pools": {SEARCH: QuotaSpec(limit=0)}}, "pools.search.limit: 0 allows nothing"),
        ({"pools": {Resource("cpu"): QUOTA}}, "pools.cpu: cannot become this"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(fields, problem):
    scheduler = a_running()
    with pytest.raises(BadInput, match=problem):
        become(scheduler, 1.0, **fields)
    assert scheduler.cluster == a_spec()


def test_a_cluster_without_apis_says_so():
    with pytest.raises(BadInput, match="has no API and no function"):
        checked(Reconfigured(pools={SEARCH: QUOTA}), a_cluster(cpu=a_cpu()))


def test_the_difference_makes_one_into_the_other():
    before = a_spec(shares={JobId("x"): 2.0})
    after = applied(
        Reconfigured(
            shares={JobId("y"): 1.5},
            limits={JobId("x"): JobLimits(max_memory_mb=5)},
            pools={SEARCH: QuotaSpec(limit=3)},
        ),
        before,
    )
    event = difference(before, after)
    assert event is not None
    assert applied(event, before) == after
    assert difference(after, after) is None
    assert applied(Reconfigured(), after) == after
    assert fixed(before) == fixed(after)
    assert fixed(after) != fixed(a_spec(services={}, pools={SEARCH: QUOTA}))
