"""Calls and slots: who starts when, and what people read about the pools."""

import pytest
from builders import (
    CPU,
    a_cpu,
    a_scheduler,
    a_waiting_ticket,
    allocation,
    an_action,
    leases,
    records,
    reported,
    started,
    stopped,
    wakes,
)
from gpu_support import FakeLaneContext, a_pool
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, NodeId, Resource
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.baselines.static import StaticLane
from artangram.core.scheduling.baselines.unmanaged import (
    BACKOFF_S,
    RETRIES,
    TIMEOUT_S,
    UnmanagedLane,
)
from artangram.core.scheduling.cluster import CallWindow, FunctionsSpec, QuotaSpec
from artangram.core.scheduling.events import Cancelled, ClockTicked, Finished, Submitted, Throttled
from artangram.core.scheduling.policies.counted import CountedLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.pools.buddy import Buddy
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.pools.quota import QuotaPool

SEARCH = Resource("search")
A, B = ActionId("a"), ActionId("b")


def a_call(name: str, units: int = 1, **fields: object) -> Submitted:
    return Submitted(an_action(name, {"search": units}, **fields))


class TestPaced:
    def test_calls_wait_for_the_window_and_are_woken_by_it(self):
        scheduler = a_scheduler(search=QuotaSpec(limit=2, window_s=10.0, overhead_s=0.5))
        decisions = scheduler.handle_all([a_call("a"), a_call("b"), a_call("c")], 0.0)
        assert (started(decisions), wakes(decisions)) == (["a", "b"], [10.0])
        assert leases(decisions)[0].prepare_s == 0.5
        assert started(scheduler.handle(Finished(A), 5.0)) == []
        assert started(scheduler.handle(ClockTicked(), 10.0)) == ["c"]

    def test_a_large_call_is_not_passed_by_small_ones(self):
        scheduler = a_scheduler(search=QuotaSpec(concurrency=2))
        assert started(scheduler.handle_all([a_call("a"), a_call("b", 2), a_call("c")], 0.0)) == [
            "a"
        ]
        assert started(scheduler.handle(Finished(A), 1.0)) == ["b"]

    def test_a_pause_is_kept(self):
        scheduler = a_scheduler(search=QuotaSpec(concurrency=2))
        scheduler.handle(Throttled(SEARCH, 9.0), 0.0)
        decisions = scheduler.handle(a_call("a"), 1.0)
        assert (started(decisions), wakes(decisions)) == ([], [9.0])
        assert started(scheduler.handle(ClockTicked(), 9.0)) == ["a"]

    def test_nothing_limits_an_api_without_limits(self):
        scheduler = a_scheduler(search=QuotaSpec())
        assert len(started(scheduler.handle_all([a_call(f"{n}") for n in range(99)], 0.0))) == 99

    def test_jobs_that_got_equally_much_go_by_who_came_first(self):
        scheduler = a_scheduler(search=QuotaSpec(concurrency=1))
        calls = [a_call("a"), a_call("b", job="x"), a_call("c", job="y")]
        assert started(scheduler.handle_all(calls, 0.0)) == ["a"]
        assert started(scheduler.handle(Finished(A), 1.0)) == ["b"]

    def test_a_job_whose_only_call_was_cancelled_is_not_waited_for(self):
        scheduler = a_scheduler(search=QuotaSpec(concurrency=1))
        scheduler.handle_all([a_call("a"), a_call("b", job="x"), a_call("c", job="y")], 0.0)
        scheduler.handle(Cancelled(B), 0.5)
        assert started(scheduler.handle(Finished(A), 1.0)) == ["c"]


