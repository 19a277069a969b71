"""What each GPU lane starts, where, and why not."""

import pytest
from gpu_support import FakeLaneContext, a_pool, a_service, a_ticket, check_books, play

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, ServiceId
from artangram.core.scheduling.baselines.gpufcfs import GpuFcfsLane
from artangram.core.scheduling.baselines.gputangram import (
    DeviceDivision,
    GpuTangramLane,
    fits,
    split,
)
from artangram.core.scheduling.baselines.loadpercall import LoadPerCallLane
from artangram.core.scheduling.baselines.static import StaticLane
from artangram.core.scheduling.lease import Devices
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.gpulane import GpuLane
from artangram.core.scheduling.policies.residency import ResidencyLane
from artangram.core.scheduling.pools.gpu import BARE, GpuPool

EVERY_LANE = [ResidencyLane, GpuFcfsLane, GpuTangramLane, StaticLane, LoadPerCallLane]
NODE = NodeId("gpu-0")


def submit(lane: GpuLane, *tickets: Ticket, now: float = 0.0) -> None:
    for ticket in tickets:
        lane.push(ticket, now)
    lane.dispatch(now)


def where(ticket: Ticket) -> Devices:
    assert isinstance(ticket.allocation, Devices)
    return ticket.allocation


def end(lane: GpuLane, ticket: Ticket, now: float) -> None:
    lane.give_back(ticket, now)
    lane.dispatch(now)


@pytest.mark.parametrize("lane_type", EVERY_LANE)
class TestEveryLane:
    def test_everybody_ends_and_the_books_balance(self, lane_type):
        pool, context = a_pool(nodes=2), FakeLaneContext()
        lane = lane_type(pool, context)
        tickets = [a_ticket(n, "ab"[n % 2], now=0.1 * n) for n in range(40)]
        done = play(lane, context, tickets, after=lambda now: check_books(pool))
        assert len(done) == 40
        assert pool.free == 16
        assert lane.num_waiting() == 0

    def test_a_withdrawn_ticket_never_starts(self, lane_type):
        pool, context = a_pool(devices=4), FakeLaneContext()
        lane = lane_type(pool, context)
        tickets = [a_ticket(n, degrees=(4,)) for n in range(3)]
        submit(lane, *tickets)
        lane.withdraw(tickets[1])
        end(lane, tickets[0], now=5.0)
        assert context.names() == ["a0", "a2"]
        assert lane.num_waiting() == 0

    def test_who_lacks_another_resource_holds_nobody_up(self, lane_type):
        pool, context = a_pool(devices=4), FakeLaneContext()
        context.short_of_sides = {0}
        lane = lane_type(pool, context)
        submit(lane, *(a_ticket(n, degrees=(4,)) for n in range(2)))
        assert context.names() == ["a1"]
        assert lane.num_waiting() == 0

    def test_a_lost_node_is_forgotten_and_comes_back_empty(self, lane_type):
        pool, context = a_pool(nodes=1), FakeLaneContext()
        lane = lane_type(pool, context)
        first, second = a_ticket(0), a_ticket(1)
        submit(lane, first)
        lane.node_lost(NODE)
        lane.node_lost(NODE)
        submit(lane, second, now=1.0)
        assert context.names() == ["a0"]
        lane.node_joined(NODE)
        lane.give_back(first, now=2.0)
        lane.dispatch(2.0)
        assert context.names() == ["a0", "a1"]
        check_books(pool)

    def test_a_lost_service_is_not_used_again(self, lane_type):
        pool, context = a_pool(), FakeLaneContext()
        lane = lane_type(pool, context)
        first, second = a_ticket(0), a_ticket(1)
        submit(lane, first)
        at = where(first)
        lane.service_lost(at.node, first=at.first, degree=at.degree, service=at.service)
        lane.give_back(first, now=2.0)
        submit(lane, second, now=2.0)
        assert second.began_at > 2.0
        check_books(pool)

    def test_the_hindrance_tells_how_many_go_first(self, lane_type):
        pool, context = a_pool(devices=4), FakeLaneContext()
        lane = lane_type(pool, context)
        tickets = [a_ticket(n, degrees=(4,)) for n in range(3)]
        submit(lane, *tickets)
        hindrance = lane.hindrance(tickets[2], now=0.0)
        assert (hindrance.needed, hindrance.free, hindrance.ahead) == (4, 0, 1)
        reason = "is busy" if lane_type is StaticLane else "4 devices"
        assert reason in lane.hindrance(tickets[1], now=0.0).because

    def test_dispatch_costs_are_part_of_preparing(self, lane_type):
        pool, context = a_pool(overhead_s=0.25), FakeLaneContext()
        lane = lane_type(pool, context)
        first, second = a_ticket(0), a_ticket(1)
        submit(lane, first)
        end(lane, first, now=9.0)
        submit(lane, second, now=10.0)
        is_loading = isinstance(lane, LoadPerCallLane)
        assert (second.began_at > 10.25) is is_loading
        assert second.began_at >= 10.25


