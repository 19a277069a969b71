"""APIs that limit tokens: taken when a call starts, settled when it ends."""

import pytest
from builders import a_cluster, a_cpu, an_action, leases, started

from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import CallWindow, QuotaSpec
from artangram.core.scheduling.decisions import WakeAt
from artangram.core.scheduling.events import ClockTicked, Finished, Reconfigured, Submitted
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.pools.quota import FIRST_TOKENS, MOST_KINDS, QuotaPool
from artangram.core.scheduling.scheduler import Scheduler

LLM = Resource("llm")
WINDOW_S = 60.0


def an_api(tokens: int, **fields: object) -> QuotaSpec:
    window = CallWindow(limit=tokens, window_s=WINDOW_S, unit="tokens")
    return QuotaSpec(windows=(window,), **fields)


def a_scheduler(tokens: int = 100, **fields: object) -> Scheduler:
    cluster = a_cluster(cpu=a_cpu(), llm=an_api(tokens, **fields))
    return Scheduler(cluster, policy("elastic"))


def call(scheduler: Scheduler, name: str, tokens: int | None, now: float = 0.0, **fields) -> list:
    needs = fields.pop("needs", {"llm": 1})
    return scheduler.handle(Submitted(an_action(name, needs, tokens=tokens, **fields)), now)


def ends(scheduler: Scheduler, name: str, tokens: int | None, now: float, **fields) -> list:
    return scheduler.handle(Finished(name, tokens=tokens, **fields), now)


def test_calls_start_while_the_window_has_tokens_for_them():
    scheduler = a_scheduler()
    assert started(call(scheduler, "a", 60)) == ["a"]
    assert started(call(scheduler, "b", 40)) == ["b"]
    assert [d.at for d in call(scheduler, "c", 10) if isinstance(d, WakeAt)] == [WINDOW_S]
    assert started(scheduler.handle(ClockTicked(), WINDOW_S)) == ["c"]


def test_what_a_call_did_not_use_is_given_back_when_it_ends():
    scheduler = a_scheduler()
    call(scheduler, "a", 100)
    call(scheduler, "b", 80)
    assert started(ends(scheduler, "a", 20, 5.0)) == ["b"]


def test_what_a_call_used_beyond_is_charged_when_it_ends():
    scheduler = a_scheduler()
    call(scheduler, "a", 10)
    ends(scheduler, "a", 90, 5.0)
    assert started(call(scheduler, "b", 20, 6.0)) == []
    assert started(scheduler.handle(ClockTicked(), WINDOW_S)) == ["b"]
    assert started(call(scheduler, "c", 20, WINDOW_S)) == []
    assert started(scheduler.handle(ClockTicked(), WINDOW_S + 5.0)) == ["c"]


def test_a_call_that_outlives_its_window_gives_nothing_back():
    scheduler = a_scheduler()
    call(scheduler, "a", 100)
    assert started(call(scheduler, "b", 100, WINDOW_S)) == ["b"]
    ends(scheduler, "a", 0, WINDOW_S + 1.0)
    assert started(call(scheduler, "c", 1, WINDOW_S + 1.0)) == []


def test_an_end_that_tells_no_tokens_leaves_what_was_taken():
    scheduler = a_scheduler()
    call(scheduler, "a", 100)
    ends(scheduler, "a", None, 1.0)
    assert started(call(scheduler, "b", 1, 1.0)) == []


def test_a_call_that_was_turned_away_used_nothing():
    scheduler = a_scheduler()
    call(scheduler, "a", 100)
    assert started(
        scheduler.handle(Finished("a", Outcome.INFRA_FAILED, turned_away=True), 1.0)
    ) == ["a"]


def test_without_a_statement_it_takes_what_calls_of_its_kind_use():
    scheduler = a_scheduler(10_000)
    (first,) = leases(call(scheduler, "a", None))
    assert first.allocations[0].tokens == FIRST_TOKENS
    ends(scheduler, "a", 300, 1.0)
    (second,) = leases(call(scheduler, "b", None, 1.0))
    (other,) = leases(call(scheduler, "c", None, 1.0, kind="other"))
    assert (second.allocations[0].tokens, other.allocations[0].tokens) == (300, FIRST_TOKENS)
    ends(scheduler, "b", 800, 2.0)
    (third,) = leases(call(scheduler, "d", None, 2.0))
    assert third.allocations[0].tokens == 400


