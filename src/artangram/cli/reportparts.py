"""Parts that several reports have: tables of action completion times, and tables as text."""

from collections.abc import Sequence

from artangram.cli.page import Section
from artangram.observe.acts import KindAct


def act_section(kinds: Sequence[KindAct], of: str = "") -> Section:
    """How long each kind of action took; `of` names the cluster where a page shows several."""
    longest_s = max((kind.mean_s for kind in kinds), default=0.0) or 1.0
    times = [(kind.mean_s, kind.p99_s, kind.wait_s, kind.run_s) for kind in kinds]
    return Section(
        title="Action completion time" + (f": {of}" if of else ""),
        note="From asking to having the answer, of each kind of action, in milliseconds.",
        rows=[["kind", "actions", "mean", "p99", "waited", "ran"]]
        + [
            [kind.kind, str(kind.count), *(f"{1000 * s:.0f}" for s in each)]
            for kind, each in zip(kinds, times, strict=True)
        ],
        bars=[
            [part / longest_s for part in (wait_s, max(0.0, mean_s - wait_s - run_s), run_s)]
            for mean_s, _, wait_s, run_s in times
        ],
        parts=["waited", "was made ready", "ran"],
    )


def as_text(section: Section) -> str:
    """A table for a terminal."""
    rows = section.rows
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([section.title, "-" * len(section.title), section.note, "", *lines, ""])
