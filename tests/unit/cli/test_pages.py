"""Pages show only commands that exist: every verb, every part of one, every option."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from artangram.cli.verbs import app

ROOT = Path(__file__).parents[3]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")]
SHOWN = re.compile(r"(?:^\$? *|`|&& |; )artangram (\S[^`\n;]*)", re.MULTILINE)
"""A command at the beginning of a line, in quotes, or after another one."""


@cache
def _tree() -> Any:
    return typer.main.get_command(app())


def _wrong(command: str) -> Iterator[str]:
    """What of a command does not exist. Words in capitals stand for something else."""
    known, words = _tree(), shlex.split(command.partition("#")[0].partition("|")[0])
    while hasattr(known, "commands") and words and re.fullmatch(r"[a-z]+", words[0]):
        if words[0] not in known.commands:
            yield words[0]
            return
        known, words = known.commands[words[0]], words[1:]
    options = {name for param in known.params for name in param.opts} | {"--help"}
    given = words[: words.index("--")] if "--" in words else words
    names = (word.partition("=")[0] for word in given if word.startswith("--"))
    yield from (name for name in names if name not in options)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_show_commands_that_exist(page: Path):
    found = {
        command: list(_wrong(command))
        for command in SHOWN.findall(page.read_text().replace("\\\n", " "))
    }
    assert {command: wrong for command, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("simulate --cluster c --trace t", []),
        ("run --cpu 1-8 -- pytest --no-such-option-of-ours", []),
        ("bench X   # any of them", []),
        ("bench nothing", ["nothing"]),
        ("trace make x", ["make"]),
        ("train run.yaml --restart", ["--restart"]),
        ("status --json - | jq --raw", []),
    ],
)
def test_what_does_not_exist_is_found(command: str, wrong: list[str]):
    assert list(_wrong(command)) == wrong


def test_commands_are_found_on_pages():
    text = "$ artangram up   # serve\nSay `artangram run -- true`, for artangram is a name.\n"
    assert SHOWN.findall(text) == ["up   # serve", "run -- true"]