def test_what_takes_more_than_a_window_has_waits_for_an_empty_one():
    scheduler = a_scheduler()
    call(scheduler, "a", 1)
    assert started(call(scheduler, "b", 500)) == []
    assert started(scheduler.handle(ClockTicked(), WINDOW_S)) == ["b"]


def test_explain_says_how_many_tokens_are_left():
    scheduler = a_scheduler()
    call(scheduler, "a", 90)
    call(scheduler, "b", 30)
    (said,) = scheduler.explain("b", 1.0).hindrances
    assert said.because == "it takes 30 tokens, 10 of llm are left and 0 actions go first"
    assert said.starts_when == "the window moves on in 59.000 s; 0 actions go first"


def test_both_windows_hold():
    scheduler = a_scheduler(limit=2, window_s=10.0)
    for name in "abc":
        call(scheduler, name, 40)
    (said,) = scheduler.explain("c", 1.0).hindrances
    assert said.because == "it takes 40 tokens, 20 of llm are left and 0 actions go first"
    assert started(scheduler.handle(ClockTicked(), 10.0)) == []
    assert started(ends(scheduler, "a", 0, 11.0)) == ["c"]


def test_calls_beside_cores_count_too():
    scheduler = a_scheduler()
    needs = {"llm": 1, "cpu": 1}
    call(scheduler, "a", 100, needs=needs)
    assert started(call(scheduler, "b", 50, needs=needs)) == []
    (said,) = scheduler.explain("b", 0.0).hindrances
    assert said.resource == "llm"
    assert started(ends(scheduler, "a", 10, 1.0)) == ["b"]
    assert started(call(scheduler, "c", 51, 2.0, needs=needs)) == []
    assert started(scheduler.handle(ClockTicked(), WINDOW_S)) == []
    assert started(scheduler.handle(ClockTicked(), WINDOW_S + 1.0)) == ["c"]


def test_jobs_share_tokens_and_not_calls():
    scheduler = a_scheduler(1000, concurrency=1)
    call(scheduler, "first", 1, job="x")
    for number in range(3):
        call(scheduler, f"x{number}", 100, job="x")
        call(scheduler, f"y{number}", 1, job="y")
    order, name = [], "first"
    for now in range(1, 7):
        (name,) = started(ends(scheduler, name, None, float(now)))
        order.append(name)
    assert order.index("y2") < order.index("x1")


def test_what_was_used_and_not_stated_is_charged_to_its_job():
    scheduler = a_scheduler(10_000, concurrency=1)
    call(scheduler, "x0", 1, job="x")
    for number in range(1, 3):
        call(scheduler, f"x{number}", 1, job="x")
    for number in range(3):
        call(scheduler, f"y{number}", 10, job="y")
    order, name = [], "x0"
    for now in range(1, 6):
        (name,) = started(ends(scheduler, name, 500 if name[0] == "x" else 10, float(now)))
        order.append(name)
    assert order.index("y2") < order.index("x2")


def test_limits_of_tokens_change_while_calls_run():
    scheduler = a_scheduler()
    call(scheduler, "a", 100)
    call(scheduler, "b", 50)
    assert started(scheduler.handle(Reconfigured(pools={LLM: an_api(200)}), 1.0)) == ["b"]
    scheduler.handle(Reconfigured(pools={LLM: QuotaSpec(limit=5)}), 2.0)
    assert started(call(scheduler, "c", 1000, 2.0)) == ["c"]
    ends(scheduler, "a", 10, 3.0)


def test_kinds_are_bounded():
    pool = QuotaPool(LLM, an_api(10))
    for number in range(MOST_KINDS + 1):
        pool.learn(f"k{number}", 7)
    assert pool.tokens_of("k0", None) == FIRST_TOKENS
    assert pool.tokens_of(f"k{MOST_KINDS}", None) == 7


def test_wrong_numbers_are_refused():
    with pytest.raises(BadInput, match="-1 is not a number of tokens"):
        call(a_scheduler(), "a", -1)
    with pytest.raises(BadInput, match="0 tokens in 60 s is not a limit"):
        an_api(0)
