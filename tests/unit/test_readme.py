"""The README says only what was measured and hides no miss."""

import re
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MOST_HEADLINES = 8
MOST_WORDS = 30


def table() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "table.py"))


def rows(text: str) -> list[str]:
    """The lines of a page's tables without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line for line in lines if not line.startswith(("| result |", "| measured |"))]


def test_every_figure_of_the_readme_comes_from_a_result_file() -> None:
    made = table()
    for path in (made["README"], made["PAGE"]):
        text = path.read_text(encoding="utf-8")
        assert made["with_table"](path) == text, "run: python benchmarks/table.py"


def test_missed_goals_come_first_and_are_counted_in_the_readme() -> None:
    made = table()
    is_missed = ["**missed**" in row for row in rows(made["page"]())]
    assert is_missed == sorted(is_missed, reverse=True)
    assert f"begins with the {sum(is_missed)} that are missed" in made["headlines"]()


def test_the_readme_can_be_taken_in_at_once() -> None:
    shown = rows(table()["headlines"]())
    assert 5 <= len(shown) <= MOST_HEADLINES


def test_a_goal_is_judged_by_the_figure_and_not_by_how_it_is_shown() -> None:
    limits = {"at_least": None, "at_most": 1.5}
    goals = [{"what": "new", "value": value, **limits} for value in (1.4999, 1.5, 1.5001, None)]
    judged = list(table()["ROWS"]["sandbox"]({"goals": goals}))
    assert [row.goal.is_reached for row in judged] == [True, True, False]
    assert {row.text for row in judged} == {"Sandboxes, new: **1.5**"}


def test_every_headline_has_its_strongest_baseline_and_its_ceiling() -> None:
    for row in rows(table()["headlines"]()):
        what, result, strongest, ceiling, link = (cell.strip() for cell in row.split("|")[1:-1])
        assert all((what, strongest, ceiling, link)), row
        assert re.search(r"\d+x\*\* (faster|fewer|more) than", result), row


def test_the_glossary_is_short_and_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([\w ]+) \|", text, re.MULTILINE)[1:]
    assert 0 < len(words) <= MOST_WORDS
    assert words == sorted(words, key=str.lower)
