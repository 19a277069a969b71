"""One agent per name on a machine, and how a supervisor finds it."""

import os
import tempfile
from pathlib import Path

import pytest

from artangram.backends import agentlock
from artangram.backends.agentlock import alone, holder, is_held, lock_path
from artangram.core.errors import BadInput


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(agentlock, "ENDING_S", 0.0)


def test_a_lock_names_the_process_that_holds_it() -> None:
    path = lock_path("a", "token")
    assert (is_held(path), holder(path)) == (False, None)
    with alone("a", "token"):
        assert (is_held(path), holder(path)) == (True, os.getpid())
    assert (is_held(path), holder(path)) == (False, None)


def test_a_second_agent_is_refused_and_leaves_the_name_of_the_first() -> None:
    with alone("a", "token"):
        with pytest.raises(BadInput, match="an agent named a runs on this machine"):
            alone("a", "token").__enter__()
        assert holder(lock_path("a", "token")) == os.getpid()


def test_clusters_and_names_are_told_apart() -> None:
    with alone("a", "token"), alone("b", "token"), alone("a", "another"):
        assert not is_held(lock_path("b", "another"))


def test_a_process_that_is_gone_is_never_named() -> None:
    path = lock_path("a", "token")
    with alone("a", "token"):
        path.write_text("999999999\n")
        assert (is_held(path), holder(path)) == (True, None)
