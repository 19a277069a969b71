"""The command line where only a part is installed: it says what to install, in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from artangram import __version__

BLOCKED = "import sys; sys.modules.update(dict.fromkeys({missing!r})); "
RUN = str(Path(__file__).parents[3] / "examples" / "guessing.yaml")
MAIN = "from artangram.cli import main; main()"


def without(
    missing: list[str], *argv: str, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A verb in a process that cannot import some modules."""
    code = BLOCKED.format(missing=missing) + MAIN
    return subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=home, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("module", "extra", "verb"),
    [
        ("typer", "cli", ["doctor"]),
        ("aiohttp", "client", ["status", "--url", "http://127.0.0.1:1"]),
        ("numpy", "sim", ["simulate", "--cluster", "x", "--trace", "y"]),
        ("torch", "train", ["demo", "--out", "/dev/null/never"]),
    ],
)
def test_what_is_missing_is_named_with_its_extra(module: str, extra: str, verb: list[str]) -> None:
    said = without([module], *verb)
    assert (said.returncode, said.stdout) == (2, "")
    wanted = f"error: {module}: is not installed; pip install 'artangram[{extra}]'\n"
    assert said.stderr == wanted


@pytest.mark.parametrize(
    ("missing", "extras", "verb"),
    [
        (["numpy", "torch", "aiohttp"], "sim,service,train", ["bench", "lab"]),
        (["numpy", "tokenizers", "pytest"], "sim,judge,demo", ["demo", "--out", "/dev/null/never"]),
        (["torch", "aiohttp"], "service,train", ["train", RUN]),
        (["torch", "aiohttp"], "service,train", ["eval", RUN]),
        (["starlette", "yaml"], "cli,service", ["up", "--help"]),
    ],
)
def test_all_that_is_missing_is_named_at_once(
    missing: list[str], extras: str, verb: list[str], tmp_path: Path
) -> None:
    said = without(missing, *verb, home=tmp_path)
    assert (said.returncode, said.stdout) == (2, "")
    (line,) = said.stderr.splitlines()
    assert line.endswith(f": are not installed; pip install 'artangram[{extras}]'")
    assert set(missing) == set(line.removeprefix("error: ").partition(":")[0].split(", "))


def test_doctor_answers_where_only_the_command_line_is_installed() -> None:
    said = without(
        ["numpy", "matplotlib", "aiohttp", "starlette", "torch"], "doctor", "--json", "-"
    )
    assert said.returncode == 0, said.stderr
    features = {found["name"]: found for found in json.loads(said.stdout)["features"]}
    assert features["training"]["available"] is False
    assert features["training"]["how"] == "pip install 'artangram[train]'"
    assert "pip install 'artangram[sim]'" in said.stderr


def test_the_list_of_verbs_is_whole_wherever_it_is_asked_for() -> None:
    said = without(["numpy"], "--help")
    assert said.returncode == 0, said.stderr
    shown = " ".join(said.stdout.replace("\u2502", " ").split())
    assert "numpy: is not installed; pip install 'artangram[sim]'" in shown
    assert all(f" {verb} " in said.stdout for verb in ("up", "run", "doctor", "simulate", "bench"))


def test_the_version_waits_for_no_verb() -> None:
    said = without(["artangram.cli.demo", "artangram_bench", "numpy"], "--version")
    assert (said.returncode, said.stdout, said.stderr) == (0, f"artangram {__version__}\n", "")


def test_a_fault_of_ours_is_not_called_a_missing_extra() -> None:
    said = without(["artangram.cli.output"], "doctor")
    assert said.returncode == 1
    assert "Traceback" in said.stderr
