"""Metrics stay small whatever callers name."""

from msgspec import structs

from artangram.core.ids import ActionId, JobId
from artangram.core.scheduling.action import ActionRecord, Outcome
from artangram.orchestrator.prometheus import MOST_KINDS, OTHER, Exposition
from artangram.orchestrator.records import ActionResult, ClusterStatus

IDLE = ClusterStatus(
    policy="elastic",
    queued=0,
    running=0,
    trajectories=0,
    ended=0,
    uptime_s=0.0,
    is_draining=False,
    nodes=(),
)


def ended(kind: str) -> ActionResult:
    record = ActionRecord(
        action_id=ActionId("a"),
        job=JobId("default"),
        task="",
        kind=kind,
        trajectory=None,
        outcome=Outcome.SUCCEEDED,
        reason="",
        submitted_at=0.0,
        started_at=1.0,
        began_at=1.0,
        ended_at=2.0,
        attempts=1,
        units=1,
    )
    return ActionResult(record=record)


def test_many_kinds_and_long_ones_share_one_row() -> None:
    metrics = Exposition(lambda: IDLE)
    for number in range(3 * MOST_KINDS):
        metrics.count(ended(f"{number}" + "x" * 100_000))
    for number in range(3 * MOST_KINDS):
        metrics.count(ended(f"kind-{number}"))
    text = metrics.text()
    assert len(text) < 1_000_000
    assert b'kind="kind-0"' in text
    row = f'artangram_actions_ended_total{{kind="{OTHER}",outcome="succeeded"}}'
    (other,) = [line for line in text.decode().splitlines() if line.startswith(row)]
    assert float(other.split()[-1]) == 5 * MOST_KINDS


def test_warnings_are_counted() -> None:
    now = structs.replace(IDLE, warnings=("9 MB are left for the journal",))
    assert b"artangram_warnings 1.0" in Exposition(lambda: now).text()
