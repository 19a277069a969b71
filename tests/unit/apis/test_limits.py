"""What headers say of limits."""

import pytest

from artangram.apis.limits import exhausted_s, reset_s, retry_after_s

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
        ({"ratelimit-remaining": "1", "ratelimit-reset": "4"}, None),
        ({"ratelimit": '"default";r=3;t=6'}, None),
        ({"ratelimit-remaining": "0"}, None),
        ({"ratelimit-reset": "4"}, None),
        ({"retry-after": "9"}, None),
    ],
)
def test_when_nothing_is_left(headers: dict[str, str], wait_s: float | None) -> None:
    assert exhausted_s(headers, NOW) == wait_s


def test_a_limit_with_a_policy_is_not_mistaken_for_what_remains() -> None:
    headers = {"ratelimit-limit": "100, 100;w=60", "ratelimit-policy": "100;w=60"}
    assert (reset_s(headers, NOW), exhausted_s(headers, NOW)) == (None, None)
