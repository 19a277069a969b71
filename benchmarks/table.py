"""Write the results tables from the result files beside this script.

Every figure is computed from a file of `results`, so none can be typed in, and so is whether it
reaches its goal. All figures are in `docs/results.md`, those that miss their goal first; the
README has the headlines. A test compares both pages with what this script writes.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # It runs as a script, and tests run it by its path.

import livetable  # noqa: E402
import simtable  # noqa: E402
import traintable  # noqa: E402
from headlines import HEADLINES  # noqa: E402
from row import Row  # noqa: E402

README = HERE.parent / "README.md"
PAGE = HERE.parent / "docs" / "results.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
ROWS = simtable.ROWS | livetable.ROWS | traintable.ROWS


def main() -> None:
    for path in (README, PAGE):
        path.write_text(with_table(path), encoding="utf-8")


def with_table(path: Path) -> str:
    """The text of `path` with a new table between its marks."""
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    made = headlines() if path == README else page()
    return pattern.sub(lambda _: f"{BEGIN}\n{made}\n{END}", text)


def headlines() -> str:
    """The table of the README, and how many goals are missed."""
    lines = ["| measured | result | strongest baseline | ceiling | |", "|---|---|---|---|---|"]
    for name, made in HEADLINES.items():
        if (figures := _figures(name)) is not None:
            link = _link(name, root="", text="data")
            lines += [f"| {' | '.join(headline)} | {link} |" for headline in made(figures)]
    judged = [row.goal.is_reached for row, _ in found() if row.goal]
    missed = judged.count(False)
    table = "\n".join(lines)
    return (
        f"{table}\n\n{len(judged) - missed} of {len(judged)} goals are reached. "
        f"[docs/results.md](docs/results.md) has all figures and begins with the {missed} that "
        "are missed."
    )


def page() -> str:
    rows = list(found())
    parts = {
        "Missed": [pair for pair in rows if pair[0].goal and not pair[0].goal.is_reached],
        "Reached": [pair for pair in rows if pair[0].goal and pair[0].goal.is_reached],
        "Without a goal": [pair for pair in rows if not pair[0].goal],
    }
    return "\n\n".join(f"## {title}\n\n{_table(part)}" for title, part in parts.items() if part)


def found() -> Iterator[tuple[Row, str]]:
    """Every row there is a result for, and the name of that result."""
    for name, rows in ROWS.items():
        if (figures := _figures(name)) is not None:
            yield from ((row, name) for row in rows(figures))


def _figures(name: str) -> Any:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else None


def _table(rows: list[tuple[Row, str]]) -> str:
    return "\n".join(["| result | goal | measured by |", "|---|---|---|", *_lines(rows)])


def _lines(rows: list[tuple[Row, str]]) -> Iterator[str]:
    for row, name in rows:
        goal = "" if row.goal is None else row.goal.text
        if row.goal is not None and not row.goal.is_reached:
            goal += ": **missed**"
        verb = name.replace("rollout_", "rollout --only ")
        command = livetable.COMMANDS.get(name, f"artangram bench {verb}")
        yield f"| {row.text} | {goal} | {_link(name, root='../', text=f'`{command}`')} |"


def _link(name: str, *, root: str, text: str) -> str:
    return f"[{text}]({root}benchmarks/results/{name}.json)"


if __name__ == "__main__":
    main()
