"""A run while it goes, in lines: rewards, staleness, how long actions took, what is at work."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artangram.pipeline.exams import ExamRecord
    from artangram.pipeline.meter import ActionUsage
    from artangram.pipeline.metrics import StepRecord

MOST_KINDS = 4
"""Kinds of actions that one line has room for: those that took most of the time."""


def line_of(record: "StepRecord", steps: int) -> str:
    """A step in one line."""
    report = record.report
    tasks = " ".join(f"{task} {value:.2f}" for task, value in report.rewards.items())
    skipped = f"skipped: {report.why_skipped}  " if report.is_skipped else ""
    return (
        f"step {record.step}/{steps}  reward {report.reward:.3f} ({tasks})  {skipped}"
        f"stale {100 * report.stale_share:.0f} % (at most {report.max_staleness})  "
        f"waited {record.collect_s:.2f} s  trained {record.train_s:.2f} s"
    )


def exam_line(record: "ExamRecord") -> str:
    """An evaluation in one line."""
    found = record.found
    tasks = " ".join(f"{task} {value:.2f}" for task, value in found.by_task.items())
    failed = f", {found.failed} failed by infrastructure" if found.failed else ""
    best = "  the best so far" if record.is_best else ""
    return (
        f"evaluated step {record.step}: {found.success:.3f} ({tasks}) of {found.problems} held-out "
        f"problems{failed} in {record.took_s:.1f} s{best}"
    )


def acts_of(usage: "ActionUsage") -> str:
    """Mean ACT of the kinds that took most of the time; empty if nothing ran."""
    by_total = sorted(usage.kinds.items(), key=lambda one: -one[1].count * one[1].act_s)
    return ", ".join(
        f"{kind} {acts.act_s:.2f} s (waited {acts.wait_s:.2f})"
        for kind, acts in by_total[:MOST_KINDS]
    )


def busy_of(usage: "ActionUsage") -> str:
    """What was at work on average; of how much, where that is known."""
    return ", ".join(_busy(usage, name) for name in {**usage.capacity, **usage.busy})


def _busy(usage: "ActionUsage", name: str) -> str:
    share, amount = usage.share(name), usage.busy.get(name, 0.0)
    if share is None:
        return f"{name} {amount:.1f}"
    return f"{name} {100 * share:.0f} % of {usage.capacity[name]:.0f}"
