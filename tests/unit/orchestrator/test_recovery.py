"""A second life from the journal of the first: nothing accepted is forgotten or done twice.

A life that ends here without a word is a killed one: nothing is written on the way out.
"""

import asyncio
import errno
import pickle
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from busy_machine import PATIENCE_S
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.events import Finished
from artangram.managers.agent import Listener, NodeAgent, NodeInventory, Run
from artangram.managers.local import LocalAgent
from artangram.observe.journal import VERSION, Entry, Journal, JournalError, KeptRecord
from artangram.observe.journalfile import open_journal
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.records import ActionResult, Broken, Opening, Receipt
from artangram.orchestrator.recovery import Setup, frozen, thawed
from artangram.sandbox.fake import Console, FakeProvider
from artangram.testing.fakes import NODE, FakeCluster, a_setup, fake_cluster

SETUP = a_setup(cores=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@asynccontextmanager
async def a_life(
    path: Path,
    agent: LocalAgent | None = None,
    *,
    setup: Setup = SETUP,
    bounds: Bounds | None = None,
) -> AsyncIterator[FakeCluster]:
    journal, past = await open_journal(path)
    try:
        async with fake_cluster(
            setup, journal=journal, past=past, agent=agent, bounds=bounds
        ) as client:
            yield client
    finally:
        await journal.close()


class Gate:
    """A program that counts its runs and waits to be let through."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.opened = asyncio.Event()

    async def __call__(self, console: Console, argv: tuple[str, ...]) -> int:
        self.runs[argv[1]] += 1
        await self.opened.wait()
        console.print(argv[1].encode())
        return 0


@pytest.fixture
def gate() -> Gate:
    return Gate()


class CountingAgent(LocalAgent):
    num_started = 0

    def start(self, run: Run) -> None:
        self.num_started += 1
        super().start(run)


@pytest.fixture
async def agent(gate: Gate) -> AsyncIterator[CountingAgent]:
    """An agent that outlives its orchestrators."""
    provider = FakeProvider(programs={"gate": gate})
    agent = CountingAgent(NODE, provider, now=asyncio.get_running_loop().time)
    yield agent
    await agent.aclose()


async def submitted(client: FakeCluster, name: str, *argv: str, **more: object) -> Receipt:
    """An accepted action of a trajectory of its own."""
    await client.trajectory(id=name, memory_mb=16).__aenter__()
    request = RunRequest(
        trajectory=TrajectoryId(name), argv=argv, kind="x", key=f"key-{name}", **more
    )
    receipt = client.backend.submit(request)
    await client.backend.orchestrator.written()
    return receipt


async def ending(client: FakeCluster, receipt: Receipt) -> ActionResult:
    async with asyncio.timeout(PATIENCE_S):
        return await client.orchestrator.receipt(receipt.action_id).ended


async def test_what_waited_runs_in_the_next_life(path: Path) -> None:
    async with a_life(path) as client:
        await submitted(client, "a", "sleep", "1000")
        waiting = await submitted(client, "b", "echo", "b")
    async with a_life(path) as client:
        result = await ending(client, waiting)
        assert (result.outcome, result.stdout) == (Outcome.SUCCEEDED, "b\n")


async def test_what_a_dead_process_had_opened_is_closed_unless_it_is_used(path: Path) -> None:
    async with a_life(path) as client:
        for name in ("left", "used"):
            await client.trajectory(id=name, memory_mb=16).__aenter__()
        remote = Opening(trajectory=TrajectoryId("remote"), memory_mb=16, owner="a client")
        await client.orchestrator.open(remote)
    async with a_life(path, bounds=Bounds(owner_silence_s=1.0)) as client:
        ledger = client.orchestrator.ledger
        assert set(ledger.trajectories) == {"left", "used", "remote"}
        request = RunRequest(trajectory=TrajectoryId("used"), argv=("sleep", "2"), kind="x")
        running = asyncio.create_task(client.backend.run(request))
        async with asyncio.timeout(PATIENCE_S):
            while "remote" in ledger.trajectories:
                assert "used" in ledger.trajectories
                await asyncio.sleep(0.02)
            assert (await running).ok
            while ledger.trajectories:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert client.orchestrator.status().abandoned == 3


async def test_what_ran_on_a_lost_agent_failed_by_infrastructure(path: Path) -> None:
    async with a_life(path) as client:
        lost = await submitted(client, "a", "sleep", "1000")
    async with a_life(path) as client:
        result = await ending(client, lost)
        assert (result.outcome, result.record.attempts) == (Outcome.INFRA_FAILED, 1)
        assert "restarted" in result.reason


async def test_what_may_repeat_runs_again(path: Path) -> None:
    async with a_life(path) as client:
        lost = await submitted(client, "a", "sleep", "0.2", repeatable=True)
    async with a_life(path) as client:
        result = await ending(client, lost)
        assert (result.outcome, result.record.attempts) == (Outcome.SUCCEEDED, 2)


async def test_the_name_of_a_closed_trajectory_may_be_given_again(path: Path) -> None:
    async with a_life(path) as client:
        async with client.trajectory(id="a", memory_mb=16) as first:
            assert (await first.run(["true"])).ok
        again = await submitted(client, "a", "sleep", "0.2", repeatable=True)
    async with a_life(path) as client:
        assert (await ending(client, again)).ok


async def test_files_that_are_gone_are_missed(path: Path) -> None:
    async with a_life(path) as client:
        await (await submitted(client, "a", "true")).ended
    async with a_life(path) as client:
        request = RunRequest(trajectory=TrajectoryId("a"), argv=("true",), kind="x")
        result = await client.backend.run(request)
        assert (result.outcome, "files" in result.reason) == (Outcome.INFRA_FAILED, True)


async def test_results_are_remembered_by_id_and_key(path: Path) -> None:
    async with a_life(path) as client:
        receipt = await submitted(client, "a", "echo", "once")
        first = await receipt.ended
    async with a_life(path) as client:
        assert await ending(client, receipt) == first
        request = RunRequest(
            trajectory=TrajectoryId("a"), argv=("echo", "once"), kind="x", key="key-a"
        )
        assert await client.backend.run(request) == first
        assert await client.backend.run(structs.replace(request, deadline_s=9.0)) == first


async def test_a_key_belongs_to_its_job_and_its_request_over_restarts(path: Path) -> None:
    async with a_life(path) as client:
        first = await (await submitted(client, "a", "echo", "secret")).ended
        await client.backend.close(TrajectoryId("a"))
    request = RunRequest(
        trajectory=TrajectoryId("a"), argv=("echo", "secret"), kind="x", key="key-a"
    )
    async with a_life(path) as client:
        with pytest.raises(BadInput, match=r"key-a.*another request"):
            await client.backend.run(structs.replace(request, argv=("echo", "other")))
        await client.trajectory(id="a", job="b", memory_mb=16).__aenter__()
        with pytest.raises(BadInput, match=r"key-a.*another job"):
            await client.backend.run(request)
        await client.backend.close(TrajectoryId("a"))
        assert await client.backend.run(request) == first


async def test_what_still_runs_is_found_again(path: Path, agent: LocalAgent, gate: Gate) -> None:
    async with a_life(path, agent) as client:
        running = await submitted(client, "a", "gate", "a")
        waiting = await submitted(client, "b", "gate", "b")
    async with a_life(path, agent) as client:
        assert client.orchestrator.status().running == 1
        gate.opened.set()
        results = [await ending(client, receipt) for receipt in (running, waiting)]
        assert [result.stdout for result in results] == ["a", "b"]
    assert gate.runs == {"a": 1, "b": 1}


async def test_what_ended_meanwhile_is_collected_once(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    async with a_life(path, agent) as client:
        receipt = await submitted(client, "a", "gate", "a")
    gate.opened.set()
    await asyncio.sleep(0.05)
    async with a_life(path, agent) as client:
        assert (await ending(client, receipt)).stdout == "a"
    assert agent.inventory().ended == ()
    async with a_life(path, agent) as client:
        assert (await ending(client, receipt)).stdout == "a"
    assert gate.runs == {"a": 1}


class Killed:
    """The journal of an orchestrator that is killed before it has written any more."""

    is_lasting = True
    path = None
    warning = ""
    takes_more = True

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.is_killed = False
        self.kills_at_end_of = ""

    def append(self, entry: Entry, **more: Any) -> int:
        ends = [event.action_id for event in entry.events if isinstance(event, Finished)]
        self.is_killed |= self.kills_at_end_of in ends
        return 1 if self.is_killed else self._journal.append(entry, **more)

    def compact(self, snapshot: bytes, **more: Any) -> None:
        self._journal.compact(snapshot, **more)

    def kept(self, key: str) -> KeptRecord | None:
        return self._journal.kept(key)

    def settled(self, id: str) -> bytes | None:
        return self._journal.settled(id)

    async def close(self) -> None:
        await self._journal.close()


@asynccontextmanager
async def a_forgotten_life(
    path: Path, agent: LocalAgent
) -> AsyncIterator[tuple[FakeCluster, Killed]]:
    """As `a_life`, to be killed before its last words are written down."""
    journal, past = await open_journal(path)
    lossy = Killed(journal)
    try:
        async with fake_cluster(SETUP, journal=lossy, past=past, agent=agent) as client:
            yield client, lossy
    finally:
        await journal.close()


async def unnamed(client: FakeCluster, trajectory: str, *argv: str) -> Receipt:
    request = RunRequest(trajectory=TrajectoryId(trajectory), argv=argv, kind="x")
    receipt = client.backend.submit(request)
    await client.backend.orchestrator.written()
    return receipt


@pytest.mark.parametrize("is_over", [True, False])
async def test_what_was_started_without_a_word_is_not_started_again(
    path: Path, agent: CountingAgent, gate: Gate, is_over: bool
) -> None:
    async with a_forgotten_life(path, agent) as (client, journal):
        await (await submitted(client, "b", "true")).ended
        first = await submitted(client, "a", "gate", "a")
        second = await unnamed(client, "b", "gate" if is_over else "sleep", "0.5")
        journal.is_killed = True
        gate.opened.set()
        await asyncio.sleep(0.1)
        assert len(agent.inventory().running) == (0 if is_over else 1)
    async with a_life(path, agent) as client:
        assert (await ending(client, first)).stdout == "a"
        result = await ending(client, second)
        assert (result.outcome, result.record.attempts) == (Outcome.SUCCEEDED, 1)
        assert agent.inventory().running == ()
    assert agent.inventory().ended == ()
    assert gate.runs == ({"a": 1, "0.5": 1} if is_over else {"a": 1})
    assert agent.num_started == 3


async def test_the_end_of_what_was_started_without_a_word_is_kept_until_it_is_written(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    async with a_forgotten_life(path, agent) as (client, journal):
        await (await submitted(client, "b", "true")).ended
        first = await submitted(client, "a", "gate", "a")
        second = await unnamed(client, "b", "gate", "b")
        journal.is_killed = True
        gate.opened.set()
        await asyncio.sleep(0.1)
    async with a_forgotten_life(path, agent) as (client, journal):
        journal.kills_at_end_of = second.action_id
        assert (await ending(client, first)).stdout == "a"
        await asyncio.sleep(0.1)
        assert journal.is_killed
    async with a_life(path, agent) as client:
        assert (await ending(client, second)).stdout == "b"
    assert gate.runs == {"a": 1, "b": 1}


async def test_what_was_started_without_a_word_is_stopped_when_nobody_wants_it(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    async with a_forgotten_life(path, agent) as (client, journal):
        await (await submitted(client, "b", "true")).ended
        await submitted(client, "a", "gate", "a")
        waiting = await unnamed(client, "b", "sleep", "1000")
        journal.is_killed = True
        gate.opened.set()
        await asyncio.sleep(0.1)
        assert [run.action_id for run in agent.inventory().running] == [waiting.action_id]
    async with a_life(path, agent) as client:
        client.orchestrator.cancel(waiting.action_id)
        assert (await ending(client, waiting)).outcome is Outcome.CANCELLED
        await asyncio.sleep(0.1)
        assert agent.inventory().running == ()
    assert agent.inventory().ended == ()


async def test_the_files_of_a_trajectory_stay_until_its_closing_is_written_down(
    path: Path, agent: LocalAgent
) -> None:
    async with a_forgotten_life(path, agent) as (client, journal):
        t = await client.trajectory(id="a", memory_mb=16).__aenter__()
        await t.write("x", b"kept")
        journal.is_killed = True
        client.orchestrator.close(t.id)
        await asyncio.sleep(0.1)
    async with a_life(path, agent) as client:
        again = client.trajectory(id="a")
        assert (await again.run(["cat", "x"])).stdout == "kept"
        await client.orchestrator.close(t.id)
        assert agent.inventory().trajectories == ()


async def test_what_has_a_key_does_not_start_before_it_is_known(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    gate.opened.set()
    async with a_forgotten_life(path, agent) as (client, journal):
        await (await submitted(client, "a", "gate", "written")).ended
        journal.is_killed = True
        request = RunRequest(
            trajectory=TrajectoryId("a"), argv=("gate", "unwritten"), kind="x", key="another"
        )
        client.backend.submit(request)
        await asyncio.sleep(0.1)
    assert gate.runs == {"written": 1}


async def test_who_leaves_at_once_is_not_missed_by_the_journal(path: Path) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    async with a_life(path) as client:
        await client.trajectory(id="a", memory_mb=16).__aenter__()
        client.backend.submit(RunRequest(trajectory=TrajectoryId("a"), argv=("true",), kind="x"))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert complaints == []


class DeafAgent(LocalAgent):
    """Starts get lost on the way to it, as if the orchestrator had died while sending."""

    is_deaf = True

    def start(self, run: Run) -> None:
        if not self.is_deaf:
            super().start(run)


async def test_a_start_that_never_arrived_is_sent_again(path: Path, gate: Gate) -> None:
    provider = FakeProvider(programs={"gate": gate})
    agent = DeafAgent(NODE, provider, now=asyncio.get_running_loop().time)
    gate.opened.set()
    async with a_life(path, agent) as client:
        receipt = await submitted(client, "a", "gate", "a")
    agent.is_deaf = False
    async with a_life(path, agent) as client:
        assert (await ending(client, receipt)).stdout == "a"
    assert gate.runs == {"a": 1}
    await agent.aclose()


async def test_a_stop_that_never_arrived_is_sent_again(path: Path) -> None:
    agent = DeafAgent(NODE, FakeProvider(), now=asyncio.get_running_loop().time)
    async with a_life(path, agent) as client:
        cancelled = await submitted(client, "a", "sleep", "1000")
        client.orchestrator.cancel(cancelled.action_id, reason="not wanted")
        await asyncio.sleep(0.05)
    agent.is_deaf = False
    async with a_life(path, agent) as client:
        result = await ending(client, cancelled)
        assert (result.outcome, result.reason) == (Outcome.CANCELLED, "not wanted")
    await agent.aclose()


async def test_orphans_are_ended(path: Path, agent: LocalAgent, tmp_path: Path) -> None:
    async with a_life(tmp_path / "other.sqlite", agent) as client:
        await submitted(client, "unknown", "sleep", "1000")
        assert len(agent.inventory().running) == 1
    async with a_life(path, agent) as client:
        await asyncio.sleep(0.05)
        found = agent.inventory()
        assert (found.running, found.trajectories) == ((), ())


class SlowAgent(LocalAgent):
    """Takes its time to close what is there."""

    def __init__(self) -> None:
        super().__init__(NODE, FakeProvider(), now=asyncio.get_running_loop().time)
        self.may_close = asyncio.Event()

    async def close(self, trajectory: TrajectoryId) -> None:
        await self.may_close.wait()
        await super().close(trajectory)


async def test_nobody_finds_the_files_of_an_orphan_under_its_name(path: Path) -> None:
    agent = SlowAgent()
    async with a_life(path, agent) as client:
        await (await submitted(client, "a", "true")).ended
        await client.trajectory(id="a").write("secret", b"")
        client.orchestrator.close(TrajectoryId("a"))
        await asyncio.sleep(0.05)
    async with a_life(path, agent) as client:
        assert agent.inventory().trajectories == ("a",)
        with pytest.raises(BadInput, match="already open"):
            await client.trajectory(id="a", memory_mb=16).__aenter__()
        agent.may_close.set()
        await asyncio.sleep(0.05)
        async with client.trajectory(id="a", memory_mb=16) as t:
            assert (await t.run(["true"])).ok
            with pytest.raises(FileNotFoundError):
                await t.read("secret")
    await agent.aclose()


async def test_nobody_takes_the_name_of_what_a_killed_life_had_closed(path: Path) -> None:
    agent = SlowAgent()
    async with a_forgotten_life(path, agent) as (client, journal):
        running = await submitted(client, "a", "sleep", "1000")
        journal.kills_at_end_of = running.action_id
        client.orchestrator.close(TrajectoryId("a"))
        await asyncio.sleep(0.1)
        assert journal.is_killed
    async with a_life(path, agent) as client:
        assert (await ending(client, running)).outcome is Outcome.CANCELLED
        with pytest.raises(BadInput, match="already open"):
            await client.trajectory(id="a", memory_mb=16).__aenter__()
        agent.may_close.set()
        await client.orchestrator.close(TrajectoryId("a"))
        assert agent.inventory().trajectories == ()
    await agent.aclose()


class OutOfReach(LocalAgent):
    """Lives on when its connection breaks, until it is found again."""

    is_found = False

    async def attach(self, listener: Listener) -> NodeInventory:
        self.listener = listener
        return await super().attach(listener)

    async def aclose(self) -> None:
        if self.is_found:
            await super().aclose()


@asynccontextmanager
async def a_life_with(
    path: Path, agent: LocalAgent, *later: LocalAgent
) -> AsyncIterator[FakeCluster]:
    """As `a_life`, with more agents when the first is lost, as long as there are some."""
    coming = iter(later)

    async def new_agent(node: NodeId) -> NodeAgent:
        for found in coming:
            return found
        raise OSError(errno.EAGAIN, "no process can be started")

    journal, past = await open_journal(path)
    try:
        async with fake_cluster(
            SETUP, journal=journal, past=past, agent=agent, new_agent=new_agent
        ) as client:
            yield client
    finally:
        await journal.close()


async def test_a_node_that_was_given_up_before_a_kill_is_replaced_after_it(path: Path) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # It complains of the first.
    provider, now = FakeProvider(), asyncio.get_running_loop().time
    lost, other = OutOfReach(NODE, provider, now=now), LocalAgent(NODE, FakeProvider(), now=now)
    async with a_life_with(path, lost) as client:
        running = await submitted(client, "a", "sleep", "1000")
        lost.listener.on_lost(NODE, "planted")
        assert (await ending(client, running)).outcome is Outcome.INFRA_FAILED
        assert len(provider.live) == 1
    lost.is_found = True
    async with a_life_with(path, lost, other) as client:
        assert (await ending(client, await submitted(client, "b", "echo", "b"))).stdout == "b\n"
        assert not provider.live
    async with a_life_with(path, other) as client:
        assert (await ending(client, await submitted(client, "c", "echo", "c"))).stdout == "c\n"
    await other.aclose()


async def test_a_snapshot_stands_for_all_before_it(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    bounds = Bounds(compact_every=7)
    async with a_life(path, agent, bounds=bounds) as client:
        running = await submitted(client, "a", "gate", "a")
        waiting = [await submitted(client, f"w{number}", "echo", "w") for number in range(20)]
        before = client.orchestrator.status()
    async with a_life(path, agent, bounds=bounds) as client:
        after = client.orchestrator.status()
        assert (after.queued, after.running) == (before.queued, before.running) == (20, 1)
        gate.opened.set()
        assert (await ending(client, running)).stdout == "a"
        for receipt in waiting:
            assert (await ending(client, receipt)).stdout == "w\n"
    journal, past = await open_journal(path)
    await journal.close()
    assert past.snapshot is not None
    assert len(past.entries) <= 7


async def test_a_snapshot_does_not_wait_for_what_never_came(path: Path) -> None:
    async with a_life(path, bounds=Bounds(compact_every=1)) as client:
        await submitted(client, "a", "true")
        ledger = client.orchestrator.ledger
        ledger.open(Opening(trajectory=TrajectoryId("never")))
        _, again = thawed(frozen(SETUP.scheduler(), ledger), SETUP)
        assert set(again.trajectories) == {"a"}


def test_a_damaged_snapshot_is_told_and_not_read() -> None:
    whole = frozen(SETUP.scheduler(), Ledger())
    thawed(whole, SETUP)
    for bit in range(0, 8 * len(whole), 97):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(JournalError, match="its snapshot is damaged"):
            thawed(bytes(damaged), SETUP)
    with pytest.raises(JournalError, match="its snapshot is damaged"):
        thawed(b"", SETUP)


async def test_deadlines_go_on_after_a_restart(path: Path, agent: LocalAgent) -> None:
    async with a_life(path, agent) as client:
        receipt = await submitted(client, "a", "sleep", "1000", deadline_s=0.3)
    async with a_life(path, agent) as client:
        assert (await ending(client, receipt)).outcome is Outcome.EXPIRED


WIDER = a_setup(cores=2)


async def one_done(client: FakeCluster) -> tuple[Receipt, ActionResult]:
    """An action that ended in a trajectory that was closed."""
    receipt = await submitted(client, "a", "echo", "once")
    result = await receipt.ended
    await client.backend.close(TrajectoryId("a"))
    return receipt, result


async def test_a_clock_that_was_set_back_stops_no_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as ahead:
        right = time.time
        ahead.setattr(time, "time", lambda: right() + 3600)
        async with a_life(path) as client:
            last_at = (await (await submitted(client, "a", "true")).ended).record.ended_at
    async with a_life(path) as client:
        result = await (await submitted(client, "b", "sleep", "0.1")).ended
        assert result.record.submitted_at >= last_at
        assert result.run_s >= 0.1
        late = await submitted(client, "c", "sleep", "1000", deadline_s=0.1)
        assert (await ending(client, late)).outcome is Outcome.EXPIRED


async def test_a_journal_with_nothing_alive_in_it_takes_another_setup(path: Path) -> None:
    async with a_life(path) as client:
        receipt, first = await one_done(client)
        learned = pickle.dumps(client.orchestrator._driver.scheduler.estimates)
    async with a_life(path, setup=WIDER) as client:
        assert pickle.dumps(client.orchestrator._driver.scheduler.estimates) == learned
        assert client.orchestrator.status().ended == 1
        assert await ending(client, receipt) == first
        both = [await submitted(client, name, "sleep", "1000") for name in "bc"]
    async with a_life(path, setup=WIDER) as client:
        assert client.orchestrator.status().running == len(both)


async def test_a_journal_of_another_cluster_is_refused_while_something_lives(path: Path) -> None:
    async with a_life(path) as client:
        await submitted(client, "a", "sleep", "1000")
        await client.trajectory(id="b").__aenter__()
    with pytest.raises(JournalError, match="1 actions and 2 trajectories are alive in it"):
        async with a_life(path, setup=WIDER):
            pass


def of_another_version(path: Path) -> None:
    """What an older release would have left: a snapshot that this one cannot read."""
    with closing(sqlite3.connect(path)) as database, database:
        changed = database.execute("UPDATE snapshot SET body = ?", (b"of another release",))
        assert changed.rowcount == 1


async def test_a_drained_journal_of_another_version_is_taken_over(path: Path) -> None:
    async with a_life(path) as client:
        receipt, first = await one_done(client)
        await client.orchestrator.drain(grace_s=1.0)
    of_another_version(path)
    async with a_life(path) as client:
        assert await ending(client, receipt) == first
        await submitted(client, "b", "sleep", "1000")
    async with a_life(path) as client:
        assert client.orchestrator.status().running == 1


async def test_one_of_another_version_with_something_alive_is_refused(path: Path) -> None:
    async with a_life(path, bounds=Bounds(compact_every=1)) as client:
        await submitted(client, "a", "sleep", "1000")
        await client.orchestrator.drain(grace_s=0.01)
    of_another_version(path)
    with pytest.raises(JournalError, match="its snapshot is damaged or of another version"):
        async with a_life(path):
            pass


def of_the_version_before(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        version = str(VERSION - 1).encode()
        database.execute("UPDATE about SET body = ? WHERE name = 'version'", (version,))


async def test_a_journal_of_the_version_before_is_refused_until_it_is_drained(path: Path) -> None:
    async with a_life(path) as client:
        await submitted(client, "a", "sleep", "1000")
    of_the_version_before(path)
    how = "start the release that wrote it, close its trajectories, stop it with SIGTERM"
    with pytest.raises(JournalError, match=how) as refused:
        await open_journal(path)
    assert f"journal version {VERSION - 1}" in str(refused.value)


async def test_a_drained_journal_of_the_version_before_is_taken_over(path: Path) -> None:
    async with a_life(path) as client:
        receipt, first = await one_done(client)
        await client.orchestrator.drain(grace_s=1.0)
    of_another_version(path)
    of_the_version_before(path)
    async with a_life(path) as client:
        assert await ending(client, receipt) == first
        await submitted(client, "b", "sleep", "1000")
    async with a_life(path) as client:  # It is of this version now, with something alive in it.
        assert client.orchestrator.status().running == 1


def test_a_snapshot_of_another_version_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    body = frozen(SETUP.scheduler(), Ledger())
    monkeypatch.setattr("artangram.orchestrator.recovery.VERSION", VERSION + 1)
    with pytest.raises(JournalError, match="damaged or of another version"):
        thawed(body, SETUP)


async def test_a_full_disk_loses_nothing_that_was_accepted(path: Path) -> None:
    accepted: list[Receipt] = []
    journal, past = await open_journal(path, max_bytes=150_000)
    async with fake_cluster(SETUP, journal=journal, past=past) as client:

        async def fill() -> None:
            for number in range(10_000):
                accepted.append(await submitted(client, f"{number}", "echo", "x" * 1000))

        with pytest.raises(Broken, match="no room"):
            await fill()
    await journal.close()
    assert len(accepted) > 5
    async with a_life(path) as client:
        for receipt in accepted:
            assert (await ending(client, receipt)).outcome in (
                Outcome.SUCCEEDED,
                Outcome.INFRA_FAILED,
            )


def _fail(result: ActionResult) -> None:
    raise ArithmeticError("planted")


async def test_an_answer_can_be_had_again_by_its_key_when_its_trajectory_is_closed(
    path: Path,
) -> None:
    async with a_life(path) as client:
        first = await (await submitted(client, "a", "echo", "once")).ended
        await client.backend.close(TrajectoryId("a"))
        again = RunRequest(
            trajectory=TrajectoryId("a"), argv=("echo", "once"), kind="x", key="key-a"
        )
        assert await client.backend.run(again) == first
    async with a_life(path) as client:
        assert await client.backend.run(again) == first


async def test_a_defect_behind_a_commit_keeps_nobody_waiting(path: Path) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # It is told of the defect.
    async with a_life(path) as client:
        await submitted(client, "a", "sleep", "1000")
        first, second = [await submitted(client, name, "true") for name in "bc"]
        client.orchestrator.on_ended = _fail
        for receipt in (first, second):
            client.orchestrator.cancel(receipt.action_id)
        async with asyncio.timeout(PATIENCE_S):
            assert (await first.ended).outcome is Outcome.CANCELLED
            with pytest.raises(Broken, match="planted"):
                await second.ended
    async with a_life(path) as client:
        assert (await ending(client, second)).outcome is Outcome.CANCELLED


async def test_an_unknown_id_stays_unknown(path: Path) -> None:
    async with a_life(path) as client:
        with pytest.raises(KeyError):
            client.orchestrator.receipt(ActionId("nobody"))


class SlowToStop(LocalAgent):
    """Takes a while to stop a run; remembers how many it ran at once."""

    most_at_once = 0

    def start(self, run: Run) -> None:
        super().start(run)
        self.most_at_once = max(self.most_at_once, len(self.inventory().running))

    def stop(self, action_id: ActionId) -> None:
        asyncio.get_running_loop().call_later(0.2, super().stop, action_id)


@pytest.fixture
async def slow(gate: Gate) -> AsyncIterator[SlowToStop]:
    provider = FakeProvider(programs={"gate": gate})
    agent = SlowToStop(NODE, provider, now=asyncio.get_running_loop().time)
    yield agent
    await agent.aclose()


async def test_nothing_starts_beside_a_run_that_the_journal_does_not_know(
    path: Path, slow: SlowToStop
) -> None:
    async with a_forgotten_life(path, slow) as (client, journal):
        await (await submitted(client, "a", "true")).ended
        journal.is_killed = True
        request = RunRequest(trajectory=TrajectoryId("a"), argv=("sleep", "1000"), kind="x")
        client.backend.submit(request)
        await asyncio.sleep(0.1)
        assert len(slow.inventory().running) == 1
    async with a_life(path, slow) as client:
        after = await submitted(client, "b", "echo", "b")
        assert (await ending(client, after)).stdout == "b\n"
    assert slow.most_at_once == 1


async def test_nothing_starts_beside_a_run_whose_action_is_over(
    path: Path, slow: SlowToStop, gate: Gate
) -> None:
    async with a_forgotten_life(path, slow) as (client, journal):
        await (await submitted(client, "b", "true")).ended
        await submitted(client, "a", "gate", "a")
        late = RunRequest(
            trajectory=TrajectoryId("b"), argv=("sleep", "1000"), kind="x", deadline_s=0.4
        )
        expired = client.backend.submit(late)
        after = await submitted(client, "c", "echo", "c")
        journal.is_killed = True
        gate.opened.set()
        await asyncio.sleep(0.1)
        assert [run.action_id for run in slow.inventory().running] == [expired.action_id]
    await asyncio.sleep(0.5)
    async with a_life(path, slow) as client:
        assert (await ending(client, after)).stdout == "c\n"
        assert (await ending(client, expired)).outcome is Outcome.EXPIRED
    assert slow.most_at_once == 1


async def test_the_first_start_of_a_trajectory_waits_until_its_node_is_known(
    path: Path, agent: LocalAgent
) -> None:
    async with a_forgotten_life(path, agent) as (client, journal):
        t = await client.trajectory(id="a", memory_mb=16).__aenter__()
        journal.is_killed = True
        client.backend.submit(RunRequest(trajectory=t.id, argv=("true",), kind="x"))
        await asyncio.sleep(0.1)
        assert agent.inventory().trajectories == ()
