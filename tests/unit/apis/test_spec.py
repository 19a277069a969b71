"""Describing an API."""

import pytest
from msgspec.structs import replace

from artangram.apis import ApiSpec, checked
from artangram.apis.spec import filled, secrets_of
from artangram.core.errors import BadInput
from artangram.core.scheduling.cluster import QuotaSpec

SEARCH = ApiSpec(base_url="https://api.example.org/v1", limit=600, window_s=60, concurrency=8)


def test_the_pool_counts_over_a_little_more_than_the_window() -> None:
    assert SEARCH.quota() == QuotaSpec(limit=600, concurrency=8, window_s=60.4)
    assert replace(SEARCH, window_s=2).quota().window_s == pytest.approx(2.02)
    assert replace(SEARCH, window_s=2).spread_s == pytest.approx(0.1)
    assert replace(SEARCH, delivery_s=0).quota().window_s == 60


@pytest.mark.parametrize("window_s", [0.1, 1, 10, 60, 86_400])
def test_the_guard_costs_less_than_one_part_in_twenty(window_s: float) -> None:
    spec = replace(SEARCH, window_s=window_s)
    assert window_s / (window_s + spec.spread_s) > 0.95
    assert window_s < spec.quota().window_s <= window_s + spec.spread_s


def test_secrets_come_from_the_environment() -> None:
    spec = replace(SEARCH, headers={"authorization": "Bearer ${KEY}"}, params={"id": "${ID}"})
    assert secrets_of(spec) == {"KEY", "ID"}
    assert filled(spec.headers, {"KEY": "k"}) == {"authorization": "Bearer k"}
    assert checked("search", spec, {"KEY": "k", "ID": "i"}) is spec


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"base_url": "api.example.org"}, r"search.base_url: .*write https://host/path"),
        ({"base_url": "ftp://host"}, "not an HTTP address"),
        ({"base_url": "https://"}, "not an HTTP address"),
        ({"base_url": "https://host:port/"}, "not an HTTP address"),
        ({"base_url": "https://[::1"}, "not an HTTP address"),
        ({"limit": 0}, r"search.limit: 0 allows nothing"),
        ({"concurrency": -1}, "more than 0"),
        ({"window_s": 0.0}, "more than 0"),
        ({"headers": {"x": "${KEY}"}}, r"\$\{KEY\} is not set; set KEY in the environment"),
    ],
)
def test_what_could_never_be_called_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        checked("search", replace(SEARCH, **changes), {})
