"""When a call is late, and when a second copy of it may start."""

import pytest

from artangram.functions.hedging import (
    COPIES_PER_CALL,
    LEAST_SEEN,
    MOST_SAVED,
    MOST_SEEN,
    QUANTILE,
    Budget,
    call_durations,
)


def late_s(*durations_s: float) -> float | None:
    durations = call_durations()
    for duration_s in durations_s:
        durations.add(duration_s)
    return durations.quantile(QUANTILE)


def test_nothing_is_late_while_little_is_known() -> None:
    assert late_s(*[1.0] * (LEAST_SEEN - 1)) is None
    assert late_s(*[1.0] * LEAST_SEEN) == 1.0


def test_late_is_what_one_in_twenty_exceeds() -> None:
    assert late_s(*range(100)) == 95


def test_two_in_a_hundred_that_are_slow_do_not_make_it_patient() -> None:
    assert late_s(*[0.01] * 98, *[5.0] * 2) == 0.01


def test_what_was_long_ago_is_forgotten() -> None:
    assert late_s(*[9.0] * MOST_SEEN, *[1.0] * MOST_SEEN) == 1.0


def test_a_tenth_of_all_calls_may_have_a_copy() -> None:
    budget = Budget()
    while budget.spend():
        pass
    copies = 0
    for _ in range(1000):
        budget.earn()
        copies += budget.spend()
    assert copies == pytest.approx(1000 * COPIES_PER_CALL, abs=1)


def test_what_is_saved_has_a_bound() -> None:
    budget = Budget()
    for _ in range(1000):
        budget.earn()
    copies = 0
    while budget.spend():
        copies += 1
    assert copies == MOST_SAVED
