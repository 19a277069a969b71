"""The README says only what was measured, and its program runs."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_figure_of_the_readme_comes_from_a_result_file() -> None:
    table = runpy.run_path(str(ROOT / "benchmarks" / "table.py"))
    for path in (table["README"], table["PAGE"]):
        text = path.read_text(encoding="utf-8")
        assert table["with_table"](path) == text, "run: python benchmarks/table.py"


def test_every_program_of_the_readme_that_needs_no_house_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    pure = [program for program in programs if "async with" not in program]
    assert pure
    for program in pure:
        exec(compile(program, "README.md", "exec"), {})
