"""The demo while it runs: success per task, ACT, what is at work, staleness and pace."""

from collections import deque
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from artangram.cli.train_view import acts_of, busy_of
from artangram.pipeline.metrics import StepRecord

BAR = 30
RECENT = 5
"""Steps that a shown number is the mean of."""


class DemoProgress:
    """A live table on a terminal; a line every tenth step elsewhere."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._recent: deque[StepRecord] = deque(maxlen=RECENT)
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, record: StepRecord) -> None:
        self._recent.append(record)
        if self._console.is_terminal:
            self._live.update(self._picture(record))
        elif record.step % 10 == 0 or record.step == self._steps:
            tasks = ", ".join(f"{t} {v:.2f}" for t, v in self._rewards().items())
            line = f"step {record.step}/{self._steps}, {record.at_s:.0f} s: {tasks}"
            self._console.print(line)
            self._console.print(f"  {_at_work(record)}", style="dim", soft_wrap=True)

    def _rewards(self) -> dict[str, float]:
        tasks = self._recent[-1].report.rewards
        found: dict[str, float] = {}
        for task in tasks:
            values = [r.report.rewards[task] for r in self._recent if task in r.report.rewards]
            found[task] = sum(values) / len(values)
        return found

    def _picture(self, record: StepRecord) -> Group:
        table = Table(box=None, padding=(0, 1))
        for column in ("task", "success of attempts", ""):
            table.add_column(column)
        for task, value in self._rewards().items():
            table.add_row(task, bar(value), f"{value:.2f}")
        report, ended = record.report, record.ended
        pace = sum(ended.values()) / max(record.at_s, 1e-9)
        below = (
            f"step {record.step}/{self._steps}  {record.at_s:.0f} s  {pace:.0f} attempts/s  "
            f"stale tokens {100 * report.stale_share:.0f} % (at most {report.max_staleness} "
            f"versions)  waited {record.collect_s:.1f} s, trained {record.train_s:.1f} s"
        )
        return Group(table, Text(f"{below}\n{_at_work(record)}", style="dim"))


def _at_work(record: StepRecord) -> str:
    """What the cluster did for the last step."""
    return f"ACT {acts_of(record.usage) or '-'}; at work: {busy_of(record.usage) or '-'}"


def bar(value: float) -> str:
    filled = round(value * BAR)
    return "#" * filled + "." * (BAR - filled)
