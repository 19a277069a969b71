"""Every property catches a bug: each test plants one and sees the property fail.

A plant replaces one method by a version that is wrong in a way somebody could have written.
"""

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis.stateful import run_state_machine_as_test
from scheduler_machine import machine
from scheduler_world import examples

from artangram.core.scheduling import lanes
from artangram.core.scheduling.action import ActionRecord, Outcome
from artangram.core.scheduling.baselines.fcfs import FcfsLane
from artangram.core.scheduling.baselines.tangram import UnitDivision
from artangram.core.scheduling.cpupools import CpuPools
from artangram.core.scheduling.deadlines import Deadlines
from artangram.core.scheduling.decisions import Resize
from artangram.core.scheduling.distribution import KnownDuration
from artangram.core.scheduling.estimates import Learning
from artangram.core.scheduling.lanes import Lanes
from artangram.core.scheduling.lease import Devices
from artangram.core.scheduling.placement import Placement
from artangram.core.scheduling.policies import candidates, gpulane, ranking
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.candidates import Candidates
from artangram.core.scheduling.policies.counted import CountedLane
from artangram.core.scheduling.policies.elastic import ElasticLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.width import Widths
from artangram.core.scheduling.pools.buddy import Buddy
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.pools.quota import QuotaPool
from artangram.core.scheduling.scheduler import Scheduler
from artangram.core.scheduling.wakes import Wakes
from property import test_policies, test_pools

Method = Callable[..., object]
Plant = Callable[[pytest.MonkeyPatch], None]


def instead(owner: object, name: str, wrong: Callable[[Method], Method]) -> Plant:
    """Replace a method by what `wrong` makes of the right one."""
    return lambda patch: patch.setattr(owner, name, wrong(getattr(owner, name)))


def nothing(real: Method) -> Method:
    return lambda *args, **fields: None


def only_when_odd(real: Method) -> Method:
    """Forget to dispatch an even number of waiting tickets."""
    return lambda lane, now: real(lane, now) if lane.num_waiting() % 2 else None


def giving_a_core_back(real: Method) -> Method:
    def take(node: CpuNode, units: int, **fields: object) -> object:
        cores = real(node, units, **fields)
        node.give_back(cores[:1])
        return cores

    return take


def granting_before_shrinking(real: Method) -> Method:
    def handle_all(*args: object) -> list[object]:
        return sorted(real(*args), key=lambda decision: isinstance(decision, Resize))

    return handle_all


def twice(real: Method) -> Method:
    def report(*args: object, **fields: object) -> None:
        real(*args, **fields)
        real(*args, **fields)

    return report


def unless_cancelled(real: Method) -> Method:
    def report(context: Scheduler, record: ActionRecord) -> None:
        if record.outcome is not Outcome.CANCELLED:
            real(context, record)

    return report


def guessing_in_one_twin(real: Method) -> Method:
    """Every second scheduler believes that what came last is shortest."""
    numbers = count()

    def expect(learning: Learning, ticket: Ticket) -> None:
        real(learning, ticket)
        if not hasattr(learning, "number"):
            learning.number = next(numbers)
        if learning.number % 2:
            ticket.belief = KnownDuration(100.0 / ticket.seq)

    return expect


def at_the_head(real: Method) -> Method:
    def push(self: FcfsLane, ticket: Ticket, now: float) -> None:
        real(self, ticket, now)
        self._line.move_to_end(ticket, last=False)

    return push


def joining_again(real: Method) -> Method:
    def node_joined(self: Lanes, resource: str, node: str, *args: object) -> None:
        if resource in self.placement and self.has_node(resource, node):
            self.placement[resource].add(node)
        real(self, resource, node, *args)

    return node_joined


def keeping_the_attempt(real: Method) -> Method:
    def repeat(self: object, ticket: object, now: float) -> None:
        ticket.attempt -= 1
        real(self, ticket, now)

    return repeat


def forgetting(real: Method) -> Method:
    def preempt(lane: ElasticLane, ticket: Ticket, now: float) -> None:
        real(lane, ticket, now)
        lane._candidates_like(ticket).remove(ticket)

    return preempt


def by_rank_alone(real: Method) -> Method:
    return lambda those, job, now: those._head(job.by_rank)


def shifted(resource: str, node: str, first: int, *args: object, **fields: object) -> Devices:
    return Devices(resource, node, first + 1, *args, **fields)


