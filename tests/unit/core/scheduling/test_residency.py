"""Fences and evictions of the residency lane in the rarer turns of events."""

from gpu_support import FakeLaneContext, a_pool, a_service, a_ticket, check_books

from artangram.core.ids import ServiceId
from artangram.core.scheduling.lease import Devices
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.residency import ResidencyLane

ONE_EACH = {name: a_service(16_000, degrees=(1, 2)) for name in "abc"}


def test_a_service_that_somebody_waits_for_is_not_evicted_for_another():
    pool, context = a_pool(ONE_EACH, devices=2, memory_mb=20_000), FakeLaneContext()
    lane = ResidencyLane(pool, context)
    first = [a_ticket(0, "a", degrees=(1,)), a_ticket(1, "b", degrees=(1,))]
    for ticket in first:
        lane.push(ticket, 0.0)
    lane.dispatch(0.0)
    for ticket in first:
        lane.give_back(ticket, 2.0)
    patient = a_ticket(2, "a", now=2.0, work_s=500.0, degrees=(2,))
    quick = a_ticket(3, "c", now=2.0, work_s=0.1, degrees=(1,))
    for ticket in (patient, quick):
        lane.push(ticket, 2.0)
    lane.dispatch(2.0)
    assert context.names() == ["a0", "b1", "c3"]
    assert isinstance(quick.allocation, Devices)
    assert quick.allocation.evicted == ("b",)
    check_books(pool)


def restored_while(services: str, *, devices: int) -> list[Devices]:
    """What was restored while calls of one of `services` after the other came every second.

    Before, `a` and `b` are resident on a device each, which has room for one of them.
    """
    pool = a_pool({name: ONE_EACH[name] for name in "ab"}, devices=devices, memory_mb=20_000)
    lane = ResidencyLane(pool, FakeLaneContext())
    narrow = [a_ticket(0, "a", degrees=(1,)), a_ticket(1, "b", degrees=(1,))]
    for ticket in narrow:
        lane.push(ticket, 0.0)
    lane.dispatch(0.0)
    for ticket in narrow:
        lane.give_back(ticket, 2.0)
    places = []
    for seq in range(2, 80):
        again = a_ticket(seq, services[seq % len(services)], now=float(seq), degrees=(1, 2))
        lane.push(again, float(seq))
        lane.dispatch(float(seq))
        assert isinstance(again.allocation, Devices)
        places.append(again.allocation)
        lane.give_back(again, seq + 0.9)
        check_books(pool)
    return [place for place in places if place.restored]


def test_a_copy_changes_its_degree_once_enough_calls_are_likely_to_come():
    (wider,) = restored_while("a", devices=2)
    assert wider.degree == 2
    assert wider.evicted == ("a", "b")


def test_nobody_in_demand_is_evicted_for_another_degree():
    assert restored_while("ab", devices=2) == []


def test_a_copy_changes_its_degree_in_its_own_place_only():
    assert {place.first for place in restored_while("a", devices=4)} == {0}


def test_an_overdue_action_waits_for_its_copy_if_that_is_sooner_than_a_restore():
    services = {name: a_service(16_000, degrees=(1, 2)) for name in "ab"}
    pool, context = a_pool(services, devices=4, restore_mb_per_s=1_000.0), FakeLaneContext()
    lane = ResidencyLane(pool, context)
    on_copy = a_ticket(0, "a", work_s=2.0, degrees=(2,))
    beside = a_ticket(1, "b", work_s=1.0, degrees=(2,))
    overdue = a_ticket(2, "a", work_s=0.1)
    next_one = a_ticket(3, "b", degrees=(2,))
    for ticket in (on_copy, beside, overdue, next_one):
        lane.push(ticket, 0.0)
        lane.dispatch(0.0)
    lane.dispatch(1.0)
    lane.give_back(beside, 8.6)
    lane.dispatch(8.6)
    assert context.names() == ["a0", "b1", "b3"]
    lane.give_back(on_copy, 9.1)
    lane.dispatch(9.1)
    assert overdue.allocation == Devices(
        pool.resource, pool.nodes()[0].id, first=0, degree=2, service=ServiceId("a")
    )


def an_overdue_wide_one() -> tuple[ResidencyLane, FakeLaneContext, list[Ticket]]:
    """`a0` runs on one device of four; `b1`, which needs all of them, is overdue at 3 s."""
    pool, context = (
        a_pool({"a": a_service(degrees=(1,)), "b": a_service()}, devices=4),
        FakeLaneContext(),
    )
    lane = ResidencyLane(pool, context)
    tickets = [
        a_ticket(0, "a", work_s=100.0, degrees=(1,)),
        a_ticket(1, "b", work_s=0.1, degrees=(4,)),
    ]
    for ticket in tickets:
        lane.push(ticket, 0.0)
        lane.dispatch(0.0)
    lane.dispatch(3.0)
    assert context.names() == ["a0"]
    return lane, context, tickets


def test_an_overdue_action_gets_a_place_that_nobody_else_enters():
    lane, context, (first, _) = an_overdue_wide_one()
    lane.push(a_ticket(2, "a", now=3.0, degrees=(1,)), 3.0)
    lane.dispatch(3.0)
    assert context.names() == ["a0"]
    lane.give_back(first, 4.0)
    lane.dispatch(4.0)
    assert context.names() == ["a0", "b1"]


def test_one_with_an_earlier_key_that_comes_back_is_served_before():
    lane, context, (first, _) = an_overdue_wide_one()
    lane.push(a_ticket(2, "b", now=0.0, work_s=0.01, degrees=(4,)), 3.0)
    lane.dispatch(3.0)
    lane.give_back(first, 4.0)
    lane.dispatch(4.0)
    assert context.names() == ["a0", "b2"]


def test_a_place_on_a_lost_node_is_given_up():
    lane, context, _ = an_overdue_wide_one()
    (node,) = lane.pool.nodes()
    lane.node_lost(node.id)
    lane.dispatch(4.0)
    lane.node_joined(node.id)
    lane.dispatch(5.0)
    assert context.names() == ["a0", "b1"]
