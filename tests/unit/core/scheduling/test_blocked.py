"""Who lacks something on the side, or may not start because somebody else has a claim."""

from dataclasses import replace

import pytest
from builders import CPU, a_cluster, a_cpu, a_waiting_ticket, an_action, policy, started

from artangram.core.ids import ActionId, NodeId, Resource
from artangram.core.scheduling.blocked import Blocked
from artangram.core.scheduling.cluster import FunctionsSpec, QuotaSpec
from artangram.core.scheduling.events import Cancelled, Finished, NodeJoined, NodeLost, Submitted
from artangram.core.scheduling.policies.base import Lane, LaneContext, Ticket
from artangram.core.scheduling.policies.counted import CountedLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.ranking import NodeUse
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.scheduler import Scheduler


def a_lane() -> CountedLane:
    pool = FunctionPool(Resource("functions"), FunctionsSpec(ceiling=1))
    return CountedLane(pool, None, FairUsage({}))


ONE, OTHER = a_lane(), a_lane()


def tickets(count: int) -> list[Ticket]:
    return [a_waiting_ticket(seq) for seq in range(count)]


def test_the_earliest_goes_first():
    parked, (early, late) = Blocked(), tickets(2)
    parked.add(late, ONE)
    parked.add(early, ONE)
    assert (parked.first(ONE), parked.lanes()) == (early, [ONE])
    assert (parked.num_before(early, ONE), parked.num_before(late, ONE)) == (0, 1)
    parked.withdraw(early)
    parked.withdraw(late)
    assert (parked.first(ONE), parked.lanes(), parked.firsts()) == (None, [], [])
    assert (early.blocked_at, parked.num_before(late, ONE)) == (None, 0)


def test_who_is_barred_goes_when_nobody_before_it_has_a_claim():
    parked, (first, claimant, last) = Blocked(), tickets(3)
    parked.bar(last, ONE)
    parked.bar(first, ONE)
    assert parked.unbar(ONE, claimant) == [first]
    assert parked.unbar(ONE, None) == [last]
    assert (parked.unbar(ONE, None), parked.firsts()) == ([], [])


def test_each_lane_has_a_first():
    parked, (early, late, barred) = Blocked(), tickets(3)
    parked.add(late, ONE)
    parked.add(early, ONE)
    parked.bar(barred, OTHER)
    assert parked.firsts() == [early, barred]
    parked.withdraw(barred)
    assert parked.firsts() == [early]


def test_one_that_comes_back_after_it_left_is_there_once():
    parked, (only,) = Blocked(), tickets(1)
    for _ in range(2):
        parked.bar(only, ONE)
        parked.withdraw(only)
    parked.bar(only, ONE)
    assert parked.unbar(ONE, None) == [only]
    assert parked.firsts() == []


def test_those_who_left_are_forgotten_even_if_the_first_stays_for_ever():
    parked, (first, left, barred, last) = Blocked(), tickets(4)
    parked.add(first, ONE)
    parked.bar(barred, ONE)
    parked.add(left, ONE)
    parked.withdraw(left)
    assert (parked.firsts(), parked.num_before(last, ONE)) == ([first, barred], 1)


CLUSTER = a_cluster(cpu=a_cpu(cores=8), api=QuotaSpec(), judge=QuotaSpec(concurrency=1))


def call(name: str, *apis: str) -> Submitted:
    return Submitted(an_action(name, dict.fromkeys(apis, 1)))


def test_a_claim_goes_to_the_next_before_anybody_passes():
    """`b` and `d` lack a call of `judge`; who comes after them waits even for a free `api`."""
    scheduler = Scheduler(CLUSTER, policy("elastic"))
    assert started(scheduler.handle(call("a", "api", "judge"), 0.0)) == ["a"]
    events = [call("b", "api", "judge"), call("c", "api"), call("d", "api", "judge")]
    assert started(scheduler.handle_all([*events, call("e", "api")], 1.0)) == []
    assert started(scheduler.handle(Finished(ActionId("a")), 2.0)) == ["b", "c"]
    assert started(scheduler.handle(Cancelled(ActionId("d")), 3.0)) == ["e"]


def test_who_is_barred_claims_what_it_has_on_the_side():
    """`c` may not start before `b`, nor `d`, which came later, before `c`."""
    cluster = a_cluster(api=QuotaSpec(), judge=QuotaSpec(concurrency=1), search=QuotaSpec())
    scheduler = Scheduler(cluster, policy("elastic"))
    events = [call("a", "judge"), call("b", "api", "judge"), call("c", "api", "search")]
    assert started(scheduler.handle_all(events, 0.0)) == ["a"]
    assert started(scheduler.handle(call("d", "search"), 1.0)) == []
    assert started(scheduler.handle(Finished(ActionId("a")), 2.0)) == ["b", "c", "d"]


def test_who_is_not_overdue_claims_nothing():
    scheduler = Scheduler(CLUSTER, policy("elastic"))
    patient = Submitted(an_action("c", {"cpu": 8, "judge": 1}, work_s=100.0))
    events = [call("a", "judge"), call("b", "api", "judge"), patient]
    assert started(scheduler.handle_all(events, 0.0)) == ["a"]
    assert started(scheduler.handle(Finished(ActionId("a")), 1.0)) == ["b"]
    assert started(scheduler.handle(call("d", "cpu"), 2.0)) == ["d"]


def test_a_start_does_not_stir_up_all_who_lack_the_same():
    """Each is turned back once and let in once, however many others start before it."""
    pushed: list[str] = []
    chosen = policy("elastic")

    def watched(node: CpuNode, context: LaneContext, use: NodeUse) -> Lane:
        lane = chosen.cpu(node, context, use)
        push = lane.push

        def counted(ticket: Ticket, now: float) -> None:
            pushed.append(str(ticket.action.id))
            push(ticket, now)

        lane.push = counted
        return lane

    scheduler = Scheduler(CLUSTER, replace(chosen, cpu=watched))
    running = []
    for n in range(50):
        action = an_action(f"a{n}", {"cpu": 1, "judge": 1}, work_s=0.0)
        running += started(scheduler.handle(Submitted(action), float(n)))
    for n in range(50):
        assert running[-1] == f"a{n}"
        running += started(scheduler.handle(Finished(ActionId(f"a{n}")), 100.0 + n))
    assert len(pushed) <= 2 * 50


@pytest.mark.parametrize(("count", "nodes"), [(30, 1), (51, 2), (58, 2), (65, 3), (128, 3)])
def test_all_who_were_moved_from_lost_nodes_are_let_in_one_by_one(count: int, nodes: int):
    cluster = a_cluster(cpu=a_cpu(nodes), judge=QuotaSpec(concurrency=1))
    scheduler = Scheduler(cluster, policy("elastic"))
    waiting = [Submitted(an_action(f"a{n}", {"cpu": 1, "judge": 1})) for n in range(count)]
    (runs,) = started(scheduler.handle_all([call("first", "judge"), *waiting], 0.0))
    for n in range(2 * nodes):
        node = NodeId(f"cpu-{n % nodes}")
        assert started(scheduler.handle(NodeLost(CPU, node), 1.0)) == []
        assert started(scheduler.handle(NodeJoined(CPU, node), 1.0)) == []
    for n in range(count):
        assert started(scheduler.handle(Finished(ActionId(runs)), 2.0)) == [f"a{n}"]
        runs = f"a{n}"