PLANTS: dict[str, tuple[str, Plant, str]] = {
    "a core is given twice": (
        "fcfs",
        instead(CpuNode, "take", giving_a_core_back),
        "is a.*'s, not a|got a core twice|got back more",
    ),
    "cores are granted before somebody shrank": (
        "elastic",
        instead(Scheduler, "handle_all", granting_before_shrinking),
        "is a.*'s, not a",
    ),
    "memory is not held": (
        "fcfs",
        instead(CpuNode, "hold_memory", lambda real: lambda node, t, mb: real(node, t, 0)),
        "is over-committed",
    ),
    "a pod reserves nothing": (
        "pods:1",
        instead(Placement, "_settle", nothing),
        "is full|is over-committed|lives on",
    ),
    "an action is reported twice": ("fcfs", instead(Scheduler, "_report", twice), "twice|KeyError"),
    "cancelled actions are not reported": (
        "fcfs",
        instead(Scheduler, "_report", unless_cancelled),
        "a1|a2|a3|a4|a5|a6|a7|a8|a9",
    ),
    "the window forgets too early": (
        "fcfs",
        instead(QuotaPool, "_forget", lambda real: lambda pool, now: real(pool, now + 1.0)),
        "calls of|fits and waits",
    ),
    "one call too many is under way": (
        "fcfs",
        instead(QuotaPool, "available", lambda real: lambda pool, now: real(pool, now) + 1),
        "calls of|is closed until",
    ),
    "a throttled API is called": ("fcfs", instead(QuotaPool, "close", nothing), "is closed until"),
    "one slot too many is started": (
        "fcfs",
        instead(FunctionPool, "fits", lambda real: lambda pool, n, now: real(pool, n - 1, now)),
        "above its ceiling|empty",  # A call that no node has a slot for.
    ),
    "a chunk is not aligned": (
        "elastic",
        lambda patch: patch.setattr(gpulane, "Devices", shifted),
        "is not aligned|is used twice|not on the node",
    ),
    "devices are given twice": ("fcfs", instead(Buddy, "take", nothing), "is used twice|got back"),
    "decisions depend on more than the events": (
        "elastic",
        instead(Learning, "expect", guessing_in_one_twin),
        "twins disagree",
    ),
    "an elastic action gets less than its least amount": (
        "elastic",
        instead(ElasticLane, "_sizes", lambda real: lambda lane: [1] * len(real(lane))),
        "is not what it needs|cores=",
    ),
    "a fitting head of cores is left waiting": (
        "fcfs",
        instead(FcfsLane, "dispatch", only_when_odd),
        "fits and waits",
    ),
    "a fitting head of calls is left waiting": (
        "elastic",
        instead(CountedLane, "dispatch", only_when_odd),
        "fits and waits",
    ),
    "left-over cores stay idle": (
        "elastic",
        instead(
            ElasticLane,
            "_sizes",
            lambda real: lambda lane: [t.form.amounts[0] for t in lane._running.elastic],
        ),
        "cores are idle",
    ),
    "a preempted action is forgotten": (
        "elastic",
        instead(ElasticLane, "_preempt", forgetting),
        "was preempted|never ended|not in list",
    ),
    "rigid actions wait for the end of elastic ones": (
        "elastic",
        instead(
            ElasticLane,
            "_admit",
            lambda real: lambda lane, now: None if len(lane._running) else real(lane, now),
        ),
        "could start on|passed the overdue|was preempted",
    ),
    "an overdue action is passed by loans": (
        "elastic",
        instead(ElasticLane, "overdue", nothing),
        "was lent cores, passed the overdue",
    ),
    "an overdue action is passed": (
        "elastic",
        instead(Candidates, "_first_of", by_rank_alone),
        "passed the overdue",
    ),
    "the line is served from its end": (
        "fcfs",
        instead(FcfsLane, "push", at_the_head),
        "which came first",
    ),
    "nobody says why an action waits": (
        "elastic",
        lambda patch: patch.setattr(
            lanes, "explanation", lambda t, found, real=lanes.explanation: real(t, [])
        ),
        "waits, but it can start",
    ),
    "nobody asks to be woken": (
        "elastic",
        instead(Wakes, "ask", nothing),
        "nothing will wake it|fits and waits",
    ),
    "a call that ended still counts": (
        "fcfs",
        instead(QuotaPool, "give_back", nothing),
        "nothing will wake it|Explanation",
    ),
    "who lacks a second resource is forgotten": (
        "elastic",
        instead(Lanes, "_unblock", nothing),
        "nothing will wake it",
    ),
    "who lacks memory is forgotten": (
        "elastic",
        instead(CpuPools, "place_waiting", nothing),
        "nothing will wake it|waits|could start",
    ),
    "a node that joins again is taken for empty": (
        "fcfs",
        instead(Lanes, "node_joined", joining_again),
        "is a.*'s, not a|over-committed|got back more|cpu-[01]|'t[0-9]+'",
    ),
    "memory is never given back": (
        "fcfs",
        instead(CpuNode, "give_back_memory", nothing),
        "nothing runs|Explanation|'t",
    ),
    "a core is lost at every end": (
        "fcfs",
        instead(CpuNode, "give_back", lambda real: lambda node, cores: real(node, cores[1:])),
        "nothing runs|Explanation|fits and waits|said to be free",
    ),
    "deadlines are ignored": (
        "fcfs",
        instead(Deadlines, "take_due", lambda real: lambda *args: []),
        "after its deadline|wants to be woken",
    ),
    "nothing is repeated": (
        "fcfs",
        instead(Scheduler, "_may_repeat", lambda real: lambda *args, **fields: False),
        "was not repeated",
    ),
    "a repeated action keeps its attempt": (
        "fcfs",
        instead(Scheduler, "_repeat", keeping_the_attempt),
        "repeats attempt",
    ),
    "an action of a trajectory runs on another node": (
        "fcfs",
        instead(Placement, "_settle", nothing),
        "lives on|over-committed|is let go with",
    ),
}


