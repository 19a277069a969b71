"""Function slots that nodes bring: calls go there, end with them, and keep them from leaving."""

from builders import CPU, a_cpu, a_scheduler, an_action, leases, records, started

from artangram.core.ids import ActionId, NodeId, Resource
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import FunctionsSpec, NodeSpec, QuotaSpec
from artangram.core.scheduling.decisions import Release
from artangram.core.scheduling.events import (
    Finished,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeSuspected,
    NodeTrusted,
    NodeUndrained,
    Submitted,
)
from artangram.core.scheduling.lease import FunctionSlots
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.scheduler import Scheduler

FUNCTIONS, BIG = Resource("functions"), NodeId("big")
SPEC = NodeSpec(cores=2, memory_mb=100, slots={FUNCTIONS: 2, Resource("nowhere"): 3})


def a_cluster_with_slots(*, joins: bool = True) -> Scheduler:
    """One slot at the head, two on a node that joined."""
    pools = {"functions": FunctionsSpec(ceiling=1), "search": QuotaSpec(concurrency=1)}
    scheduler = a_scheduler(cpu=a_cpu(), **pools)
    if joins:
        scheduler.handle(NodeJoined(CPU, BIG, SPEC), 0.0)
    return scheduler


def called(scheduler: Scheduler, name: str, now: float = 0.0, **fields: object) -> list[str]:
    """Where what starts has its slots."""
    action = an_action(name, {"functions": 1}, **fields)
    return where(scheduler.handle(Submitted(action), now))


def where(decisions: list[object]) -> list[str]:
    return [
        str(slots.node)
        for lease in leases(decisions)
        for slots in lease.allocations
        if isinstance(slots, FunctionSlots)
    ]


def test_calls_go_where_slots_are_free():
    scheduler = a_cluster_with_slots()
    assert [called(scheduler, name) for name in "abcd"] == [["big"], [""], ["big"], []]
    assert "0 of functions can be had now" in scheduler.explain(ActionId("d"), 0.0).summary
    assert where(scheduler.handle(Finished(ActionId("a")), 1.0)) == ["big"]


def test_a_warm_slot_goes_first():
    scheduler = a_cluster_with_slots()
    assert called(scheduler, "a") == ["big"]
    assert called(scheduler, "b") == [""]
    scheduler.handle(Finished(ActionId("b")), 1.0)
    assert called(scheduler, "c", 2.0) == [""]
    scheduler.handle(Finished(ActionId("c")), 3.0)
    assert called(scheduler, "d", 100.0) == [""]  # By then none is warm, and both have one free.


def test_a_node_that_joins_serves_what_waits():
    scheduler = a_cluster_with_slots(joins=False)
    assert [called(scheduler, name) for name in "ab"] == [[""], []]
    for _ in range(2):  # It is there already.
        assert where(scheduler.handle(NodeJoined(CPU, BIG, SPEC), 1.0)) in (["big"], [])
    scheduler.handle(Finished(ActionId("b")), 2.0)
    assert [called(scheduler, name, 3.0) for name in "cd"] == [["big"], ["big"]]


def test_a_call_on_a_lost_node_is_repeated_if_it_may_be():
    scheduler = a_cluster_with_slots()
    assert called(scheduler, "once") == ["big"]
    assert called(scheduler, "head") == [""]
    assert called(scheduler, "again", repeatable=True) == ["big"]
    lost = scheduler.handle(NodeLost(CPU, BIG, "it burnt"), 1.0)
    assert [(one.action_id, one.outcome) for one in records(lost)] == [
        ("once", Outcome.INFRA_FAILED)
    ]
    assert where(scheduler.handle(Finished(ActionId("head")), 2.0)) == [""]
    assert scheduler.handle(Finished(ActionId("again"), attempt=1), 3.0) == []  # A late end.
    assert records(scheduler.handle(Finished(ActionId("again"), attempt=2), 4.0))
    assert [called(scheduler, name, 5.0) for name in "xy"] == [[""], []]


def test_a_node_that_does_not_answer_gets_no_call():
    scheduler = a_cluster_with_slots()
    scheduler.handle(NodeSuspected(CPU, BIG), 0.0)
    assert [called(scheduler, name) for name in "ab"] == [[""], []]
    assert where(scheduler.handle(NodeTrusted(CPU, BIG), 1.0)) == ["big"]


def test_a_draining_node_leaves_when_its_last_call_has_ended():
    scheduler = a_cluster_with_slots()
    assert called(scheduler, "a") == ["big"]
    assert scheduler.handle(NodeDraining(CPU, BIG), 0.0) == []
    assert [called(scheduler, name) for name in "bc"] == [[""], []]
    left = scheduler.handle(Finished(ActionId("a")), 1.0)
    assert [one.node for one in left if isinstance(one, Release)] == ["big"]
    assert where(scheduler.handle(NodeUndrained(CPU, BIG), 2.0)) == ["big"]


def test_slots_on_the_side_of_another_resource_are_given_back_to_their_node():
    scheduler = a_cluster_with_slots()
    assert called(scheduler, "a") == ["big"]
    both = an_action("both", {"search": 1, "functions": 1})
    assert started(scheduler.handle(Submitted(both), 0.0)) == ["both"]
    scheduler.handle(Finished(ActionId("both")), 1.0)
    assert sum(called(scheduler, name, 2.0) != [] for name in "bcd") == 2


def test_idle_slots_stay_warm_for_a_while():
    pool = FunctionPool(FUNCTIONS, FunctionsSpec(ceiling=2, idle_s=5.0))
    pool.give_back(pool.take(1, 0.0).units, 1.0)
    assert [pool.warm(now) for now in (2.0, 6.0)] == [1, 0]
