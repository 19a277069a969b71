"""What is typed wrong is one line; what is asked for helps; Ctrl-C is no fault."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from artangram.cli.verbs import EXAMPLES, VERBS

MAIN = "from artangram.cli import main; main()"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("simulat", "artangram: No such command 'simulat'. Did you mean 'simulate'?"),
        ("trace genrate", "artangram trace: No such command 'genrate'. Did you mean 'generate'?"),
        ("run --memory-mb x a", "artangram run: Invalid value for '--memory-mb'"),
        ("run", "artangram run: Missing argument 'command'"),
        ("run ls -la", "artangram run: No such option: -l; put -- before the command"),
        ("demo --steps -5", "artangram demo: Invalid value for '--steps'"),
        ("up --cores 0", "artangram up: Invalid value for '--cores'"),
    ],
)
def test_what_is_typed_wrong_is_one_line(run, words: str, line: str):
    said = run(*words.split())
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {line}")
    assert said.err.count("\n") == 1
    assert "--help`" in said.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_helps_with_examples(run, verb: str, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    said = run(verb, "--help")
    assert said.code == 0
    assert EXAMPLES[verb]
    assert all(f"$ {example}" in said.out for example in EXAMPLES[verb])


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (["trace", "record"], "$ artangram trace record state day.jsonl.gz"),
        (["bench", "live"], "$ artangram bench live --json -"),
    ],
)
def test_every_part_of_a_verb_helps_with_an_example(run, words: list[str], example: str):
    assert example in run(*words, "--help").out


@pytest.mark.parametrize("words", [[], ["trace"], ["bench"]])
def test_who_asks_for_nothing_is_helped(run, words: list[str]):
    said = run(*words)
    assert (said.code, said.err) == (2, "")
    assert "Usage: artangram" in said.out


def test_names_are_shown_as_they_are(run, tmp_path: Path):
    out = tmp_path / "[red]:smile:.jsonl"
    said = run("trace", "generate", out, "--family", "lab", "--set", "n=2", "--json", "-")
    assert f"{out}: 2 trajectories, 2 actions of the lab family" in said.err
    assert said.json == {"trace": str(out), "trajectories": 2, "actions": 2}


def test_a_trace_takes_the_place_of_no_device(run, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    said = run("trace", "generate", tmp_path / "pipe", "--family", "lab", "--set", "n=2")
    assert said.code == 2
    assert said.err.startswith(f"error: {tmp_path / 'pipe'}: is not a file")
    assert (tmp_path / "pipe").is_fifo()


def test_a_size_without_a_cluster_is_refused(run, tmp_path: Path):
    said = run("trace", "generate", tmp_path / "x.jsonl", "--size", "cores=8")
    assert said.code == 2
    assert said.err.startswith("error: --size: changes a cluster, and --cluster is missing")


def test_who_reads_only_the_beginning_hears_no_complaint():
    verb = subprocess.Popen(
        [sys.executable, "-c", MAIN, "trace", "families", "--json", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert verb.stdout is not None
    verb.stdout.close()
    _, said = verb.communicate()
    assert b"Traceback" not in said
    assert b"rror" not in said


def test_ctrl_c_is_no_fault(tmp_path: Path):
    os.mkfifo(tmp_path / "never.yaml")
    verb = subprocess.Popen(
        [sys.executable, "-c", MAIN, "simulate", "--cluster", "never.yaml", "--trace", "x"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    # Opening it returns when the verb has begun to read.
    with (tmp_path / "never.yaml").open("w"):
        verb.send_signal(signal.SIGINT)
        _, said = verb.communicate()
    assert (verb.returncode, said) == (130, b"")