@pytest.mark.parametrize("lane_type", [ResidencyLane, GpuFcfsLane, GpuTangramLane])
def test_bare_devices_are_lent_and_come_back(lane_type):
    pool, context = a_pool(devices=4), FakeLaneContext()
    lane = lane_type(pool, context)
    borrower = a_ticket(0)
    assert lane.lends(3, now=0.0)
    loan = lane.lend(borrower, 3, now=0.0)
    assert isinstance(loan, Devices)
    assert (loan.degree, loan.service) == (4, BARE)
    assert not lane.lends(1, now=0.0)
    lane.take_back(borrower, loan, now=1.0)
    assert lane.lends(4, now=1.0)
    check_books(pool)


class TestResidencyLane:
    def test_an_idle_copy_is_used_again_without_a_restore(self):
        pool, context = a_pool(), FakeLaneContext()
        lane = ResidencyLane(pool, context)
        first, second = a_ticket(0), a_ticket(1)
        submit(lane, first)
        end(lane, first, now=9.0)
        submit(lane, second, now=10.0)
        assert where(first).restored
        assert not where(second).restored
        assert second.began_at == 10.0

    def test_alone_it_runs_wide_and_in_a_crowd_narrow(self):
        alone, crowd = FakeLaneContext(), FakeLaneContext()
        submit(ResidencyLane(a_pool(), alone), a_ticket(0, work_s=20.0))
        submit(ResidencyLane(a_pool(), crowd), *(a_ticket(n, work_s=20.0) for n in range(40)))
        assert where(alone.started[0]).degree == 8
        assert {where(t).degree for t in crowd.started} == {1}

    def test_it_holds_for_a_copy_that_is_soon_free(self):
        services = {"a": a_service(60_000, degrees=(4,))}
        pool, context = a_pool(services, restore_mb_per_s=1_000.0), FakeLaneContext()
        lane = ResidencyLane(pool, context)
        first, second = (a_ticket(n, degrees=(4,), now=30.0 * n) for n in range(2))
        submit(lane, first)
        submit(lane, second, now=15.0)
        assert pool.fits(4)
        assert context.names() == ["a0"]
        assert "busy" in lane.hindrance(second, now=15.0).because
        end(lane, first, now=16.0)
        assert not where(second).restored

    def test_a_hold_ends_when_the_copy_is_late(self):
        services = {"a": a_service(60_000, degrees=(4,))}
        pool, context = a_pool(services, restore_mb_per_s=1_000.0), FakeLaneContext()
        lane = ResidencyLane(pool, context)
        submit(lane, a_ticket(0, degrees=(4,)))
        submit(lane, a_ticket(1, degrees=(4,), now=15.0), now=15.0)
        assert lane.wake_at is not None
        lane.dispatch(lane.wake_at)
        assert context.names() == ["a0", "a1"]
        assert where(context.started[1]).restored

    def test_a_crowd_is_worth_another_copy(self):
        services = {"a": a_service(16_000, degrees=(4,))}
        pool, context = a_pool(services), FakeLaneContext()
        submit(ResidencyLane(pool, context), *(a_ticket(n, degrees=(4,)) for n in range(9)))
        assert [where(t).first for t in context.started] == [0, 4]

    def test_it_joins_the_batch_of_a_resident_service(self):
        services = {"a": a_service(60_000, degrees=(8,), batch=3)}
        pool, context = a_pool(services), FakeLaneContext()
        submit(ResidencyLane(pool, context), *(a_ticket(n, degrees=(8,)) for n in range(5)))
        assert context.names() == ["a0", "a1", "a2"]
        assert [where(t).restored for t in context.started] == [True, False, False]
        assert len({t.began_at for t in context.started}) == 1

    def test_it_evicts_what_nobody_asks_for(self):
        services = {name: a_service(70_000, degrees=(1,)) for name in "abc"}
        pool, context = a_pool(services, devices=2), FakeLaneContext()
        lane = ResidencyLane(pool, context)
        for seq, (service, now) in enumerate([("a", 0.0), ("b", 0.0), ("b", 100.0), ("b", 110.0)]):
            ticket = a_ticket(seq, service, now=now, degrees=(1,))
            submit(lane, ticket, now=now)
            end(lane, ticket, now=now + 9.0)
        last = a_ticket(9, "c", now=120.0, degrees=(1,))
        submit(lane, last, now=120.0)
        assert where(last).evicted == (ServiceId("a"),)

    def test_a_wide_action_past_its_key_gets_a_chunk_fenced_off(self):
        services = {"a": a_service(1, degrees=(1,)), "wide": a_service(1, degrees=(8,))}
        pool, context = a_pool(services), FakeLaneContext()
        lane = ResidencyLane(pool, context)
        wide = a_ticket(0, "wide", now=1.0, degrees=(8,), work_s=2.0)
        narrow = [a_ticket(n, now=0.2 * n, degrees=(1,), work_s=3.0) for n in range(1, 999)]
        done = play(lane, context, [wide, *narrow])
        started = next(start for name, start, _ in done if name == "wide0")
        assert wide.key <= started <= wide.key + 3.5

    def test_among_equals_the_best_fit_is_taken(self):
        pool, context = a_pool({"a": a_service(1, degrees=(1,))}), FakeLaneContext()
        submit(ResidencyLane(pool, context), *(a_ticket(n, degrees=(1,)) for n in range(2)))
        assert sorted(where(t).first for t in context.started) == [0, 1]