class TestUnmanaged:
    def test_a_cancelled_client_does_not_try_again(self):
        scheduler = a_scheduler("unmanaged", search=QuotaSpec(concurrency=1))
        scheduler.handle_all([a_call("a"), a_call("b")], 0.0)
        scheduler.handle_all([Cancelled(B), Finished(A)], 0.5)
        assert started(scheduler.handle(ClockTicked(), BACKOFF_S)) == []

    def test_an_api_that_asks_for_a_pause_refuses_everybody(self):
        scheduler = a_scheduler("unmanaged", search=QuotaSpec(concurrency=2))
        scheduler.handle(Throttled(SEARCH, 0.5), 0.0)
        assert started(scheduler.handle(a_call("a"), 0.0)) == []
        assert started(scheduler.handle(ClockTicked(), BACKOFF_S)) == ["a"]

    def test_one_that_needs_a_core_as_well_waits_for_the_window(self):
        scheduler = a_scheduler("unmanaged", cpu=a_cpu(), search=QuotaSpec(limit=1, window_s=10.0))
        both = {"cpu": 1, "search": 1}
        scheduler.handle(Submitted(an_action("a", both)), 0.0)
        assert wakes(scheduler.handle(Submitted(an_action("b", both)), 1.0)) == [10.0]
        assert started(scheduler.handle(ClockTicked(), 10.0)) == ["b"]

    def test_a_call_of_two_apis_keeps_neither_from_others_while_one_refuses(self):
        one = QuotaSpec(limit=1, window_s=100.0)
        scheduler = a_scheduler("unmanaged", browse=one, search=one)
        scheduler.handle(a_call("a"), 0.0)
        scheduler.handle(Submitted(an_action("b", {"browse": 1, "search": 1})), 0.0)
        browsing = Submitted(an_action("c", {"browse": 1}))
        assert started(scheduler.handle(browsing, 0.5)) == ["c"]
        for at in (1.0, 3.0, 7.0):
            decisions = scheduler.handle(ClockTicked(), at)
        (record,) = records(decisions)
        assert record.reason == "refused 4 times, last by browse"

    def test_a_refused_client_tries_again_later_and_later_then_fails(self):
        scheduler = a_scheduler("unmanaged", search=QuotaSpec(concurrency=1))
        scheduler.handle(a_call("a"), 0.0)
        now, tries = 0.0, wakes(scheduler.handle(a_call("b"), 0.0))
        for number in range(RETRIES):
            now += BACKOFF_S * 2**number
            assert tries == [now]
            decisions = scheduler.handle(ClockTicked(), now)
            tries = wakes(decisions)
        (record,) = records(decisions)
        assert record.outcome is Outcome.INFRA_FAILED
        assert record.reason == "refused 4 times, last by search"

    def test_cores_are_never_said_to_have_refused_a_call(self):
        scheduler = a_scheduler("unmanaged", cpu=a_cpu(), search=QuotaSpec(concurrency=1))
        scheduler.handle(a_call("a"), 0.0)
        needs = {"cpu": 1, "search": {"min": 1, "max": 2}}
        scheduler.handle(Submitted(an_action("b", needs, elastic="search")), 0.0)
        for at in (1.0, 3.0, 7.0):
            decisions = scheduler.handle(ClockTicked(), at)
        (record,) = records(decisions)
        assert record.reason == "refused 4 times, last by search"

    def test_who_tries_at_the_right_moment_gets_through(self):
        scheduler = a_scheduler("unmanaged", search=QuotaSpec(concurrency=1, overhead_s=0.5))
        scheduler.handle_all([a_call("a"), a_call("b")], 0.0)
        scheduler.handle(Finished(A), 0.2)
        assert leases(scheduler.handle(a_call("c"), 0.3))[0].prepare_s == 0.5
        assert reported(scheduler.handle(ClockTicked(), 1.0)) == {}

    def test_a_client_hangs_up_on_a_call_that_is_not_answered(self):
        scheduler = a_scheduler("unmanaged", search=QuotaSpec(concurrency=1))
        scheduler.handle(a_call("a"), 0.0)
        scheduler.handle(a_call("b"), 1.0)
        scheduler.handle(Finished(A), 1.5)
        assert started(scheduler.handle(ClockTicked(), 2.0)) == ["b"]
        assert stopped(scheduler.handle(ClockTicked(), TIMEOUT_S)) == {}
        assert stopped(scheduler.handle(ClockTicked(), 1.0 + TIMEOUT_S)) == {"b": "expired"}
        ended = scheduler.handle(Finished(B, Outcome.CANCELLED), 1.0 + TIMEOUT_S)
        assert reported(ended) == {"b": "expired"}
        assert started(scheduler.handle(a_call("c"), 700.0)) == ["c"]

    def test_it_knows_how_many_wait(self):
        lane = UnmanagedLane(QuotaPool(SEARCH, QuotaSpec()), FakeLaneContext())
        ticket = a_waiting_ticket(1)
        lane.push(ticket, 0.0)
        assert lane.num_waiting() == 1
        lane.withdraw(ticket)
        assert lane.num_waiting() == 0


