"""Programs that end with an open client: they end at once, with nothing left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

OPEN = """
import sys, threading
import artangram
from artangram.sandbox.fake import FakeProvider

class Loud(FakeProvider):
    async def close(self):
        await super().close()
        import asyncio
        await asyncio.to_thread(print, "closed", flush=True)  # needs a thread pool

client = artangram.sync.local(provider=Loud())
t = client.trajectory().open()
print(t.run(["echo", "hello"]).stdout, end="", flush=True)
"""


def ended(program: str, tmp_path: Path) -> tuple[int, str, str]:
    path = tmp_path / "program.py"
    path.write_text(OPEN + program)
    done = subprocess.run(
        [sys.executable, "-W", "error", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("it = t.stream(['echo', 'x']); next(it)", 0),
        ("threading.Thread(target=t.run, args=(['sleep', '1000'],), daemon=True).start()", 0),
        ("client.close()", 0),
    ],
)
def test_a_program_that_does_not_close_its_client_ends(
    program: str, code: int, tmp_path: Path
) -> None:
    assert ended(program, tmp_path)[:2] == (code, "hello\nclosed\n")


@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 2),
    reason="Python 3.12.0 and 3.12.1 cannot end a thread pool at exit (gh-113964), and say so",
)
def test_an_error_of_the_program_is_its_only_message(tmp_path: Path) -> None:
    code, out, said = ended("raise RuntimeError('of the program')", tmp_path)
    assert (code, out) == (1, "hello\nclosed\n")
    assert said.splitlines()[-1] == "RuntimeError: of the program"
    assert said.count("Traceback") == 1


def test_a_fork_that_ends_leaves_the_client_of_its_parent_alone(tmp_path: Path) -> None:
    program = """
import os
pid = os.fork()
if pid == 0:
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(t.run(["echo", "again"]).stdout, end="", flush=True)
"""
    code, out, _ = ended(program, tmp_path)
    assert (code, out) == (0, "hello\nagain\nclosed\n")
