"""Resources on the side: lent by one lane to who waits in another, and not at any price."""

import pytest
from builders import a_cluster, a_cpu, a_gpu, an_action, policy, started

from artangram.core.ids import ActionId, Resource
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.cluster import ClusterSpec, FunctionsSpec, QuotaSpec, ServiceSpec
from artangram.core.scheduling.events import ClockTicked, Finished, Submitted
from artangram.core.scheduling.scheduler import Scheduler

LONG_AFTER = 10_000.0
"""When everything is overdue that was submitted at 0."""

CLUSTER = a_cluster(
    cpu=a_cpu(cores=4),
    gpu=a_gpu(devices=4),
    search=QuotaSpec(concurrency=4),
    functions=FunctionsSpec(ceiling=4),
    services={"judge": ServiceSpec(pool=Resource("gpu"), weights_mb=100, degrees=(1, 2, 4))},
)

ON_THE_SIDE = {
    "cpu": {"needs": {"gpu": 1, "cpu": 1}, "service": "judge"},
    "search": {"needs": {"cpu": 1, "search": 1}},
    "functions": {"needs": {"cpu": 1, "functions": 1}},
    "gpu": {"needs": {"cpu": {"min": 1, "max": 2}, "gpu": 1}, "elastic": "cpu", "service": "judge"},
}
"""Actions that wait in another lane and need one of these on the side."""


def all_of(resource: str) -> Action:
    service = "judge" if resource == "gpu" else None
    return an_action("wide", {resource: 4}, service=service, work_s=1.0)


def one_on_the_side(resource: str, name: str) -> Action:
    return an_action(name, work_s=1.0, **ON_THE_SIDE[resource])


def a_lending(resource: str, name: str, cluster: ClusterSpec = CLUSTER) -> Scheduler:
    """Two hold one each on the side, and somebody waits who needs all there is."""
    scheduler = Scheduler(cluster, policy(name))
    events = [Submitted(one_on_the_side(resource, f"s{n}")) for n in range(2)]
    assert started(scheduler.handle_all(events, 0.0)) == ["s0", "s1"]
    assert started(scheduler.handle(Submitted(all_of(resource)), 0.0)) == []
    return scheduler


@pytest.mark.parametrize(
    ("name", "resource"),
    [(name, r) for name in ("elastic", "tangram", "fcfs") for r in ON_THE_SIDE],
)
def test_an_overdue_action_is_not_passed_for_ever_by_loans(name, resource):
    scheduler = a_lending(resource, name)
    running = ["s0", "s1"]
    for n in range(2, 10):
        # Always another one before the last has ended.
        end, now = Finished(ActionId(running.pop(0))), LONG_AFTER + n
        come = started(
            scheduler.handle_all([end, Submitted(one_on_the_side(resource, f"s{n}"))], now)
        )
        if "wide" in come:
            break
        running += come
    assert come[0] == "wide"


def test_who_came_before_an_overdue_action_is_lent_what_is_free():
    scheduler = Scheduler(CLUSTER, policy("elastic"))
    search = [an_action(f"s{n}", {"search": 4}, work_s=1.0) for n in range(2)]
    scheduler.handle(Submitted(search[0]), 0.0)
    scheduler.handle(Submitted(an_action("early", {"cpu": 1, "search": 1}, work_s=0.0)), 1.0)
    scheduler.handle(Submitted(search[1]), 2.0)
    assert started(scheduler.handle(Finished(ActionId("s0")), 3.0)) == ["early"]


def test_a_loan_that_leaves_enough_for_the_overdue_is_given():
    scheduler = Scheduler(CLUSTER, policy("elastic"))
    both = [an_action("first", {"search": 2}), an_action("side", {"cpu": 1, "search": 1})]
    assert sorted(started(scheduler.handle_all(map(Submitted, both), 0.0))) == ["first", "side"]


def test_who_waits_for_a_loan_behind_an_overdue_action_says_so():
    scheduler = a_lending("search", "elastic")
    scheduler.handle(Submitted(one_on_the_side("search", "late")), LONG_AFTER)
    (said,) = scheduler.explain(ActionId("late"), LONG_AFTER).hindrances
    assert (said.resource, said.ahead) == ("search", 1)
    assert said.because == "an overdue action has a claim on what it needs"


class TestFencedDevices:
    """An overdue action has a place kept free for it; nothing of that is lent."""

    def test_are_not_lent(self):
        cluster = a_cluster(
            cpu=a_cpu(cores=8),
            gpu=a_gpu(nodes=2, devices=2),
            services={
                "judge": ServiceSpec(pool=Resource("gpu"), weights_mb=100, degrees=(1, 2)),
            },
        )
        scheduler = Scheduler(cluster, policy("elastic"))
        for n in range(4):
            a = an_action(f"n{n}", {"gpu": 1}, service="judge", work_s=10.0 + n)
            scheduler.handle(Submitted(a), 0.0)
        wide = an_action("wide", {"gpu": 2}, service="judge", work_s=1.0)
        scheduler.handle(Submitted(wide), 0.0)
        # One half of each node is free, one of them fenced.
        now = LONG_AFTER
        scheduler.handle_all([Finished(ActionId("n0")), Finished(ActionId("n2"))], now)
        secondary = [one_on_the_side("gpu", f"s{n}") for n in range(2)]
        assert started(scheduler.handle_all(map(Submitted, secondary), now)) == ["s0"]

    def test_may_be_on_loan_when_they_are_fenced(self):
        scheduler = a_lending("gpu", "elastic")
        scheduler.handle(ClockTicked(), LONG_AFTER)
        narrow = an_action("narrow", {"gpu": 1}, service="judge", job="other", work_s=1.0)
        assert started(scheduler.handle(Submitted(narrow), LONG_AFTER)) == []


@pytest.mark.parametrize("name", ["elastic", "tangram", "fcfs"])
def test_a_lane_serves_all_who_are_overdue_before_it_lends(name):
    """`late` comes to its turn first when what it lacks and the cores come free together."""
    scheduler = Scheduler(CLUSTER, policy(name))
    on_loan = {"cpu": 4, "functions": {"min": 1, "max": 2}}
    first = [an_action("x", on_loan, elastic="functions"), an_action("s", {"search": 4})]
    overdue = [an_action(each, 2, work_s=0.1) for each in "ab"]
    assert started(scheduler.handle_all(map(Submitted, first), 0.0)) == ["x", "s"]
    assert started(scheduler.handle_all(map(Submitted, overdue), 0.0)) == []
    late = an_action("late", {"cpu": 1, "search": {"min": 1, "max": 4}}, elastic="search")
    assert started(scheduler.handle(Submitted(late), LONG_AFTER)) == []
    ended = [Finished(ActionId(each)) for each in "sx"]
    assert started(scheduler.handle_all(ended, LONG_AFTER)) == ["a", "b"]
    assert started(scheduler.handle(Finished(ActionId("a")), LONG_AFTER)) == ["late"]
