"""Shares of tasks on classes: who belongs where, what it costs elsewhere, when that changes."""

import pytest
from msgspec import structs

from artangram.core.rollout.affinity import Auto, Router
from artangram.core.rollout.costs import (
    Candidate,
    Costs,
    Habits,
    Observed,
    Rates,
    RoutedRequest,
    Speeds,
    TokenWork,
)
from artangram.core.rollout.shares import ClassShares

RATES = {
    "compute": Rates(prefill_per_s=10_000, decode_per_s=50, alone_per_s=60),
    "bandwidth": Rates(prefill_per_s=1_000, decode_per_s=100, alone_per_s=120),
}
IDLE = TokenWork(0, 0)
BOTH = [
    Candidate(name="c", hardware="compute", outstanding=IDLE, turns=10),
    Candidate(name="b", hardware="bandwidth", outstanding=IDLE, turns=10),
]
CROWDED = [structs.replace(one, turns=500) for one in BOTH]
WORK = {"lake": TokenWork(4000, 50), "math": TokenWork(100, 2000)}


def a_request(task: str, *, turn: int = 0, prompt: int = 100) -> RoutedRequest:
    return RoutedRequest(task=task, prompt_tokens=prompt, most_tokens=10_000, turn=turn)


def a_book(work: dict[str, TokenWork] = WORK, *, margin: float = 0.02) -> ClassShares:
    habits = Habits()
    for task, one in work.items():
        habits.learn(Observed(task=task, hardware="compute", work=one))
    return ClassShares(Costs(Speeds(RATES), habits), margin=margin, look_every=32)


def saw(book: ClassShares, candidates: list[Candidate] = BOTH, **requests: int) -> None:
    for task, count in requests.items():
        for _ in range(count):
            book.saw(a_request(task), candidates)


def test_tasks_belong_where_all_turns_are_shortest_and_elsewhere_they_have_a_price():
    book = a_book()
    assert book.home("lake") is None
    saw(book, lake=12, math=4)
    assert book.of("lake")["compute"] > 0.8
    assert book.home("math") == "bandwidth"
    assert book.price_s("lake", "bandwidth") > book.price_s("lake", "compute") == 0.0
    assert book.price_s("unknown", "bandwidth") == 0.0
    assert book.plans == 1


def test_a_task_that_is_too_much_for_its_class_is_divided():
    book = a_book({"math": WORK["math"]})
    saw(book, CROWDED, math=16)
    shares = book.of("math")
    assert sum(shares.values()) == pytest.approx(1.0)
    assert min(shares["bandwidth"], shares["compute"]) > 0.3
    # Within its share it is free everywhere; a class with much more than that is not.
    assert book.price_s("math", "compute") == book.price_s("math", "bandwidth") == 0.0
    for _ in range(200):
        book.went("math", "bandwidth")
    assert book.price_s("math", "bandwidth") > 0.0


def test_one_class_or_no_history_needs_no_plan():
    alone, unknown = a_book(), a_book({})
    saw(alone, BOTH[:1], lake=16)
    saw(unknown, lake=16)
    assert (alone.plans, unknown.plans) == (0, 0)
    assert alone.price_s("lake", "compute") == 0.0


def test_the_plan_follows_the_mix_for_a_clear_gain_only():
    book, stubborn = a_book(), a_book(margin=0.9)
    for one in (book, stubborn):
        saw(one, CROWDED, lake=1, math=31)
        before = one.of("math")
        saw(one, CROWDED, lake=128)
        assert (one.of("math") != before) == (one is book)
    assert book.plans > 1 == stubborn.plans


def test_a_class_that_is_gone_and_a_task_that_is_new_need_another_plan():
    book = a_book()
    saw(book, lake=12, math=4)
    saw(book, [*BOTH[:1], Candidate(name="e", hardware="edge", outstanding=IDLE)], lake=16)
    assert "bandwidth" not in book.of("lake") | book.of("math")
    known = a_book({"lake": WORK["lake"]})
    saw(known, lake=16)
    known._costs.habits.learn(Observed(task="math", hardware="compute", work=WORK["math"]))
    saw(known, math=16)
    assert known.home("math") == "bandwidth"


def planned_router() -> Router:
    router = Router(Auto(look_every=32), rates=RATES)
    for task, work in WORK.items():
        router.learn(Observed(task=task, hardware="compute", work=work))
    for turn in range(60):
        router.choose(a_request("lake", turn=turn, prompt=4000), BOTH)
        if turn < 4:
            router.choose(a_request("math", turn=turn), BOTH)
    return router


def test_a_session_leaves_its_class_only_if_its_later_turns_may_cost_more():
    router = planned_router()
    assert router.home("lake") == "compute"
    price_s = router.shares.price_s("lake", "bandwidth")
    early, late = (a_request("lake", turn=turn, prompt=0) for turn in (0, 59))
    assert router.habits.turns_left(early) > 50 > 30 > router.habits.turns_left(late)
    here = Candidate(name="c", hardware="compute", outstanding=TokenWork(40 * price_s * 10_000, 0))
    stays = router.choose(early, [here, BOTH[1]])
    assert (stays.replica, stays.spilled_from) == ("c", "")
    leaves = router.choose(late, [here, BOTH[1]])
    assert (leaves.replica, leaves.spilled_from) == ("b", "compute")
    assert "the plan has it on compute" in leaves.explained


def test_a_choice_says_what_it_costs_and_what_is_read_again():
    router = planned_router()
    held = Candidate(
        name="x", hardware="compute", outstanding=TokenWork(1e6, 0), holds=4000, turns=1
    )
    choice = router.choose(a_request("lake", prompt=4000), [held, *BOTH])
    assert (choice.replica, choice.reread) == ("c", 4000)
    assert choice.explained.startswith("c costs ")
    assert "another class" in choice.explained
    assert "4000 tokens are read again" in choice.explained
    alone = router.choose(a_request("math"), BOTH[:1])
    assert "bandwidth has no replica" in alone.explained
    assert alone.next_s is None


def test_nothing_is_expected_of_sessions_of_an_unknown_task():
    assert Habits().turns_left(a_request("new")) == 0.0
