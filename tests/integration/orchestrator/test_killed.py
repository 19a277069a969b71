"""kill -9 at any moment: what was accepted has exactly one ending, and nothing is left over."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from busy_machine import PATIENCE_S, within
from process_support import is_alive

from artangram.core.ids import ActionId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.decisions import Report
from artangram.managers.remote import RemoteAgent, connect, spawn
from artangram.observe.journal import JournalError, read_entries
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.orchestrator.client import Client
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.local import NODE, running
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe

HERE = Path(__file__).parent
SOON_S = 0.2
FAKE = ("--provider", "fake", "--grace-s", "20")

needs_namespaces = pytest.mark.skipif(
    probe().level < IsolationLevel.NAMESPACES, reason="this machine cannot make namespaces"
)
PROVIDERS = ["fake", pytest.param("namespace", marks=needs_namespaces)]


def a_killed_life(state_dir: Path, life: int, *, provider: str, chance: random.Random) -> list[str]:
    """What an orchestrator had accepted when it was killed."""
    argv = [sys.executable, str(HERE / "victim.py"), str(state_dir), str(life), provider]
    victim = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    with victim.stdout:
        lines = [victim.stdout.readline() for _ in range(20)]
        time.sleep(chance.uniform(0.0, 0.3))
        victim.send_signal(signal.SIGKILL)
        lines += [line for line in victim.stdout if line.endswith("\n")]
    victim.wait()
    return [line.split()[1] for line in lines if line.startswith("accepted")]


async def outcomes(orchestrator: Orchestrator, accepted: list[str]) -> Counter[Outcome]:
    async with asyncio.timeout(PATIENCE_S):
        results = [await orchestrator.receipt(ActionId(name)).ended for name in accepted]
    return Counter(result.outcome for result in results)


def num_reports(state_dir: Path) -> Counter[str]:
    return Counter(
        decision.record.action_id
        for entry in read_entries(state_dir / "journal.sqlite")
        for decision in entry.decisions
        if isinstance(decision, Report)
    )


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_killed_orchestrator_forgets_nothing(tmp_path: Path, provider: str) -> None:
    chance, accepted = random.Random(provider), []
    for life in range(3):
        accepted += await asyncio.to_thread(
            a_killed_life, tmp_path, life, provider=provider, chance=chance
        )
    assert len(accepted) > 30
    async with running(state_dir=tmp_path, cores=2) as (orchestrator, _):
        assert await outcomes(orchestrator, accepted) == {Outcome.SUCCEEDED: len(accepted)}
        for trajectory in list(orchestrator.ledger.trajectories):
            await orchestrator.close(trajectory)
        found = await orchestrator.nodes[NODE].attach(_Nobody())
        assert (found.running, found.trajectories, found.ended) == ((), (), ())
    reports = await asyncio.to_thread(num_reports, tmp_path)
    assert set(reports.values()) == {1}
    assert set(accepted) <= set(reports)


async def test_an_agent_that_was_found_and_is_out_of_reach_is_replaced(tmp_path: Path) -> None:
    chance = random.Random(1)
    accepted = await asyncio.to_thread(a_killed_life, tmp_path, 0, provider="fake", chance=chance)
    async with running(state_dir=tmp_path, cores=2, agent_options=FAKE) as (orchestrator, _):
        await outcomes(orchestrator, accepted)
        (found,) = [a.pid for a in orchestrator.nodes.values() if isinstance(a, RemoteAgent)]
        # Who connects takes the place of who was connected.
        thief = await connect(NODE, tmp_path / "agent.sock", now=time.time)
        async with Client(Embedded(orchestrator)).trajectory() as t:
            assert (await t.run(["echo", "again"], repeatable=True)).stdout == "again\n"
        assert not is_alive(found)
        await thief.detach()


async def test_who_is_refused_ends_nothing(tmp_path: Path) -> None:
    chance = random.Random(0)
    accepted = await asyncio.to_thread(a_killed_life, tmp_path, 0, provider="fake", chance=chance)
    with pytest.raises(JournalError, match="another cluster or policy"):
        async with running(state_dir=tmp_path, cores=2, policy="fcfs"):
            pass
    async with running(state_dir=tmp_path, cores=2) as (orchestrator, _):
        assert await outcomes(orchestrator, accepted) == {Outcome.SUCCEEDED: len(accepted)}


async def test_what_opens_slowly_does_not_use_up_the_agents_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "import time\ntime.sleep(1.0)\ndef nothing() -> None: ...\n"
    await asyncio.to_thread((tmp_path / "opens_slowly.py").write_text, slow)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = ("--provider", "fake", "--grace-s", "0.5")
    agent = await spawn(NODE, tmp_path / "agent.sock", now=time.time, options=options)
    pid = agent.pid
    await agent.detach()
    options = ClusterOptions(functions=("opens_slowly:nothing",))
    async with running(state_dir=tmp_path, cores=2, options=options) as (orchestrator, _):
        (found,) = [a.pid for a in orchestrator.nodes.values() if isinstance(a, RemoteAgent)]
    await agent.aclose()
    assert found == pid


async def until_running(orchestrator: Orchestrator) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while orchestrator.status().running == 0:  # noqa: ASYNC110 - an agent tells nobody else
            await asyncio.sleep(0.01)


class _Nobody:
    def on_ended(self, *_: object) -> None: ...

    def on_lost(self, *_: object) -> None: ...


async def test_orchestrator_and_agent_killed_ends_as_infrastructure(tmp_path: Path) -> None:
    async with running(state_dir=tmp_path, cores=2, agent_options=FAKE) as (orchestrator, _):
        client = Client(Embedded(orchestrator))
        async with client.trajectory(id="t") as t:
            await t.run(["true"])
            task = asyncio.create_task(t.run(["sleep", "1000"]))
            await until_running(orchestrator)
            (pid,) = [a.pid for a in orchestrator.nodes.values() if isinstance(a, RemoteAgent)]
            os.kill(pid, signal.SIGKILL)
            result = await task
            assert (result.outcome, "lost" in result.reason) == (Outcome.INFRA_FAILED, True)
            after = await t.run(["true"])
            assert after.outcome is Outcome.INFRA_FAILED
        async with client.trajectory() as fresh:
            assert (await fresh.run(["echo", "again"])).stdout == "again\n"
        (other,) = [a.pid for a in orchestrator.nodes.values() if isinstance(a, RemoteAgent)]
        assert other != pid
    assert not is_alive(other)


def processes_with(word: str) -> list[int]:
    """The processes of this machine that have `word` in their argv."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and word in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


