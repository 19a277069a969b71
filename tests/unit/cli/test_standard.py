"""Standard output that takes nothing more is one line, whatever was to be printed."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from artangram.cli.verbs import VERBS

MAIN = "from artangram.cli import main; main()"
FULL = "error: standard output: no space left on device; redirect it to a place with room\n"

buffered = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def printed_on(
    device: int, *words: str | Path, unbuffered: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, words)],
        stdout=device,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        check=False,
    )


def on_a_full_disk(*words: str | Path, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    with Path("/dev/full").open("wb") as full:
        return printed_on(full.fileno(), *words, unbuffered=unbuffered)


@pytest.mark.parametrize("verb", [*VERBS, ""])
def test_a_full_disk_is_one_line_for_every_verb(verb: str):
    ended = on_a_full_disk(*verb.split(), "--help")
    assert (ended.returncode, ended.stderr) == (1, FULL)


@buffered
@pytest.mark.parametrize(
    "words", [["--version"], ["trace", "families"], ["run", "--", "echo", "hello"]]
)
def test_a_full_disk_is_one_line_buffered_or_not(words: list[str], unbuffered: str):
    ended = on_a_full_disk(*words, unbuffered=unbuffered)
    assert (ended.returncode, ended.stderr) == (1, FULL)


@buffered
def test_json_that_finds_no_room_is_one_line(cluster: Path, trace: Path, unbuffered: str):
    words = ("simulate", "--cluster", cluster, "--trace", trace, "--json", "-")
    ended = on_a_full_disk(*words, unbuffered=unbuffered)
    assert ended.returncode == 1
    assert ended.stderr.endswith(FULL)
    assert "Traceback" not in ended.stderr


def test_a_service_that_cannot_say_where_it_serves_does_not_blame_its_folder(tmp_path: Path):
    ended = on_a_full_disk("up", "--port", "0", "--state-dir", tmp_path)
    assert (ended.returncode, ended.stderr) == (1, FULL)


@buffered
@pytest.mark.parametrize("words", [["--version"], ["trace", "families"], ["run", "--", "yes"]])
def test_who_stops_reading_hears_nothing(words: list[str], unbuffered: str):
    reader, writer = os.pipe()
    os.close(reader)
    with closing(os.fdopen(writer, "wb")) as pipe:
        ended = printed_on(pipe.fileno(), *words, unbuffered=unbuffered)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize(
    ("closed", "code", "said"), [(">&-", 2, "error: standard output: is closed"), ("2>&-", 0, "")]
)
def test_a_closed_stream_is_no_traceback(closed: str, code: int, said: str):
    line = f'"$0" -c "$1" run -- sh -c "echo told; echo warned >&2" {closed}'
    ended = subprocess.run(
        ["sh", "-c", line, sys.executable, MAIN], capture_output=True, text=True, check=False
    )
    assert ended.returncode == code
    assert ended.stderr.startswith(said)
    assert ended.stderr.count("\n") == (1 if said else 0)
