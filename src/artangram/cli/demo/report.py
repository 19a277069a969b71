"""The demo's report: the same facts as text for the terminal and as one HTML page."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from artangram.cli.demo.resources import Resources
from artangram.cli.output import write_file
from artangram.pipeline.metrics import StepRecord

if TYPE_CHECKING:
    from artangram.cli.demo.session import Learned

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 260, 40, 24
COLOURS = ("#3465a4", "#cc7a00", "#2e8b57", "#a03070", "#666666")
SMOOTH = 5
"""Steps that a point of a curve is the mean of."""

Rows = Sequence[Sequence[str]]


def write_report(out: Path, learned: "Learned", resources: Resources) -> str:
    """Write `report.html` and `report.txt`; the text is returned."""
    sections = [
        ("What was learned", _success(learned)),
        ("Where time went", _time(learned)),
        ("Action completion time", _act(resources)),
        ("What static provisioning would have needed", _static(resources)),
    ]
    text = "\n".join(_as_text(title, rows) for title, rows in sections)
    text += f"\n{_sentence(learned, resources)}\nThis report: {out / 'report.html'}\n"
    write_file(out / "report.txt", text.encode())
    page = _page(sections, _curves(learned.steps), _sentence(learned, resources))
    write_file(out / "report.html", page.encode())
    return text


def _success(learned: "Learned") -> Rows:
    before, after = learned.before, learned.after
    rows = [["held-out problems", "before", "after"]]
    rows += [
        [task, f"{before.by_task[task]:.2f}", f"{after.by_task[task]:.2f}"]
        for task in sorted(before.by_task)
    ]
    return [*rows, ["all", f"{before.success:.2f}", f"{after.success:.2f}"]]


def _time(learned: "Learned") -> Rows:
    steps = learned.steps
    ended = steps[-1].ended if steps else {}
    return [
        ["what", "seconds, or how many"],
        ["all of it", f"{learned.total_s:.0f}"],
        ["warm-up", f"{learned.warmup_s:.0f}"],
        ["training", f"{learned.training_s:.0f}"],
        ["- the trainer waited for attempts", f"{sum(s.collect_s for s in steps):.0f}"],
        ["- the trainer computed", f"{sum(s.train_s for s in steps):.0f}"],
        ["- engines stood still for new weights", f"{sum(s.exposed_s for s in steps):.1f}"],
        *([f"attempts: {status}", str(count)] for status, count in sorted(ended.items())),
    ]


def _act(resources: Resources) -> Rows:
    rows = [["kind", "actions", "mean ms", "p99 ms", "waited ms", "ran ms"]]
    return rows + [
        [k.kind, str(k.count), *(f"{1000 * s:.1f}" for s in (k.mean_s, k.p99_s, k.wait_s, k.run_s))]
        for k in resources.kinds
    ]


def _static(resources: Resources) -> Rows:
    rows = [["sandbox actions of this run, simulated", "cores", "mean ACT ms"]]
    each = [("shared, action by action", resources.ours)]
    each += [("a core per sandbox", static) for static in resources.static]
    return rows + [[name, str(one.cores), f"{1000 * one.act_mean_s:.1f}"] for name, one in each]


def _sentence(learned: "Learned", resources: Resources) -> str:
    last = resources.static[-1]
    if resources.is_reached:
        static = f"a core per sandbox would have needed {last.cores} cores"
    else:
        static = (
            f"a core per sandbox would not have been enough: from {last.cores} cores on, making "
            "pods is what takes the time"
        )
    return (
        f"Success on problems it never saw: {learned.before.success:.2f} before, "
        f"{learned.after.success:.2f} after {len(learned.steps)} steps. For the same action "
        f"completion time {static}; the run had {resources.cores}."
    )


def _as_text(title: str, rows: Rows) -> str:
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        )
        for row in rows
    ]
    return "\n".join([title, "-" * len(title), *lines, ""])


def _page(sections: Sequence[tuple[str, Rows]], picture: str, sentence: str) -> str:
    body = [f"<h1>Artangram: the demo</h1><p>{escape(sentence)}</p>", picture]
    for title, rows in sections:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
        lines = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in rows[1:]
        )
        body.append(f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{lines}</table>")
    style = (
        "body{font:15px/1.5 sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#222}"
        "table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;"
        "text-align:right}td:first-child,th:first-child{text-align:left}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Artangram: the demo</title>'
        f"<style>{style}</style>{''.join(body)}</html>\n"
    )


def _curves(steps: Sequence[StepRecord]) -> str:
    """Success of attempts per task over the steps."""
    tasks = sorted({task for step in steps for task in step.report.rewards})
    parts = [_axes(len(steps))]
    for task, colour in zip(tasks, COLOURS, strict=False):
        values = [s.report.rewards[task] for s in steps if task in s.report.rewards]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _points(_smooth(values)))
        line = f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
        label = LEFT + 8 + 90 * tasks.index(task)
        parts.append(f'{line}<text x="{label}" y="14" fill="{colour}">{escape(task)}</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" font-size="13" '
        f'aria-label="success per task over steps">{"".join(parts)}</svg>'
    )


def _axes(steps: int) -> str:
    marks = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{_y(v):.1f}" y2="{_y(v):.1f}" stroke="#ddd"/>'
        f'<text x="{LEFT - 6}" y="{_y(v) + 4:.1f}" text-anchor="end">{v:g}</text>'
        for v in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    return f'{marks}<text x="{WIDTH}" y="{HEIGHT - 4}" text-anchor="end">step {steps}</text>'


def _points(values: Sequence[float]) -> list[tuple[float, float]]:
    span = max(1, len(values) - 1)
    return [(LEFT + (WIDTH - LEFT) * i / span, _y(v)) for i, v in enumerate(values)]


def _y(value: float) -> float:
    top = 24
    return top + (HEIGHT - BOTTOM - top) * (1 - value)


def _smooth(values: Sequence[float]) -> list[float]:
    recent = [values[max(0, i - SMOOTH + 1) : i + 1] for i in range(len(values))]
    return [sum(few) / len(few) for few in recent]
