"""Action completion times by kind, from what a state directory recorded."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, quantiles

from msgspec import Struct

from artangram.core.scheduling.action import ActionRecord
from artangram.core.scheduling.decisions import Report
from artangram.observe.recording import recorded


class KindAct(Struct, frozen=True, kw_only=True):
    """Action completion time of one kind, in seconds: ACT = wait + overhead + run."""

    kind: str
    count: int
    mean_s: float
    p99_s: float
    wait_s: float
    run_s: float


def acts_by_kind(state_dir: Path) -> list[KindAct]:
    """Every kind that has ended, by name. Raises `BadInput` or `JournalDamaged`."""
    by_kind: dict[str, list[ActionRecord]] = {}
    for record in _records(state_dir):
        by_kind.setdefault(record.kind, []).append(record)
    return [_act(kind, found) for kind, found in sorted(by_kind.items())]


def _records(state_dir: Path) -> Iterator[ActionRecord]:
    for entry in recorded(state_dir):
        for decision in entry.decisions:
            if isinstance(decision, Report):
                yield decision.record


def _act(kind: str, found: list[ActionRecord]) -> KindAct:
    acts = [record.act_s for record in found]
    return KindAct(
        kind=kind,
        count=len(found),
        mean_s=fmean(acts),
        p99_s=quantiles(acts, n=100)[98] if len(acts) > 1 else acts[0],
        wait_s=fmean(record.wait_s for record in found),
        run_s=fmean(record.run_s for record in found),
    )
