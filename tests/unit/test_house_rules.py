"""The rules of the house that no linter knows, each with an offender that it must catch.

A rule is a function from a file to complaints. CONTRIBUTING.md says why the rules are there.
"""

import ast
import re
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
BAD_NAMES = re.compile(r"utils?|helpers?|misc|.*manager|.*handlers?|.*_v\d+")
MACHINE_PATHS = re.compile(r"/(?:home|Users|root|mnt)/\w+|/work/(?:main|shared)\b")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
FILE_NAME = re.compile(r"[\w./-]+\.(?:c|md|py|sh|svg|toml)\b")
CODE_NAME = re.compile(r"\b(?:[A-Z]\w*[a-z]\w*[A-Z]\w*|[A-Z]+_[A-Z_]+|[a-z]+(?:_[a-z]+)+)\b")
IDIOM = re.compile(
    r"\b(?:[Nn]obody|[Ss]omebody|[Ee]verybody|[Ww]hoever|[Nn]o one|[Ss]o many)\b(?![:`])"
    r"|\b(?:is|are) none\b|\bthere is nothing to\b"
    r"|\bWho\b|\b[Tt]hose who\b|(?:[:;]|\b(?:to|of|and|or|says?|decides?)) whom?\b"
)
"""What style.md calls idiom: no component is a body, and every sentence has a subject."""

FOREIGN = {
    "CAP_SYS_RESOURCE",
    "conftest.py",
    "keep_alive",
    "min_instances",
    "no_new_privs",
    "pytest_cache",
}
"""What pages name of others: the kernel's, pytest's, ServerlessLLM's."""

Rule = Callable[[Path], Iterator[str]]


def fits_in_a_head(path: Path) -> Iterator[str]:
    if (count := len(path.read_text().splitlines())) > MOST_LINES:
        yield f"{count} lines"


