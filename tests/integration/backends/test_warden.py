"""A warden and a program in the place of the agent: started, adopted, started again, ended."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from busy_machine import PATIENCE_S
from msgspec import structs
from process_support import environ, is_alive

from artangram.backends.agentlock import lock_path
from artangram.backends.ray import warden as wardens
from artangram.backends.ray.records import AgentOrder, AgentState
from artangram.backends.ray.warden import Warden, end_agent

ORDER = AgentOrder(
    node="a",
    host="10.0.0.1",
    port=7411,
    fingerprint="sha256:0",
    token="secret",
    cores=2,
    patience_s=600.0,
)
AGENT = """
import os, signal, sys
from artangram.backends.agentlock import alone
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with alone("a", os.environ["ARTANGRAM_JOIN_TOKEN"]):
    print(os.getpid(), os.getsid(0), "RAY_JOB_ID" in os.environ, flush=True)
    signal.pause()
"""

FIRST = """
import msgspec, os, sys, time
from artangram.backends.ray import warden
from artangram.backends.ray.records import AgentOrder
warden._VERB, order = sys.argv[1], msgspec.json.decode(sys.argv[2], type=AgentOrder)
first = warden.Warden(order)
while first.look(order).pid is None:
    time.sleep(0.01)
print(first.look(order).pid, flush=True)
os._exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, value in environ(TMPDIR=str(tmp_path), RAY_JOB_ID="1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wardens, "_VERB", AGENT)
    monkeypatch.setattr(wardens, "PAUSE_S", 0.01)
    monkeypatch.setattr(wardens, "LOOK_EVERY_S", 0.02)
    yield tmp_path
    end_agent("a", "secret")


def until(holds: Callable[[], AgentState | bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def pid_of(warden: Warden) -> int:
    until(lambda: warden.look(ORDER).pid is not None)
    pid = warden.look(ORDER).pid
    assert pid is not None
    return pid


def log_of() -> str:
    return lock_path("a", "secret").with_suffix(".log").read_text()


def test_it_starts_an_agent_in_a_session_of_its_own_without_rays_environment(
    folder: Path,
) -> None:
    warden = Warden(ORDER)
    pid = pid_of(warden)
    said = log_of().split()
    assert said[0] == str(pid)
    assert said[1] not in (str(os.getsid(0)), str(os.getpid()))
    assert said[2] == "False"
    assert not warden.look(ORDER).is_adopted
    warden.end()
    assert not is_alive(pid)


def test_the_next_warden_adopts_the_agent_that_runs(folder: Path) -> None:
    first = [sys.executable, "-c", FIRST, AGENT, msgspec.json.encode(ORDER).decode()]
    pid = int(subprocess.run(first, check=True, stdout=subprocess.PIPE).stdout)
    assert is_alive(pid), "it has no parent that could take it along"
    second = Warden(ORDER)
    assert pid_of(second) == pid
    assert second.look(ORDER).is_adopted
    second.end()
    assert not is_alive(pid)


def test_an_agent_that_was_killed_is_started_again(folder: Path) -> None:
    warden = Warden(ORDER)
    pid = pid_of(warden)
    os.kill(pid, signal.SIGKILL)
    until(lambda: warden.look(ORDER).pid not in (None, pid))
    warden.end()


def test_an_agent_that_left_is_not(folder: Path) -> None:
    warden = Warden(ORDER)
    os.kill(pid_of(warden), signal.SIGTERM)
    until(lambda: warden.look(ORDER).has_left)
    time.sleep(0.1)
    assert warden.look(ORDER).pid is None
    warden.end()


def test_an_agent_that_cannot_start_is_tried_again_with_its_last_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wardens, "_VERB", "import sys; sys.exit('refused: a wrong token')")
    warden = Warden(ORDER)
    until(lambda: log_of().count("refused") >= 2 if warden.look(ORDER).trouble else False)
    assert warden.look(ORDER).trouble == "refused: a wrong token"
    warden.end()


def test_a_head_at_another_address_gets_an_agent_that_joins_there(folder: Path) -> None:
    first = Warden(ORDER)
    pid = pid_of(first)
    moved = structs.replace(ORDER, port=9)
    until(lambda: first.look(moved).pid not in (None, pid))
    assert not is_alive(pid)
    first.end()


def test_without_a_head_it_ends_its_agent_and_goes(folder: Path) -> None:
    gone: list[bool] = []
    warden = Warden(ORDER, abandoned_s=1.0, on_abandoned=lambda: gone.append(True))
    pid = pid_of(warden)
    assert not gone
    until(lambda: bool(gone))
    assert not is_alive(pid)


def test_a_claim_without_an_agent_starts_none(folder: Path) -> None:
    warden = Warden(None)
    time.sleep(0.1)
    assert warden.look(None) == AgentState()
    warden.end()
    assert not lock_path("a", "secret").exists()
