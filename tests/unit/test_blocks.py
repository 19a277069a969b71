"""Every code block of a page says how it is run, or why it is not; integration tests run them."""

from pathlib import Path

import pytest
from pages import PAGES, blocks, commands, complaint, script


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_run_or_says_why_not(page: Path):
    complaints = {block.line: complaint(block) for block in blocks(page.read_text())}
    assert {line: found for line, found in complaints.items() if found} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_fence_belongs_to_a_block(page: Path):
    text = page.read_text()
    fences = sum(line.startswith("```") for line in text.splitlines())
    assert fences == 2 * len(list(blocks(text)))


@pytest.mark.parametrize(
    "page",
    [
        "```\nartangram up\n```\n",
        "```bash\nartangram up\n```\n",
        "```yaml\na: 1\n```\n",
        "<!-- fragment -->\n```python\nx\n```\n",
        "<!-- file -->\n```python\nx\n```\n",
        "<!-- skip: it is long -->\n```python\nx\n```\n",
        "<!-- serves -->\n```python\nx\n```\n",
    ],
)
def test_a_block_that_nothing_runs_is_found(page: str):
    (block,) = blocks(page)
    assert complaint(block)


def test_a_command_is_what_follows_the_prompt():
    shown = "$ one   # said\nits output\n$ two \\\n    --more\n"
    assert commands(shown) == ["one   # said", "two \\\n    --more"]


def test_blocks_run_in_order_and_fragments_do_not():
    page = (
        "```console\n$ first\nshown\n```\n<!-- fragment: x -->\n```python\nnot_run()\n```\n"
        "<!-- file: a.yaml -->\n```yaml\na: 1\n```\n```python\nprint(2)\n```\n"
    )
    made = script(page, name="a.md")
    steps = [
        made.index(part) for part in ("\nfirst\n", "> a.yaml", "a: 1", "print(2)", "\npython ")
    ]
    assert steps == sorted(steps)
    assert "not_run" not in made
    assert "shown" not in made
