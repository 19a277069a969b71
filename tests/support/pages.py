"""The code blocks of a page, and the shell script that runs them as a reader would.

- A reader goes through a page from top to bottom, in one directory that has `examples/` in it.
- A block of `console` is its lines behind `$ `; the other lines show what is printed. A block of
  `python` is a program. A block of `text` is not code.
- The comment in front of a block can say otherwise: `<!-- fragment: WHY -->` is not run,
  `<!-- file: NAME -->` is saved under that name, `<!-- serves -->` runs beside all that follows,
  and the `export` lines that it prints hold for them.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "examples").glob("*.md"))
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>\w+)(?:: (?P<said>[^\n]*?))? -->\n)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block with the comment in front of it."""

    line: int
    language: str
    text: str
    mark: str = ""
    said: str = ""


def blocks(page: str) -> Iterator[Block]:
    for found in BLOCK.finditer(page):
        yield Block(
            line=page.count("\n", 0, found.start()) + 1,
            language=found["language"],
            text=found["text"],
            mark=found["mark"] or "",
            said=found["said"] or "",
        )


def complaint(block: Block) -> str | None:
    """What is wrong with how a block is marked."""
    match block:
        case Block(language="") | Block(mark="file" | "fragment", said=""):
            return "say its language; say why it is a fragment, or the file's name"
        case Block(mark="fragment" | "file") | Block(language="text", mark=""):
            return None
        case Block(language="console", mark="" | "serves") | Block(language="python", mark=""):
            return None
    return "nothing runs it: mark it `<!-- file: NAME -->` or `<!-- fragment: WHY -->`"


def is_run(block: Block) -> bool:
    """Whether anything comes of it: a fragment and plain text are only read."""
    return block.mark != "fragment" and block.language != "text"


def commands(text: str) -> list[str]:
    """The commands of a block of `console`; after a backslash one goes on in the next line."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE)


def script(page: str, *, name: str) -> str:
    """What runs all blocks of a page, one after the other; ends at the first that fails."""
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"]
    for block in blocks(page):
        if is_run(block):
            lines += [f"echo {shlex.quote(f'--- {name}, line {block.line}')}", *_steps(block)]
    return "\n".join(lines) + "\n"


def _steps(block: Block) -> Iterator[str]:
    if block.mark == "file":
        yield _saved(block.said, block.text)
    elif block.mark == "serves":
        *before, last = commands(block.text)
        yield from before
        yield f"{last.partition('  #')[0]} > serves.log &"
        yield "until grep -q '^export ARTANGRAM_TOKEN' serves.log; do kill -0 $!; sleep 0.1; done"
        yield 'eval "$(grep ^export serves.log)"'
    elif block.language == "console":
        yield from commands(block.text)
    else:
        yield _saved(program := f"block_{block.line}.py", block.text)
        yield f"python {program}"


def _saved(name: str, text: str) -> str:
    return f"cat > {shlex.quote(name)} <<'END OF BLOCK'\n{text}END OF BLOCK"
