"""What was measured last keeps what was promised, or this fails until it is measured anew."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

RESULTS = Path(__file__).parents[4] / "benchmarks" / "results"


def figures(name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((RESULTS / name).read_bytes())["figures"]
    return found


def gains(part: str) -> dict[str, float]:
    return {row["case"]: row["gain"] for row in figures(f"rollout_{part}.json")["gains"]}


def test_slow_environments_cost_as_much_less_as_in_the_paper():
    found = list(gains("trajectories").values())
    assert found == sorted(found)
    assert found[0] >= 1.23
    assert found[-1] >= 2.27


def test_spare_launches_gain_as_much_as_in_the_paper():
    assert max(gains("redundancy").values()) >= 1.62


def test_new_weights_stop_replicas_for_no_more_than_in_the_paper():
    rows = figures("rollout_weights.json")["weights"]
    assert {row["model"] for row in rows} == {"qwen3-8b", "qwen3-14b", "qwen3-32b"}
    for row in rows:
        assert row["share"] <= row["paper_share"]


@pytest.mark.parametrize("concurrency", [1, 64, 512])
def test_the_gateway_is_as_much_faster_than_the_proxy_as_was_said(concurrency: int):
    (ratio,) = (
        one for one in figures("gateway.json")["ratios"] if one["concurrency"] == concurrency
    )
    assert ratio["throughput"] >= 5.0
    assert ratio["share_of_added_p50"] <= 1 / 3
    assert ratio["share_of_added_p95"] <= 1 / 3


def test_a_thousand_sessions_talk_at_once():
    assert figures("gateway.json")["crowd"]["most_at_once"] >= 1000