class TestSlots:
    def test_a_cold_slot_costs_a_start_and_a_warm_one_does_not(self):
        functions = FunctionsSpec(ceiling=1, cold_s=2.0, idle_s=10.0, overhead_s=0.5)
        scheduler = a_scheduler(functions=functions)
        costs = []
        for name, now in (("a", 0.0), ("b", 5.0), ("c", 30.0)):
            decisions = scheduler.handle(Submitted(an_action(name, {"functions": 1})), now)
            costs.append((leases(decisions)[0].prepare_s, allocation(decisions).cold))
            scheduler.handle(Finished(ActionId(name)), now + 1.0)
        assert costs == [(2.5, 1), (0.5, 0), (2.5, 1)]

    def test_it_knows_how_many_wait(self):
        pool = FunctionPool(Resource("f"), FunctionsSpec(ceiling=1))
        lane = CountedLane(pool, FakeLaneContext(), FairUsage({}))
        lane.push(a_waiting_ticket(1), 0.0)
        assert lane.num_waiting() == 1


def test_a_static_deployment_lends_no_devices():
    lane = StaticLane(a_pool(), FakeLaneContext())
    assert (lane.lends(1, 0.0), lane.overdue(0.0)) == (False, None)


def test_pools_and_tickets_read_well():
    quota = QuotaPool(SEARCH, QuotaSpec(limit=3))
    quota.take(2, 0.0)
    functions = FunctionPool(Resource("f"), FunctionsSpec(ceiling=3))
    functions.take(2, 0.0)
    functions.give_back(1, 0.0)
    node = CpuNode(CPU, NodeId("cpu-0"), a_cpu(cores=8))
    node.take(3)
    buddy = Buddy(4)
    buddy.take(0, 1)
    assert repr(quota) == "<QuotaPool search: 2 under way, 2 recent>"
    assert repr(functions) == "<FunctionPool f: 1 busy, 1 idle of 3>"
    assert repr(node) == "<CpuNode cpu-0: 5 of 8 cores free>"
    assert repr(buddy) == "<Buddy: 3 of 4 devices free in [(1, 1), (2, 2)]>"
    assert repr(a_waiting_ticket(7)) == "<Ticket a7: waiting, key 0.000>"


def test_the_books_refuse_what_they_never_gave():
    quota, functions = (
        QuotaPool(SEARCH, QuotaSpec()),
        FunctionPool(Resource("f"), FunctionsSpec(ceiling=3)),
    )
    node = CpuNode(CPU, NodeId("cpu-0"), a_cpu(cores=1))
    for wrong in (
        lambda: quota.give_back(1, 0.0),
        lambda: functions.give_back(1, 0.0),
        lambda: node.give_back([0]),
        lambda: node.take(3),
    ):
        with pytest.raises(AssertionError):
            wrong()


class TestSeveralWindows:
    """An API may have a limit for a minute and another one for a day."""

    SPEC = QuotaSpec(limit=2, window_s=10.0, windows=(CallWindow(limit=3, window_s=100.0),))

    def test_all_of_them_hold(self):
        scheduler = a_scheduler(search=self.SPEC)
        for name in "abcd":
            scheduler.handle(Submitted(an_action(name, {"search": 1})), 0.0)
        assert started(scheduler.handle(ClockTicked(), 10.0)) == ["c"]
        said = scheduler.explain("d", 10.0).hindrances[0]
        assert "the window moves on in 90.000 s" in said.starts_when
        assert started(scheduler.handle(ClockTicked(), 99.0)) == []
        assert started(scheduler.handle(ClockTicked(), 100.0)) == ["d"]

    def test_what_no_window_could_hold_is_refused(self):
        scheduler = a_scheduler(search=self.SPEC)
        out = scheduler.handle(Submitted(an_action("a", {"search": 3})), 0.0)
        assert reported(out) == {"a": "refused"}

    def test_another_window_counts_what_is_under_way(self):
        pool = QuotaPool(Resource("search"), QuotaSpec(limit=5, window_s=10.0))
        pool.take(2, 0.0)
        pool.reconfigure(structs.replace(self.SPEC, limit=5), 1.0)
        assert pool.available(1.0) == 1
        assert (pool.fits_at(1, 1.0), pool.fits_at(2, 1.0)) == (None, 101.0)
        assert repr(pool) == "<QuotaPool search: 2 under way, 2 recent and 2 recent>"
        pool.reconfigure(QuotaSpec(), 2.0)
        assert repr(pool) == "<QuotaPool search: 2 under way, no window>"

    @pytest.mark.parametrize("fields", [{"limit": 0, "window_s": 1.0}, {"limit": 1, "window_s": 0}])
    def test_a_window_allows_something(self, fields):
        with pytest.raises(BadInput, match="is not a limit"):
            CallWindow(**fields)
