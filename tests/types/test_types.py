"""What a type checker says of users' programs: nothing of good ones, a reason for each mistake."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARKED = re.compile(r"# E: (.*)$")


def complaints(path: Path, cache: Path) -> dict[int, str]:
    """What mypy says of a file, by line."""
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", cache, *options, path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(rf"{path.name}:(\d+): error: (.*)", done.stdout)
    assert bool(found) == bool(done.returncode), done.stdout
    return {int(line): message for line, message in found}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_good_programs_type_check(cache: Path) -> None:
    assert complaints(HERE / "good.py", cache) == {}


def test_every_mistake_is_seen_and_nothing_else(cache: Path) -> None:
    lines = (HERE / "bad.py").read_text().splitlines()
    wanted = {n: marked[1] for n, line in enumerate(lines, 1) if (marked := MARKED.search(line))}
    found = complaints(HERE / "bad.py", cache)
    assert len(wanted) > 10
    assert found.keys() == wanted.keys()
    assert {n: reason for n, reason in wanted.items() if reason not in found[n]} == {}
