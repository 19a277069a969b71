"""`artangram up` says in one line why it cannot serve."""

import fcntl
import os
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


def test_a_house_with_a_wrong_key_serves_nobody(run, tmp_path: Path):
    house = tmp_path / "house.yaml"
    house.write_text("image: [/srv]")
    said = run("up", "--state-dir", tmp_path / "state", "--config", house)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"error: {house}:1: image: unknown key; did you mean images?\n"
    assert not (tmp_path / "state").exists()
