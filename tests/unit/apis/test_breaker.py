"""Leaving an API alone, and asking again."""

import random

import pytest

from artangram.apis.breaker import Breaker, Way


def a_breaker(**fields: object) -> Breaker:
    settings = {"patience": 3, "rest_s": 10.0, "most_rest_s": 35.0, "rng": random.Random(1)}
    return Breaker(**{**settings, **fields})  # type: ignore[arg-type]


def shut(breaker: Breaker, *, now: float = 0.0) -> float:
    """Until when it is shut after as many failures as it bears."""
    for _ in range(2):
        assert breaker.failed(now) is None
    until = breaker.failed(now)
    assert until is not None
    return until


def test_a_few_failures_change_nothing() -> None:
    breaker = a_breaker()
    breaker.failed(0)
    breaker.failed(0)
    assert breaker.way(0) is Way.FREE


def test_failures_with_a_success_between_them_are_not_in_a_row() -> None:
    breaker = a_breaker()
    for _ in range(10):
        assert breaker.failed(0) is None
        breaker.succeeded()
    assert breaker.way(0) is Way.FREE


def test_failures_in_a_row_shut_it_for_a_while() -> None:
    breaker = a_breaker()
    until = shut(breaker)
    assert 5 <= until <= 10
    assert breaker.way(until - 0.001) is Way.SHUT


def test_then_one_call_asks_and_the_others_wait() -> None:
    breaker = a_breaker()
    until = shut(breaker)
    assert [breaker.way(until) for _ in range(3)] == [Way.PROBE, Way.WAIT, Way.WAIT]
    breaker.succeeded()
    assert breaker.way(until) is Way.FREE


def test_a_failed_probe_shuts_it_for_twice_as_long_up_to_a_bound() -> None:
    breaker = a_breaker()
    now, rests = shut(breaker), []
    for _ in range(6):
        assert breaker.way(now) is Way.PROBE
        until = breaker.failed(now)
        assert until is not None
        rests.append(until - now)
        now = until
    assert 10 <= rests[0] <= 20
    assert all(17.5 <= rest <= 35 for rest in rests[1:])
    assert len(set(rests)) == len(rests)  # Everybody at the same time would be a crowd.


def test_a_success_makes_the_next_rest_short_again() -> None:
    breaker = a_breaker()
    for _ in range(3):
        breaker.succeeded()
        assert shut(breaker) <= 10


def test_a_probe_that_was_given_up_leaves_room_for_another() -> None:
    breaker = a_breaker()
    until = shut(breaker)
    assert breaker.way(until) is Way.PROBE
    breaker.forget_probe()
    assert breaker.way(until) is Way.PROBE


def test_a_refusal_shuts_it_at_once_for_as_long_as_the_api_says() -> None:
    breaker = a_breaker()
    assert breaker.refused(100, 7) == 107
    assert breaker.way(106) is Way.SHUT
    assert breaker.way(107) is Way.PROBE


def test_a_shorter_refusal_does_not_take_back_a_longer_one() -> None:
    breaker = a_breaker()
    breaker.refused(100, 7)
    assert breaker.refused(101, 1) == 107


def test_a_refusal_without_a_time_is_met_with_patience_of_our_own() -> None:
    breaker = a_breaker()
    assert breaker.refused(100, None) == pytest.approx(107.5, abs=2.5)
