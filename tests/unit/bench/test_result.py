"""Results name the commit that was measured."""

import subprocess
from pathlib import Path

from artangram_bench.result import PACKAGE, commit_of


def git(folder: Path, *arguments: str) -> None:
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True)


def a_repository(folder: Path) -> Path:
    """With a package and a result; where the package is."""
    package = folder / "src" / "package"
    package.mkdir(parents=True)
    (package / "code.py").write_text("1")
    (folder / "result.json").write_text("1")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all")
    return package


def test_a_result_that_was_just_written_is_no_change_of_what_the_next_one_measures(
    tmp_path: Path,
) -> None:
    package = a_repository(tmp_path)
    clean = commit_of(package)
    (tmp_path / "result.json").write_text("2")
    assert commit_of(package) == clean
    assert not clean.endswith("+")


def test_changed_code_is_marked(tmp_path: Path) -> None:
    package = a_repository(tmp_path)
    clean = commit_of(package)
    (package / "code.py").write_text("2")
    assert commit_of(package) == f"{clean}+"


def test_what_is_no_repository_has_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == "unknown"


def test_the_package_is_ours() -> None:
    assert (PACKAGE / "core" / "scheduling" / "scheduler.py").exists()