def functions_fit_on_a_screen(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > MOST_FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {length} lines"


def opens_with_its_contract(path: Path) -> Iterator[str]:
    with tokenize.open(path) as file:
        tokens = tokenize.generate_tokens(file.readline)
        first = next(t for t in tokens if t.type not in (tokenize.COMMENT, tokenize.NL))
    if first.type != tokenize.STRING:
        yield "no docstring"


def is_ascii(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.isascii():
            yield f"line {number}: {line.strip()}"


def is_named_for_what_is_inside(path: Path) -> Iterator[str]:
    if BAD_NAMES.fullmatch(path.stem):
        yield "names no thing"


def unfinished_work_names_its_issue(path: Path) -> Iterator[str]:
    if not UNFINISHED.search(path.read_text()):
        return  # Most have none, and reading tokens takes long.
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT and UNFINISHED.search(token.string):
                yield f"line {token.start[0]}: {token.string}"


def knows_no_machine(path: Path) -> Iterator[str]:
    yield from MACHINE_PATHS.findall(path.read_text())


def speaks_as_engineers_do(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if found := IDIOM.search(line):
            yield f"line {number}: {found.group()!r}"


def links_lead_somewhere(path: Path) -> Iterator[str]:
    for target in LINK.findall(FENCED.sub("", path.read_text())):
        if not re.match(r"[a-z]+:", target) and not _exists(path, target):
            yield target


def _exists(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = page.parent / name if name else page
    return file.exists() and (not anchor or file.suffix != ".md" or anchor in _anchors(file))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as renderers make them."""
    headings = re.findall(r"^#+ +(.*?) *$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def names_what_exists(path: Path) -> Iterator[str]:
    """Of what a page quotes: files, and names that only code has."""
    for quoted in QUOTED.findall(FENCED.sub("", path.read_text())):
        for name in set(FILE_NAME.findall(quoted)) - FOREIGN:
            if not any(known.endswith(f"/{name}") for known in _tree()):
                yield name
        yield from set(CODE_NAME.findall(quoted)) - FOREIGN - _words()


def programs_import_what_exists(path: Path) -> Iterator[str]:
    """Of the programs of a page: they can be read, and what they take from us is there."""
    for program in PROGRAM.findall(path.read_text()):
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("artangram"):
                for alias in node.names:
                    if not _is_there(str(node.module), alias.name):
                        yield f"{node.module}.{alias.name}"


def _is_there(module: str, name: str) -> bool:
    root = "benchmarks" if module.startswith("artangram_bench") else "src"
    place = ROOT / root / module.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file.exists() and re.search(rf"\b{name}\b", file.read_text()) is not None


@cache
def _tree() -> list[str]:
    folders = ("src", "tests", "docs", "benchmarks", "examples")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return [str(path) for path in [*ROOT.iterdir(), *inside]]


@cache
def _words() -> set[str]:
    """Every word of the sources, and the names of files. Not of this one: it has offenders."""
    sources = [path for path in map(Path, _tree()) if path.suffix in (".py", ".c", ".toml")]
    texts = (path.read_text() for path in sources if path != Path(__file__).resolve())
    return {path.stem for path in sources} | {
        word for text in texts for word in re.findall(r"\w+", text)
    }


def files(*folders: str, suffix: str) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}"))
    return sorted(path for path in found if "__pycache__" not in path.parts)


SOURCE = files("src", suffix=".py")
PYTHON = SOURCE + files("tests", suffix=".py")
PAGES = sorted(ROOT.glob("*.md")) + files("docs", "benchmarks", "examples", suffix=".md")
SPOKEN = [
    *(SOURCE + files("src", suffix=".c") + files("benchmarks", "examples", suffix=".py")),
    *(page for page in PAGES if page.parent.name != "adr"),
    ROOT / "Makefile",
]


@pytest.mark.parametrize(
    ("rule", "paths"),
    [
        (fits_in_a_head, SOURCE),
        (functions_fit_on_a_screen, PYTHON),
        (opens_with_its_contract, PYTHON),
        (is_ascii, SOURCE),
        (is_named_for_what_is_inside, PYTHON),
        (unfinished_work_names_its_issue, PYTHON),
        (knows_no_machine, SOURCE + PAGES),
        (speaks_as_engineers_do, SPOKEN),
        (links_lead_somewhere, PAGES),
        (names_what_exists, PAGES),
        (programs_import_what_exists, PAGES),
    ],
)
def test_the_tree_keeps_the_rule(rule: Rule, paths: list[Path]):
    assert paths
    offenders = {str(p.relative_to(ROOT)): found for p in paths if (found := list(rule(p)))}
    assert not offenders


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (fits_in_a_head, "a.py", "x = 1\n" * 401),
        (functions_fit_on_a_screen, "a.py", "class C:\n def f():\n" + "  x = 1\n" * 60),
        (functions_fit_on_a_screen, "a.py", "async def f():\n" + " x = 1\n" * 60),
        (opens_with_its_contract, "a.py", "import os\n"),
        (is_ascii, "a.py", '"""Tr\u00e8s joli."""\n'),
        (is_named_for_what_is_inside, "utils.py", ""),
        (is_named_for_what_is_inside, "helpers.py", ""),
        (is_named_for_what_is_inside, "cpu_manager.py", ""),
        (is_named_for_what_is_inside, "event_handler.py", ""),
        (is_named_for_what_is_inside, "queue_v2.py", ""),
        (unfinished_work_names_its_issue, "a.py", "x = 1  # TODO: more\n"),
        (knows_no_machine, "a.py", "path = '/home/somebody/file'\n"),
        (speaks_as_engineers_do, "a.py", '"""Nobody waits for it."""\n'),
        (speaks_as_engineers_do, "a.py", '"""Who falls silent is closed."""\n'),
        (speaks_as_engineers_do, "a.py", "# It is lent to who comes after it.\n"),
        (speaks_as_engineers_do, "a.md", "'nonsense' is none.\n"),
        (links_lead_somewhere, "a.md", "See [it](missing.md).\n"),
        (links_lead_somewhere, "a.md", "# Here\n\nSee [it](#there).\n"),
        (names_what_exists, "a.md", "It is in `core/absent.py`.\n"),
        (names_what_exists, "a.md", "`AbsentLane` decides.\n"),
        (names_what_exists, "a.md", "At most `absent_limit_s` pass.\n"),
        (programs_import_what_exists, "a.md", "```python\nfrom artangram.absent import x\n```\n"),
        (programs_import_what_exists, "a.md", "```python\nfrom artangram.aio import absent\n```\n"),
    ],
)
def test_the_rule_catches_an_offender(rule: Rule, name: str, text: str, tmp_path: Path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert list(rule(path))


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (fits_in_a_head, "a.py", "x = 1\n" * 400),
        (functions_fit_on_a_screen, "a.py", "def f():\n" + " x = 1\n" * 59),
        (is_named_for_what_is_inside, "managers.py", ""),
        (unfinished_work_names_its_issue, "a.py", "x = 'TODO'  # TODO(#12): more\n"),
        (speaks_as_engineers_do, "a.md", "A user who types; `nobody` owns it; x is None.\n"),
        (links_lead_somewhere, "a.md", "# Fair shares: how?\n\n[it](a.md#fair-shares-how)\n"),
        (programs_import_what_exists, "a.md", "```python\nfrom artangram import local\n```\n"),
        (
            names_what_exists,
            "a.md",
            "`core/scheduling/scheduler.py` has `Scheduler`; `work_s` is known.\n",
        ),
        (links_lead_somewhere, "a.md", "[it](https://example.org) and\n```\n[no](link)\n```\n"),
    ],
)
def test_the_rule_lets_good_work_pass(rule: Rule, name: str, text: str, tmp_path: Path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert not list(rule(path))


def test_a_class_name_is_one_class():
    """`git grep 'class X'` finds the one place where X is explained."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_page_can_be_found_from_the_front():
    front = [(ROOT / name).read_text() for name in ("README.md", "ARCHITECTURE.md")]
    linked = {(ROOT / target).resolve() for text in front for target in LINK.findall(text)}
    assert set((ROOT / "docs").glob("*.md")) - linked == set()


def test_the_architecture_names_every_room_and_every_part_of_the_core():
    package = ROOT / "src" / "artangram"
    parts = [*package.iterdir(), *(package / "core").iterdir()]
    there = {part.stem for part in parts if part.is_dir() or part.suffix == ".py"}
    named = re.findall(r"`(\w+)/?`", (ROOT / "ARCHITECTURE.md").read_text())
    assert there - {"__init__", "__pycache__"} - set(named) == set()


def test_every_dependency_has_a_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[^\w-]", text.lower(), maxsplit=1)[0] for text in wanted} - {
        project["name"]
    }
    (page,) = (ROOT / "docs" / "adr").glob("*-dependencies.md")
    given = set(re.findall(r"[\w-]+", page.read_text().lower()))
    assert names - given == set()
