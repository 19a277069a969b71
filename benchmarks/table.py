"""Write the results tables from the result files beside this script.

Every figure is computed from a file of `results`, so none can be typed in, and so is whether it
reaches its goal. All are in `docs/results.md`, those that miss their goal first; the README has the
headlines. A test compares both with what this makes.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # It runs as a script, and tests run it by its path.

import livetable  # noqa: E402
import simtable  # noqa: E402
import traintable  # noqa: E402
from row import Row, Shown  # noqa: E402

README = HERE.parent / "README.md"
PAGE = HERE.parent / "docs" / "results.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
ROWS = simtable.ROWS | livetable.ROWS | traintable.ROWS


def main() -> None:
    for path in (README, PAGE):
        path.write_text(with_table(path), encoding="utf-8")


def with_table(path: Path) -> str:
    """The text of `path` with what is between its marks made anew."""
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    made = headlines() if path == README else page()
    return pattern.sub(lambda _: f"{BEGIN}\n{made}\n{END}", text)


def headlines() -> str:
    """What the README shows, and how much of the page it is."""
    rows = list(found())
    judged = [row.goal.is_reached for row, _ in rows if row.goal and row.shown is not Shown.README]
    table = _table([pair for pair in rows if pair[0].shown is not Shown.PAGE], root="")
    missed = judged.count(False)
    return (
        f"{table}\n\nOf {len(judged)} goals {len(judged) - missed} are reached. "
        f"[docs/results.md](docs/results.md) has all figures and begins with the {missed} that "
        "are missed."
    )


def page() -> str:
    rows = [pair for pair in found() if pair[0].shown is not Shown.README]
    parts = {
        "Missed": [pair for pair in rows if pair[0].goal and not pair[0].goal.is_reached],
        "Reached": [pair for pair in rows if pair[0].goal and pair[0].goal.is_reached],
        "Without a goal": [pair for pair in rows if not pair[0].goal],
    }
    return "\n\n".join(
        f"## {title}\n\n{_table(part, root='../')}" for title, part in parts.items() if part
    )


def found() -> Iterator[tuple[Row, str]]:
    """Every row there is a result for, and the name of that result."""
    for name, rows in ROWS.items():
        path = HERE / "results" / f"{name}.json"
        if path.exists():
            for row in rows(json.loads(path.read_text(encoding="utf-8"))["figures"]):
                yield row, name


def _table(rows: list[tuple[Row, str]], *, root: str) -> str:
    return "\n".join(["| found | goal | measured by |", "|---|---|---|", *_lines(rows, root)])


def _lines(rows: list[tuple[Row, str]], root: str) -> Iterator[str]:
    for row, name in rows:
        command = livetable.COMMANDS.get(name, f"artangram bench {name}")
        text = row.text.replace("](docs/", f"]({root}docs/") + (row.note if root else "")
        goal = "" if row.goal is None else row.goal.text
        if row.goal is not None and not row.goal.is_reached:
            goal += ": **missed**"
        yield f"| {text} | {goal} | [`{command}`]({root}benchmarks/results/{name}.json) |"


if __name__ == "__main__":
    main()