@pytest.mark.parametrize("bug", PLANTS)
def test_the_machine_catches(bug, monkeypatch):
    name, plant, complaint = PLANTS[bug]
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ValueError), match=complaint):
        # It ends with the first find. What is drawn depends on which modules are there.
        run_state_machine_as_test(machine(name), settings=examples(3000, is_hunt=True))


def wide_open(real: Method) -> Method:
    return lambda pool, units, now: True


def the_first_domain(real: Method) -> Method:
    return lambda node, count, near: max(node._domains, key=len)


def widest(real: Method) -> Method:
    return lambda widths, price: widths.most


def all_alike(real: Method) -> Method:
    return lambda division, count: [t.form.amounts[0] for t in division._candidates[:count]]


def without_shares(real: Method) -> Method:
    def charge(served: FairUsage, ticket: Ticket, area: float) -> None:
        served._work[ticket.job] = served.of(ticket.job) + area

    return charge


POOL_PLANTS: dict[str, tuple[Method, Plant]] = {
    "cores come from any domain": (
        test_pools.test_cores_are_free_or_held_once_and_stay_in_their_domain,
        instead(CpuNode, "_best_domain", the_first_domain),
    ),
    "a core is given twice": (
        test_pools.test_cores_are_free_or_held_once_and_stay_in_their_domain,
        instead(CpuNode, "take", giving_a_core_back),
    ),
    "memory is not held": (
        test_pools.test_memory_is_held_by_trajectories_until_they_are_gone,
        instead(CpuNode, "hold_memory", lambda real: lambda node, t, mb: real(node, t, 0)),
    ),
    "the window forgets too early": (
        test_pools.test_a_quota_lets_in_exactly_what_every_window_allows,
        instead(QuotaPool, "_forget", lambda real: lambda pool, now: real(pool, now + 1.0)),
    ),
    "every call is let in": (
        test_pools.test_a_quota_lets_in_exactly_what_every_window_allows,
        instead(QuotaPool, "fits", wide_open),
    ),
    "slots stay warm for ever": (
        test_pools.test_slots_are_warm_for_a_while_and_never_above_the_ceiling,
        instead(FunctionPool, "warm", lambda real: lambda pool, now: real(pool, -1e9)),
    ),
    "everybody is as wide as can be": (
        test_policies.test_the_best_width_is_the_cheapest_of_all,
        instead(Widths, "best", widest),
    ),
    "everybody gets the least": (
        test_policies.test_the_division_of_units_is_the_best_for_every_prefix,
        instead(UnitDivision, "sizes", all_alike),
    ),
}


@pytest.mark.parametrize("bug", POOL_PLANTS)
def test_the_oracle_catches(bug, monkeypatch):
    prove, plant = POOL_PLANTS[bug]
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        prove()


def test_the_count_of_starts_catches_forgotten_shares(monkeypatch):
    instead(FairUsage, "charge", without_shares)(monkeypatch)
    with pytest.raises(AssertionError, match="are the rich's"):
        test_policies.test_jobs_that_flood_are_served_in_proportion_to_their_shares(name="paced")


def test_the_newcomer_catches_a_queue_without_jobs(monkeypatch):
    monkeypatch.setattr(candidates, "goes_first", lambda use, a, b, now: a.seq < b.seq)
    with pytest.raises((AssertionError, ValueError)):
        test_policies.test_a_newcomer_is_not_stuck_behind_a_flood(name="elastic")


def test_the_overload_catches_an_order_that_ignores_virtual_deadlines(monkeypatch):
    instead(Candidates, "_first_of", by_rank_alone)(monkeypatch)
    with pytest.raises(AssertionError, match="passed the overdue"):
        test_policies.test_nobody_starves_under_overload(name="elastic", penalty=0.0)


def test_the_hour_catches_slack_without_an_end(monkeypatch):
    monkeypatch.setattr(ranking, "SLACK_CAP_S", 1e9)
    with pytest.raises(AssertionError):
        test_policies.test_long_work_is_passed_for_an_hour_at_most(name="elastic")
