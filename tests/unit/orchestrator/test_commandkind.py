"""Commands of one kind are those that run the same thing."""

import pytest

from artangram.orchestrator.commandkind import command_kind


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        (["ls", "-l"], "ls"),
        (["/usr/bin/ls"], "ls"),
        (["git", "status"], "git/status"),
        (["git", "--no-pager", "diff"], "git/diff"),
        (["git"], "git"),
        (["make", "-j8", "all"], "make/all"),
        (["pytest", "-x", "tests"], "pytest"),
        (["python", "-m", "pytest", "-x"], "pytest"),
        (["python3", "-u", "tools/run.py", "--fast"], "python/run.py"),
        (["python3", "-c", "print(1)"], "python"),
        (["python"], "python"),
        (["env", "A=b", "pytest"], "pytest"),
        (["A=b", "pytest"], "pytest"),
        (["timeout", "-k", "5", "60s", "pytest"], "pytest"),
        (["nice", "-n", "5", "make", "test"], "make/test"),
        (["uv", "run", "pytest"], "pytest"),
        (["uv", "sync"], "uv/sync"),
        (["env"], "env"),
        (["sudo", "-u"], ""),
        ([], ""),
    ],
)
def test_a_program_is_named_by_what_it_does(argv, kind):
    assert command_kind(argv) == kind


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("pytest tests/unit", "pytest"),
        ("cd repo && pytest -x 2>&1 | tail -20", "pytest"),
        ("cd repo; git add . && git commit -m 'a; b'", "git/commit"),
        ("export A=1\nmake\npython -m pytest", "pytest"),
        ("PYTHONPATH=src python -m pytest", "pytest"),
        ("timeout 60 pytest; echo done", "pytest"),
        ("(cd x && cargo test)", "cargo/test"),
        ("ls -l > out.txt", "ls"),
        ("echo hello", "bash"),
        ("", "bash"),
        ("grep 'unclosed", "grep"),
        ("bash -c 'git status'", "git/status"),
    ],
)
def test_a_script_is_named_by_the_last_thing_it_runs(script, kind):
    assert command_kind(["bash", "-c", script]) == kind
    assert command_kind(["/bin/bash", "-lc", script]) == kind


def test_a_shell_that_reads_a_file_is_named_by_it():
    assert command_kind(["bash", "scripts/run.sh", "x"]) == "run.sh"
    assert command_kind(["bash", "-x", "run.sh"]) == "run.sh"
    assert command_kind(["bash"]) == "bash"
    assert command_kind(["bash", "-c"]) == "bash"
    assert command_kind(["bash", "--login"]) == "bash"


def test_a_script_without_an_end_is_looked_at_for_a_while():
    assert command_kind(["sh", "-c", "true; " * 10_000 + "pytest"]) == "sh"


def test_names_are_short():
    assert len(command_kind(["x" * 1000])) <= 40
    assert len(command_kind(["git", "y" * 1000])) <= 81
