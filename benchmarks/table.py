"""Write the results tables from the result files beside this script.

Every figure is computed from a file of `results`, so none can be typed in. The whole table is in
`docs/results.md`, its headlines are in the README; a test compares both with what this makes.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # It runs as a script, and tests run it by its path.

import livetable  # noqa: E402
import simtable  # noqa: E402

README = HERE.parent / "README.md"
PAGE = HERE.parent / "docs" / "results.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
ROWS = simtable.ROWS | livetable.ROWS


def main() -> None:
    for path in (README, PAGE):
        path.write_text(with_table(path), encoding="utf-8")


def with_table(path: Path) -> str:
    """The text of `path` with the table between its marks made anew."""
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    made = table("", headlines=True) if path == README else table("../", headlines=False)
    return pattern.sub(lambda _: f"{BEGIN}\n{made}\n{END}", text)


def table(root: str, *, headlines: bool) -> str:
    lines = ["| question | figure | goal | from |", "|---|---|---|---|"]
    for name, rows in ROWS.items():
        path = HERE / "results" / f"{name}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        command = livetable.COMMANDS.get(name, f"artangram bench {name}")
        source = f"[`{command}`]({root}benchmarks/results/{name}.json)"
        for row in rows(result["figures"]):
            if row.is_headline or not headlines:
                question = row.question.replace("](docs/", f"]({root}docs/")
                lines.append(f"| {question} | {row.figure} | {row.goal} | {source} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