@needs_namespaces
async def test_a_killed_agent_takes_everything_with_it(tmp_path: Path) -> None:
    word = f"1000.{random.Random().randrange(10**9)}"
    async with (
        running(state_dir=tmp_path, cores=2) as (orchestrator, _),
        Client(Embedded(orchestrator)).trajectory() as t,
    ):
        task = asyncio.create_task(t.run(["sleep", word]))
        async with asyncio.timeout(PATIENCE_S):
            while not (started := await asyncio.to_thread(processes_with, word)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        (agent,) = orchestrator.nodes.values()
        assert isinstance(agent, RemoteAgent)
        os.kill(agent.pid, signal.SIGKILL)
        assert (await task).outcome is Outcome.INFRA_FAILED
        assert await within(SOON_S, lambda: not any(map(is_alive, started)))
        assert not await asyncio.to_thread(processes_with, word)


async def test_a_repeatable_action_survives_its_agent(tmp_path: Path) -> None:
    async with (
        running(state_dir=tmp_path, cores=2, agent_options=FAKE) as (orchestrator, _),
        Client(Embedded(orchestrator)).trajectory() as t,
    ):
        task = asyncio.create_task(t.run(["sleep", "0.5"], repeatable=True))
        await until_running(orchestrator)
        (agent,) = orchestrator.nodes.values()
        assert isinstance(agent, RemoteAgent)
        os.kill(agent.pid, signal.SIGKILL)
        result = await task
        assert (result.ok, result.record.attempts) == (True, 2)
