"""What headers say of limits."""

import pytest

from artangram.apis.limits import exhausted_s, is_refusal, quotas, retry_after_s

NOW = 1_900_000_000.0


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 17 Mar 2030 17:46:50 GMT"}, 10.0),
        ({"retry-after": "Sun, 17 Mar 2030 17:46:30 GMT"}, 0.0),
        ({"ratelimit-reset": "7"}, 7.0),
        ({"x-ratelimit-reset": "1900000009"}, 9.0),
        ({"x-ratelimit-reset": "1900000009500"}, 9.5),
        ({"x-ratelimit-reset": "1899999999"}, 0.0),
        ({"x-ratelimit-reset-after": "1.25", "x-ratelimit-reset": "99"}, 1.25),
        ({"x-ratelimit-reset-requests": "6m0.5s"}, 360.5),
        ({"x-ratelimit-reset-requests": "20ms"}, 0.02),
        ({"ratelimit": "limit=100, remaining=0, reset=5"}, 5.0),
        ({"ratelimit": '"default";r=0;t=6'}, 6.0),
        ({"retry-after": "3", "ratelimit-reset": "7"}, 3.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Sunday, 17-Mar-30 17:46:50 GMT"}, 10.0),
        ({"retry-after": "Sun Mar 17 17:46:50 2030"}, 10.0),
        ({"x-rate-limit-reset": "1900000009"}, 9.0),
        ({"anthropic-ratelimit-tokens-reset": "2030-03-17T17:46:50Z"}, 10.0),
        ({"anthropic-ratelimit-tokens-reset": "2030-03-17T18:46:50+01:00"}, 10.0),
        # Which of two limits it was is known when one is used up.
        ({"x-ratelimit-reset-requests": "9s", "x-ratelimit-reset-tokens": "2s"}, 2.0),
        ({"ratelimit": '"burst";r=5;t=2, "day";r=0;t=3600'}, 3600.0),
    ],
)
def test_how_long_to_stay_away(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers, NOW) == (None if wait_s is None else pytest.approx(wait_s))


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"ratelimit-remaining": "0", "ratelimit-reset": "4"}, 4.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1900000004"}, 4.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "4s"}, 4.0),
        ({"ratelimit": "limit=100, remaining=0, reset=5"}, 5.0),
        ({"ratelimit": '"default";r=0;t=6'}, 6.0),
        ({"ratelimit": '"burst";r=0;t=2, "day";r=70;t=3600'}, 2.0),
        ({"ratelimit": '"burst";r=0;t=2, "day";r=0;t=3600'}, 3600.0),
        ({"ratelimit": '"r=0;t=9";r=5;t=2'}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"ratelimit-remaining": "1", "ratelimit-reset": "4"}, None),
        ({"ratelimit": '"default";r=3;t=6'}, None),
        ({"ratelimit-remaining": "0"}, None),
        ({"ratelimit-reset": "4"}, None),
        ({"retry-after": "9"}, None),
    ],
)
def test_when_nothing_is_left(headers: dict[str, str], wait_s: float | None) -> None:
    assert exhausted_s(headers, NOW) == wait_s


def test_one_of_many_limits_that_is_used_up_is_enough() -> None:
    """As OpenAI and Anthropic answer: requests and tokens are counted apart."""
    openai = {
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    anthropic = {
        "anthropic-ratelimit-requests-remaining": "999",
        "anthropic-ratelimit-requests-reset": "2030-03-17T17:46:41Z",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2030-03-17T17:46:55Z",
    }
    assert (exhausted_s(openai, NOW), exhausted_s(anthropic, NOW)) == (360.0, 15.0)
    assert len(quotas(anthropic, NOW)) == 2


def test_points_in_time_are_on_the_clock_of_the_api() -> None:
    """One that is an hour ahead still means what it says."""
    there = {"date": "Sun, 17 Mar 2030 18:46:40 GMT"}
    assert retry_after_s({**there, "retry-after": "Sun, 17 Mar 2030 18:46:50 GMT"}, NOW) == 10
    assert retry_after_s({**there, "x-ratelimit-reset": "1900003607"}, NOW) == 7
    assert retry_after_s({**there, "retry-after": "7"}, NOW) == 7


@pytest.mark.parametrize(
    ("status", "headers", "is_one"),
    [
        (429, {}, True),
        (503, {}, True),
        (403, {}, False),
        (403, {"x-ratelimit-remaining": "12", "x-ratelimit-reset": "1900000004"}, False),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1900000004"}, True),
        (403, {"retry-after": "60"}, True),
        (404, {"x-ratelimit-remaining": "0"}, False),
        (200, {"x-ratelimit-remaining": "0"}, False),
    ],
)
def test_what_is_a_refusal(status: int, headers: dict[str, str], is_one: bool) -> None:
    assert is_refusal(status, headers) is is_one


def test_a_limit_with_a_policy_is_not_mistaken_for_what_remains() -> None:
    headers = {
        "ratelimit-limit": "100, 100;w=60",
        "ratelimit-policy": '"default";q=100;w=60',
        "x-ratelimit-limit": "60",
        "x-ratelimit-used": "60",
    }
    assert quotas(headers, NOW) == []
    assert retry_after_s(headers, NOW) is None
