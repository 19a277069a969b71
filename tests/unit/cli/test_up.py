"""`artangram up` says in one line why it cannot serve."""

import fcntl
import os
import socket
from pathlib import Path

import pytest


@pytest.fixture
def taken(tmp_path: Path):
    """A state directory that somebody else uses."""
    lock = os.open(tmp_path / "journal.sqlite.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield tmp_path
    os.close(lock)


def test_a_state_directory_in_use_is_named(run, taken: Path):
    said = run("up", "--state-dir", taken, "--port", "0")
    assert (said.code, said.out) == (2, "")
    journal = taken / "journal.sqlite"
    assert said.err.startswith(f"error: state: {journal}: another orchestrator writes it")


def test_a_cluster_with_a_wrong_key_serves_nobody(run, tmp_path: Path):
    client = tmp_path / "cluster.yaml"
    client.write_text("image: [/srv]")
    said = run("up", "--state-dir", tmp_path / "state", client)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"error: {client}:1: image: unknown key; did you mean images?\n"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("pools: {cpu: {kind: cpu, cores: -3}}", "1: pools.cpu.cores: -3 is out of range"),
        ("policy: fcfs\ncores: 2", "2: cores: belongs to a pool; write it as `pools: {cpu: "),
        ("pools: {cpu: {kind: cpu, cores: many}}", "1: pools.cpu.cores: 'many' is not a number"),
        ("\njobs:\n  a: {share: 0}", "3: jobs.a.share: 0 is out of range"),
        ("[1, 2]", "1: is not a mapping"),
    ],
)
def test_what_a_cluster_cannot_be_is_named_with_its_line(run, tmp_path: Path, text: str, line: str):
    client = tmp_path / "cluster.yaml"
    client.write_text(text)
    said = run("up", "--state-dir", tmp_path / "state", client)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {client}:{line}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\npolicy: elastik", "2: policy: unknown policy 'elastik'"),
        ("\nfunctions:\n  - absent_module:f", "3: functions.absent_module:f: cannot be imported"),
        ("\napis:\n  s: {base_url: here}", "3: apis.s.base_url: 'here' is not an HTTP address"),
        (
            'apis:\n  s:\n    base_url: "http://a"\n    headers: {k: "${ABSENT_KEY}"}',
            "4: apis.s.headers: ${ABSENT_KEY} is not set",
        ),
        ("policy: fcfs\napis:\n  cpu: {base_url: 'http://a'}", "3: apis.cpu: is another resource"),
        ('services:\n  a: {loader: "m:f"}', "2: services: need devices to run on"),
    ],
)
def test_an_offer_that_cannot_be_made_is_named_with_its_line(
    run, tmp_path: Path, text: str, line: str
):
    client = tmp_path / "cluster.yaml"
    client.write_text(text)
    said = run("up", "--state-dir", tmp_path / "state", "--port", "0", client)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {client}:{line}")


def test_what_was_said_beside_the_file_is_not_blamed_on_it(run, tmp_path: Path):
    client = tmp_path / "cluster.yaml"
    client.write_text("policy: elastic")
    said = run("up", "--state-dir", tmp_path / "s", client, "--policy", "elastik")
    assert said.err.startswith("error: policy: unknown policy 'elastik'")


def test_a_port_in_use_is_named_before_anything_is_opened(run, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        said = run("up", "--state-dir", tmp_path / "state", "--port", port)
    assert said.code == 2
    assert said.err.startswith(f"error: address: 127.0.0.1 port {port}: Address already in use")
    assert not (tmp_path / "state").exists()


def test_a_state_directory_that_cannot_be_is_named(run, tmp_path: Path):
    (tmp_path / "file").touch()
    said = run("up", "--state-dir", tmp_path / "file" / "state", "--port", "0")
    assert said.code == 2
    assert said.err.endswith("Not a directory; name a directory you may write\n")


def test_a_state_directory_too_deep_for_a_socket_is_named(run, tmp_path: Path):
    deep = tmp_path / ("d" * 100)
    said = run("up", "--state-dir", deep, "--port", "0")
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert line.startswith(f"error: state_dir: {deep / 'agent.sock'} has ")
    assert line.endswith("path 103 at most; take a directory with a shorter path")


def test_a_journal_that_cannot_be_locked_is_named(run, tmp_path: Path):
    (tmp_path / "journal.sqlite.lock").mkdir()
    said = run("up", "--state-dir", tmp_path, "--port", "0")
    assert (said.code, said.out) == (2, "")
    assert said.err == f"error: {tmp_path}: Is a directory; name a directory you may write\n"


def test_a_token_that_nobody_could_send_is_refused(run, tmp_path: Path):
    said = run("up", "--state-dir", tmp_path / "state", "--port", "0", "--token", "two\nlines")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: token: has characters that no HTTP header can carry")


def test_a_run_that_asks_too_little_is_named_with_its_line(run, tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text("model: models\ntasks: {calc: {}}\nsteps: -1\n")
    said = run("train", file)
    assert (said.code, said.err) == (2, f"error: {file}:3: steps: -1 is too few; say 1 or more\n")


def test_a_fence_that_any_glitch_would_reach_is_refused(run, tmp_path: Path):
    client = tmp_path / "cluster.yaml"
    client.write_text("fence_s: 5")
    said = run("up", "--agents", "127.0.0.1:0", "--state-dir", tmp_path / "state", client)
    assert (said.code, said.out) == (2, "")
    problem = (
        "fence_s: 5 s is not longer than the 6 s of a glitch; leave it out: 30 s is the default"
    )
    assert said.err == f"error: {client}:1: {problem}\n"