class TestStaticLane:
    def test_devices_are_split_in_order_of_name(self):
        pool = a_pool({name: a_service() for name in "cab"}, nodes=2)
        StaticLane(pool, FakeLaneContext())
        places = {
            str(s): [(r.node, r.first, r.degree) for r in pool.residents(s)]
            for s in pool.services()
        }
        assert places == {
            "a": [("gpu-0", 0, 4)],
            "b": [("gpu-0", 4, 4)],
            "c": [("gpu-1", 0, 4)],
        }

    def test_deployments_are_loaded_at_the_beginning(self):
        context = FakeLaneContext()
        submit(StaticLane(a_pool(), context), a_ticket(0))
        assert context.started[0].began_at == 0.0
        assert not where(context.started[0]).restored

    def test_replicas_are_dealt_in_rounds(self):
        pool = a_pool({name: a_service() for name in "abc"}, nodes=2)
        StaticLane(pool, FakeLaneContext(), replicas=2)
        assert [len(pool.residents(s)) for s in pool.services()] == [2, 1, 1]

    def test_a_service_without_devices_is_refused(self):
        lane = StaticLane(a_pool({name: a_service() for name in "abc"}), FakeLaneContext())
        lane.check(a_ticket(0, "b"))
        with pytest.raises(BadInput, match="'c' has no static deployment: gpu is too small"):
            lane.check(a_ticket(1, "c"))

    def test_a_deployment_that_died_busy_is_placed_again_once_its_devices_are_free(self):
        pool, context = a_pool({"a": a_service()}, devices=4), FakeLaneContext()
        lane = StaticLane(pool, context)
        first, second = a_ticket(0, "a"), a_ticket(1, "a")
        submit(lane, first)
        lane.service_lost(NODE, first=0, degree=4, service=ServiceId("a"))
        submit(lane, second)
        assert context.names() == ["a0"]
        end(lane, first, now=1.0)
        assert context.names() == ["a0", "a1"]

    def test_it_never_uses_the_devices_of_another_service(self):
        pool, context = a_pool(), FakeLaneContext()
        submit(StaticLane(pool, context), *(a_ticket(n, "a") for n in range(3)))
        assert context.names() == ["a0"]
        assert pool.free == 4

    def test_the_degree_is_the_largest_feasible_up_to_four(self):
        services = {"two": a_service(degrees=(1, 2)), "wide": a_service(degrees=(8,))}
        pool = a_pool(services, nodes=2)
        StaticLane(pool, FakeLaneContext())
        assert [pool.residents(ServiceId(s))[0].degree for s in services] == [2, 8]

    def test_batches_are_honoured(self):
        pool, context = a_pool({"a": a_service(batch=2)}), FakeLaneContext()
        submit(StaticLane(pool, context), *(a_ticket(n) for n in range(3)))
        assert context.names() == ["a0", "a1"]


