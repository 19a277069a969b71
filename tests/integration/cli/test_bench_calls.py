"""The bench verbs of calls run whole, as small as they can; how fast they were is not tested."""

import json
import subprocess
import sys
from typing import Any

VERB = "from artangram.cli import main; main()"


def figures(*argv: str) -> dict[str, Any]:
    """What a verb measured, run in a process of its own: it may ask for priority."""
    ran = subprocess.run(
        [sys.executable, "-c", VERB, "bench", *argv, "--json", "-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)["figures"]
    return found


def test_functions_answer_a_burst_hedge_and_lose_nothing() -> None:
    found = figures("functions", "--calls", "20", "--waves", "2")
    burst, hedging, killing = found["burst"], found["hedging"], found["killing"]
    assert burst["calls"] == 20
    assert 1 <= burst["cold_starts"] <= burst["calls"]
    assert burst["most_workers"] <= found["ceiling"]
    assert len(hedging["plain_ms"]) == len(hedging["hedged_ms"]) > 0
    assert hedging["copies_won"] <= hedging["copies"]
    assert (killing["calls"], killing["lost"]) == (10, 0)


def test_a_quota_is_used_by_many_processes_and_shared_with_a_rival() -> None:
    found = figures("quota", "--calls", "16", "--clients", "2", "--limit", "8", "--window", "0.5")
    alone, shared = found["alone"], found["shared"]
    assert (alone["calls"], alone["answered"]) == (16, 16)
    assert 0.0 < alone["share"] <= 1.0
    assert shared["answered"] == shared["calls"]
    assert shared["rival_taken"] > 0