class TestFcfsLane:
    def test_the_first_of_the_line_blocks_all_others(self):
        pool, context = a_pool(devices=4), FakeLaneContext()
        lane = GpuFcfsLane(pool, context)
        sizes = [(2,), (4,), (1,)]
        submit(lane, *(a_ticket(n, degrees=degrees) for n, degrees in enumerate(sizes)))
        assert context.names() == ["a0"]

    def test_everybody_gets_the_least_or_the_fixed_degree(self):
        least, fixed = FakeLaneContext(), FakeLaneContext()
        submit(GpuFcfsLane(a_pool(), least), a_ticket(0))
        submit(GpuFcfsLane(a_pool(), fixed, degree=4), a_ticket(0), a_ticket(1, degrees=(8,)))
        assert where(least.started[0]).degree == 1
        assert where(fixed.started[0]).degree == 4

    def test_the_resident_used_longest_ago_is_evicted(self):
        services = {name: a_service(70_000, degrees=(1,)) for name in "abc"}
        pool, context = a_pool(services, devices=2), FakeLaneContext()
        lane = GpuFcfsLane(pool, context)
        first, second, third = (a_ticket(n, s, degrees=(1,)) for n, s in enumerate("abc"))
        submit(lane, first, second)
        end(lane, second, now=1.0)
        end(lane, first, now=2.0)
        submit(lane, third, now=3.0)
        assert where(third).evicted == (ServiceId("b"),)


class TestTangramLane:
    def test_few_actions_run_wide_and_many_narrow(self):
        few, many = FakeLaneContext(), FakeLaneContext()
        submit(GpuTangramLane(a_pool(), few), a_ticket(0, work_s=20.0))
        submit(GpuTangramLane(a_pool(), many), *(a_ticket(n, work_s=20.0) for n in range(8)))
        assert [where(t).degree for t in few.started] == [8]
        assert [where(t).degree for t in many.started] == [1] * 6 + [2]

    def test_restores_are_not_part_of_the_decision(self):
        services = {"a": a_service(70_000)}
        pool, context = a_pool(services, restore_mb_per_s=1.0), FakeLaneContext()
        lane = GpuTangramLane(pool, context)
        first, second = a_ticket(0, degrees=(4,)), a_ticket(1, now=1.0)
        submit(lane, first)
        end(lane, first, now=1.0)
        submit(lane, second, now=1.0)
        assert where(second).degree == 8

    def test_a_chunk_is_cut_from_the_smallest_block_that_holds_it(self):
        assert split((0, 0, 0, 1), 1) == (1, 1, 1, 0)
        assert split((1, 0, 0, 1), 1) == (0, 0, 0, 1)
        assert split((1, 1, 1, 0), 2) == (1, 0, 1, 0)

    def test_a_chunk_is_never_assembled_from_different_blocks(self):
        assert not fits((0, 0, 2, 0), 8)
        division = DeviceDivision((0, 0, 2, 0))
        division.add((4, 8), [10.0, 1.0])
        assert division.sizes(1) == [4]

    def test_the_division_is_the_best_there_is(self):
        division = DeviceDivision((0, 0, 0, 1))
        division.add((1, 2, 4, 8), [8.0, 4.0, 2.0, 1.0])
        division.add((1, 2, 4, 8), [40.0, 20.0, 10.0, 5.0])
        assert division.sizes(1) == [8]
        assert division.sizes(2) == [4, 4]


class TestLoadPerCallLane:
    def test_every_call_loads_and_leaves_nothing(self):
        pool, context = a_pool(), FakeLaneContext()
        lane = LoadPerCallLane(pool, context)
        play(lane, context, [a_ticket(n, now=float(n)) for n in range(5)])
        assert all(where(t).restored for t in context.started)
        assert pool.nodes()[0].residents == []

    def test_a_node_with_a_host_copy_is_preferred(self):
        services = {"a": a_service(60_000), "b": a_service(60_000)}
        pool, context = a_pool(services, nodes=2, host_memory_mb=60_000), FakeLaneContext()
        lane = LoadPerCallLane(pool, context)
        submit(lane, *(a_ticket(n, "b", now=0.0) for n in range(2)))
        assert {where(t).node for t in context.started} == {NODE}
        assert context.started[0].began_at > context.started[1].began_at


def test_pool_and_lane_have_reprs_for_people():
    pool: GpuPool = a_pool()
    assert repr(pool) == "<GpuPool gpu: 8 of 8 devices free, 0 resident>"
