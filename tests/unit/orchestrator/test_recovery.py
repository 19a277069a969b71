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

from artangram.core.errors import BadInput
from artangram.core.events import Finished
from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.records import Outcome
from artangram.managers.agent import Inventory, Listener, NodeAgent, Run
from artangram.managers.local import LocalAgent
from artangram.observe.journal import Entry, Journal, JournalError
from artangram.observe.journalfile import open_journal
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.records import ActionResult, Broken, Opening, Receipt
from artangram.orchestrator.recovery import Setup, frozen, thawed
from artangram.orchestrator.runs import RunRequest
from artangram.sandbox.fake import Console, FakeProvider
from artangram.testing.fakes import NODE, FakeHouse, a_setup, fake_house
from busy_machine import PATIENCE_S

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
) -> AsyncIterator[FakeHouse]:
    journal, past = await open_journal(path)
    try:
        async with fake_house(
            setup, journal=journal, past=past, agent=agent, bounds=bounds
        ) as house:
            yield house
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


async def submitted(house: FakeHouse, name: str, *argv: str, **more: object) -> Receipt:
    """An accepted action of a trajectory of its own."""
    await house.trajectory(id=name, memory_mb=16).__aenter__()
    request = RunRequest(
        trajectory=TrajectoryId(name), argv=argv, kind="x", key=f"key-{name}", **more
    )
    receipt = house.backend.submit(request)
    await house.backend.orchestrator.written()
    return receipt


async def ending(house: FakeHouse, receipt: Receipt) -> ActionResult:
    async with asyncio.timeout(PATIENCE_S):
        return await house.orchestrator.receipt(receipt.action_id).ended


async def test_what_waited_runs_in_the_next_life(path: Path) -> None:
    async with a_life(path) as house:
        await submitted(house, "a", "sleep", "1000")
        waiting = await submitted(house, "b", "echo", "b")
    async with a_life(path) as house:
        result = await ending(house, waiting)
        assert (result.outcome, result.stdout) == (Outcome.SUCCEEDED, "b\n")


async def test_what_a_dead_process_had_opened_is_closed_unless_it_is_used(path: Path) -> None:
    async with a_life(path) as house:
        for name in ("left", "used"):
            await house.trajectory(id=name, memory_mb=16).__aenter__()
        remote = Opening(trajectory=TrajectoryId("remote"), memory_mb=16, owner="a client")
        await house.orchestrator.open(remote)
    async with a_life(path, bounds=Bounds(owner_silence_s=1.0)) as house:
        ledger = house.orchestrator.ledger
        assert set(ledger.trajectories) == {"left", "used", "remote"}
        request = RunRequest(trajectory=TrajectoryId("used"), argv=("sleep", "2"), kind="x")
        running = asyncio.create_task(house.backend.run(request))
        async with asyncio.timeout(PATIENCE_S):
            while "remote" in ledger.trajectories:
                assert "used" in ledger.trajectories
                await asyncio.sleep(0.02)
            assert (await running).ok
            while ledger.trajectories:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert house.orchestrator.status().abandoned == 3


async def test_what_ran_on_a_lost_agent_failed_by_infrastructure(path: Path) -> None:
    async with a_life(path) as house:
        lost = await submitted(house, "a", "sleep", "1000")
    async with a_life(path) as house:
        result = await ending(house, lost)
        assert (result.outcome, result.record.attempts) == (Outcome.INFRA_FAILED, 1)
        assert "restarted" in result.reason


async def test_what_may_repeat_runs_again(path: Path) -> None:
    async with a_life(path) as house:
        lost = await submitted(house, "a", "sleep", "0.2", repeatable=True)
    async with a_life(path) as house:
        result = await ending(house, lost)
        assert (result.outcome, result.record.attempts) == (Outcome.SUCCEEDED, 2)


async def test_the_name_of_a_closed_trajectory_may_be_given_again(path: Path) -> None:
    async with a_life(path) as house:
        async with house.trajectory(id="a", memory_mb=16) as first:
            assert (await first.run(["true"])).ok
        again = await submitted(house, "a", "sleep", "0.2", repeatable=True)
    async with a_life(path) as house:
        assert (await ending(house, again)).ok


async def test_files_that_are_gone_are_missed(path: Path) -> None:
    async with a_life(path) as house:
        await (await submitted(house, "a", "true")).ended
    async with a_life(path) as house:
        request = RunRequest(trajectory=TrajectoryId("a"), argv=("true",), kind="x")
        result = await house.backend.run(request)
        assert (result.outcome, "files" in result.reason) == (Outcome.INFRA_FAILED, True)


async def test_results_are_remembered_by_id_and_key(path: Path) -> None:
    async with a_life(path) as house:
        receipt = await submitted(house, "a", "echo", "once")
        first = await receipt.ended
    async with a_life(path) as house:
        assert await ending(house, receipt) == first
        request = RunRequest(
            trajectory=TrajectoryId("a"), argv=("echo", "twice"), kind="x", key="key-a"
        )
        assert await house.backend.run(request) == first


async def test_what_still_runs_is_found_again(path: Path, agent: LocalAgent, gate: Gate) -> None:
    async with a_life(path, agent) as house:
        running = await submitted(house, "a", "gate", "a")
        waiting = await submitted(house, "b", "gate", "b")
    async with a_life(path, agent) as house:
        assert house.orchestrator.status().running == 1
        gate.opened.set()
        results = [await ending(house, receipt) for receipt in (running, waiting)]
        assert [result.stdout for result in results] == ["a", "b"]
    assert gate.runs == {"a": 1, "b": 1}


async def test_what_ended_meanwhile_is_collected_once(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    async with a_life(path, agent) as house:
        receipt = await submitted(house, "a", "gate", "a")
    gate.opened.set()
    await asyncio.sleep(0.05)
    async with a_life(path, agent) as house:
        assert (await ending(house, receipt)).stdout == "a"
    assert agent.inventory().ended == ()
    async with a_life(path, agent) as house:
        assert (await ending(house, receipt)).stdout == "a"
    assert gate.runs == {"a": 1}


class Killed:
    """The journal of an orchestrator that is killed before it has written any more."""

    is_lasting = True

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

    def id_of(self, key: str) -> str | None:
        return self._journal.id_of(key)

    def settled(self, id: str) -> bytes | None:
        return self._journal.settled(id)

    async def close(self) -> None:
        await self._journal.close()


@asynccontextmanager
async def a_forgotten_life(
    path: Path, agent: LocalAgent
) -> AsyncIterator[tuple[FakeHouse, Killed]]:
    """As `a_life`, to be killed before its last words are written down."""
    journal, past = await open_journal(path)
    lossy = Killed(journal)
    try:
        async with fake_house(SETUP, journal=lossy, past=past, agent=agent) as house:
            yield house, lossy
    finally:
        await journal.close()


async def unnamed(house: FakeHouse, trajectory: str, *argv: str) -> Receipt:
    request = RunRequest(trajectory=TrajectoryId(trajectory), argv=argv, kind="x")
    receipt = house.backend.submit(request)
    await house.backend.orchestrator.written()
    return receipt


@pytest.mark.parametrize("is_over", [True, False])
async def test_what_was_started_without_a_word_is_not_started_again(
    path: Path, agent: CountingAgent, gate: Gate, is_over: bool
) -> None:
    async with a_forgotten_life(path, agent) as (house, journal):
        first = await submitted(house, "a", "gate", "a")
        await house.trajectory(id="b", memory_mb=16).__aenter__()
        second = await unnamed(house, "b", "gate" if is_over else "sleep", "0.5")
        journal.is_killed = True
        gate.opened.set()
        await asyncio.sleep(0.1)
        assert len(agent.inventory().running) == (0 if is_over else 1)
    async with a_life(path, agent) as house:
        assert (await ending(house, first)).stdout == "a"
        result = await ending(house, second)
        assert (result.outcome, result.record.attempts) == (Outcome.SUCCEEDED, 1)
        assert agent.inventory().running == ()
    assert agent.inventory().ended == ()
    assert gate.runs == ({"a": 1, "0.5": 1} if is_over else {"a": 1})
    assert agent.num_started == 2


async def test_the_end_of_what_was_started_without_a_word_is_kept_until_it_is_written(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    async with a_forgotten_life(path, agent) as (house, journal):
        first = await submitted(house, "a", "gate", "a")
        await house.trajectory(id="b", memory_mb=16).__aenter__()
        second = await unnamed(house, "b", "gate", "b")
        journal.is_killed = True
        gate.opened.set()
        await asyncio.sleep(0.1)
    async with a_forgotten_life(path, agent) as (house, journal):
        journal.kills_at_end_of = second.action_id
        assert (await ending(house, first)).stdout == "a"
        await asyncio.sleep(0.1)
        assert journal.is_killed
    async with a_life(path, agent) as house:
        assert (await ending(house, second)).stdout == "b"
    assert gate.runs == {"a": 1, "b": 1}


async def test_what_was_started_without_a_word_is_stopped_when_nobody_wants_it(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    async with a_forgotten_life(path, agent) as (house, journal):
        await submitted(house, "a", "gate", "a")
        await house.trajectory(id="b", memory_mb=16).__aenter__()
        waiting = await unnamed(house, "b", "sleep", "1000")
        journal.is_killed = True
        gate.opened.set()
        await asyncio.sleep(0.1)
        assert [run.action_id for run in agent.inventory().running] == [waiting.action_id]
    async with a_life(path, agent) as house:
        house.orchestrator.cancel(waiting.action_id)
        assert (await ending(house, waiting)).outcome is Outcome.CANCELLED
        await asyncio.sleep(0.1)
        assert agent.inventory().running == ()
    assert agent.inventory().ended == ()


async def test_a_sandbox_that_was_made_without_a_word_goes_with_its_trajectory(
    path: Path, agent: LocalAgent
) -> None:
    async with a_forgotten_life(path, agent) as (house, journal):
        t = await house.trajectory(id="a", memory_mb=16).__aenter__()
        journal.is_killed = True
        house.backend.submit(RunRequest(trajectory=t.id, argv=("true",), kind="x"))
        await asyncio.sleep(0.1)
        assert agent.inventory().trajectories == ("a",)
    async with a_life(path, agent) as house:
        await house.orchestrator.close(t.id)
        assert agent.inventory().trajectories == ()


async def test_the_files_of_a_trajectory_stay_until_its_closing_is_written_down(
    path: Path, agent: LocalAgent
) -> None:
    async with a_forgotten_life(path, agent) as (house, journal):
        t = await house.trajectory(id="a", memory_mb=16).__aenter__()
        await t.write("x", b"kept")
        journal.is_killed = True
        house.orchestrator.close(t.id)
        await asyncio.sleep(0.1)
    async with a_life(path, agent) as house:
        again = house.trajectory(id="a")
        assert (await again.run(["cat", "x"])).stdout == "kept"
        await house.orchestrator.close(t.id)
        assert agent.inventory().trajectories == ()


async def test_what_has_a_key_does_not_start_before_it_is_known(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    gate.opened.set()
    async with a_forgotten_life(path, agent) as (house, journal):
        await (await submitted(house, "a", "gate", "written")).ended
        journal.is_killed = True
        request = RunRequest(
            trajectory=TrajectoryId("a"), argv=("gate", "unwritten"), kind="x", key="another"
        )
        house.backend.submit(request)
        await asyncio.sleep(0.1)
    assert gate.runs == {"written": 1}


async def test_who_leaves_at_once_is_not_missed_by_the_journal(path: Path) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    async with a_life(path) as house:
        await house.trajectory(id="a", memory_mb=16).__aenter__()
        house.backend.submit(RunRequest(trajectory=TrajectoryId("a"), argv=("true",), kind="x"))
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
    async with a_life(path, agent) as house:
        receipt = await submitted(house, "a", "gate", "a")
    agent.is_deaf = False
    async with a_life(path, agent) as house:
        assert (await ending(house, receipt)).stdout == "a"
    assert gate.runs == {"a": 1}
    await agent.aclose()


async def test_a_stop_that_never_arrived_is_sent_again(path: Path) -> None:
    agent = DeafAgent(NODE, FakeProvider(), now=asyncio.get_running_loop().time)
    async with a_life(path, agent) as house:
        cancelled = await submitted(house, "a", "sleep", "1000")
        house.orchestrator.cancel(cancelled.action_id, reason="not wanted")
        await asyncio.sleep(0.05)
    agent.is_deaf = False
    async with a_life(path, agent) as house:
        result = await ending(house, cancelled)
        assert (result.outcome, result.reason) == (Outcome.CANCELLED, "not wanted")
    await agent.aclose()


async def test_orphans_are_ended(path: Path, agent: LocalAgent, tmp_path: Path) -> None:
    async with a_life(tmp_path / "other.sqlite", agent) as house:
        await submitted(house, "unknown", "sleep", "1000")
        assert len(agent.inventory().running) == 1
    async with a_life(path, agent) as house:
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
    async with a_life(path, agent) as house:
        await (await submitted(house, "a", "true")).ended
        await house.trajectory(id="a").write("secret", b"")
        house.orchestrator.close(TrajectoryId("a"))
        await asyncio.sleep(0.05)
    async with a_life(path, agent) as house:
        assert agent.inventory().trajectories == ("a",)
        with pytest.raises(BadInput, match="already open"):
            await house.trajectory(id="a", memory_mb=16).__aenter__()
        agent.may_close.set()
        await asyncio.sleep(0.05)
        async with house.trajectory(id="a", memory_mb=16) as t:
            assert (await t.run(["true"])).ok
            with pytest.raises(FileNotFoundError):
                await t.read("secret")
    await agent.aclose()


async def test_nobody_takes_the_name_of_what_a_killed_life_had_closed(path: Path) -> None:
    agent = SlowAgent()
    async with a_forgotten_life(path, agent) as (house, journal):
        running = await submitted(house, "a", "sleep", "1000")
        journal.kills_at_end_of = running.action_id
        house.orchestrator.close(TrajectoryId("a"))
        await asyncio.sleep(0.1)
        assert journal.is_killed
    async with a_life(path, agent) as house:
        assert (await ending(house, running)).outcome is Outcome.CANCELLED
        with pytest.raises(BadInput, match="already open"):
            await house.trajectory(id="a", memory_mb=16).__aenter__()
        agent.may_close.set()
        await house.orchestrator.close(TrajectoryId("a"))
        assert agent.inventory().trajectories == ()
    await agent.aclose()


class OutOfReach(LocalAgent):
    """Lives on when its connection breaks, until it is found again."""

    is_found = False

    async def attach(self, listener: Listener) -> Inventory:
        self.listener = listener
        return await super().attach(listener)

    async def aclose(self) -> None:
        if self.is_found:
            await super().aclose()


@asynccontextmanager
async def a_life_with(
    path: Path, agent: LocalAgent, *later: LocalAgent
) -> AsyncIterator[FakeHouse]:
    """As `a_life`, with more agents when the first is lost, as long as there are some."""
    coming = iter(later)

    async def new_agent(node: NodeId) -> NodeAgent:
        for found in coming:
            return found
        raise OSError(errno.EAGAIN, "no process can be started")

    journal, past = await open_journal(path)
    try:
        async with fake_house(
            SETUP, journal=journal, past=past, agent=agent, new_agent=new_agent
        ) as house:
            yield house
    finally:
        await journal.close()


async def test_a_node_that_was_given_up_before_a_kill_is_replaced_after_it(path: Path) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # It complains of the first.
    provider, now = FakeProvider(), asyncio.get_running_loop().time
    lost, other = OutOfReach(NODE, provider, now=now), LocalAgent(NODE, FakeProvider(), now=now)
    async with a_life_with(path, lost) as house:
        running = await submitted(house, "a", "sleep", "1000")
        lost.listener.on_lost(NODE, "planted")
        assert (await ending(house, running)).outcome is Outcome.INFRA_FAILED
        assert len(provider.live) == 1
    lost.is_found = True
    async with a_life_with(path, lost, other) as house:
        assert (await ending(house, await submitted(house, "b", "echo", "b"))).stdout == "b\n"
        assert not provider.live
    async with a_life_with(path, other) as house:
        assert (await ending(house, await submitted(house, "c", "echo", "c"))).stdout == "c\n"
    await other.aclose()


async def test_a_snapshot_stands_for_all_before_it(
    path: Path, agent: LocalAgent, gate: Gate
) -> None:
    bounds = Bounds(compact_every=7)
    async with a_life(path, agent, bounds=bounds) as house:
        running = await submitted(house, "a", "gate", "a")
        waiting = [await submitted(house, f"w{number}", "echo", "w") for number in range(20)]
        before = house.orchestrator.status()
    async with a_life(path, agent, bounds=bounds) as house:
        after = house.orchestrator.status()
        assert (after.queued, after.running) == (before.queued, before.running) == (20, 1)
        gate.opened.set()
        assert (await ending(house, running)).stdout == "a"
        for receipt in waiting:
            assert (await ending(house, receipt)).stdout == "w\n"
    journal, past = await open_journal(path)
    await journal.close()
    assert past.snapshot is not None
    assert len(past.entries) <= 7


async def test_a_snapshot_does_not_wait_for_what_never_came(path: Path) -> None:
    async with a_life(path, bounds=Bounds(compact_every=1)) as house:
        await submitted(house, "a", "true")
        ledger = house.orchestrator.ledger
        ledger.expect(Opening(trajectory=TrajectoryId("never")))
        _, again = thawed(frozen(SETUP.scheduler(), ledger), SETUP)
        assert (again.has(TrajectoryId("a")), again.has(TrajectoryId("never"))) == (True, False)


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
    async with a_life(path, agent) as house:
        receipt = await submitted(house, "a", "sleep", "1000", deadline_s=0.3)
    async with a_life(path, agent) as house:
        assert (await ending(house, receipt)).outcome is Outcome.EXPIRED


WIDER = a_setup(cores=2)


async def one_done(house: FakeHouse) -> tuple[Receipt, ActionResult]:
    """An action that ended in a trajectory that was closed."""
    receipt = await submitted(house, "a", "echo", "once")
    result = await receipt.ended
    await house.backend.close(TrajectoryId("a"))
    return receipt, result


async def test_a_clock_that_was_set_back_stops_no_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as ahead:
        right = time.time
        ahead.setattr(time, "time", lambda: right() + 3600)
        async with a_life(path) as house:
            last_at = (await (await submitted(house, "a", "true")).ended).record.ended_at
    async with a_life(path) as house:
        result = await (await submitted(house, "b", "sleep", "0.1")).ended
        assert result.record.submitted_at >= last_at
        assert result.run_s >= 0.1
        late = await submitted(house, "c", "sleep", "1000", deadline_s=0.1)
        assert (await ending(house, late)).outcome is Outcome.EXPIRED


async def test_a_journal_with_nothing_alive_in_it_takes_another_setup(path: Path) -> None:
    async with a_life(path) as house:
        receipt, first = await one_done(house)
        learned = pickle.dumps(house.orchestrator._body.scheduler.estimates)
    async with a_life(path, setup=WIDER) as house:
        assert pickle.dumps(house.orchestrator._body.scheduler.estimates) == learned
        assert house.orchestrator.status().ended == 1
        assert await ending(house, receipt) == first
        both = [await submitted(house, name, "sleep", "1000") for name in "bc"]
    async with a_life(path, setup=WIDER) as house:
        assert house.orchestrator.status().running == len(both)


async def test_a_journal_of_another_cluster_is_refused_while_something_lives(path: Path) -> None:
    async with a_life(path) as house:
        await submitted(house, "a", "sleep", "1000")
        await house.trajectory(id="b").__aenter__()
    with pytest.raises(JournalError, match="1 actions and 2 trajectories are alive in it"):
        async with a_life(path, setup=WIDER):
            pass


def of_another_version(path: Path) -> None:
    """What an older release would have left: a snapshot that this one cannot read."""
    with closing(sqlite3.connect(path)) as database, database:
        changed = database.execute("UPDATE snapshot SET body = ?", (b"of another release",))
        assert changed.rowcount == 1


async def test_a_drained_journal_of_another_version_is_taken_over(path: Path) -> None:
    async with a_life(path) as house:
        receipt, first = await one_done(house)
        await house.orchestrator.drain(grace_s=1.0)
    of_another_version(path)
    async with a_life(path) as house:
        assert await ending(house, receipt) == first
        await submitted(house, "b", "sleep", "1000")
    async with a_life(path) as house:
        assert house.orchestrator.status().running == 1


async def test_one_of_another_version_with_something_alive_is_refused(path: Path) -> None:
    async with a_life(path, bounds=Bounds(compact_every=1)) as house:
        await submitted(house, "a", "sleep", "1000")
        await house.orchestrator.drain(grace_s=0.01)
    of_another_version(path)
    with pytest.raises(JournalError, match="its snapshot is damaged or of another version"):
        async with a_life(path):
            pass


async def test_a_full_disk_loses_nothing_that_was_accepted(path: Path) -> None:
    accepted: list[Receipt] = []
    journal, past = await open_journal(path, max_bytes=150_000)
    async with fake_house(SETUP, journal=journal, past=past) as house:

        async def fill() -> None:
            for number in range(10_000):
                accepted.append(await submitted(house, f"{number}", "echo", "x" * 1000))

        with pytest.raises(Broken, match="no room"):
            await fill()
    await journal.close()
    assert len(accepted) > 5
    async with a_life(path) as house:
        for receipt in accepted:
            assert (await ending(house, receipt)).outcome in (
                Outcome.SUCCEEDED,
                Outcome.INFRA_FAILED,
            )


def _fail(result: ActionResult) -> None:
    raise ArithmeticError("planted")


async def test_an_answer_can_be_had_again_by_its_key_when_its_trajectory_is_closed(
    path: Path,
) -> None:
    async with a_life(path) as house:
        first = await (await submitted(house, "a", "echo", "once")).ended
        await house.backend.close(TrajectoryId("a"))
        again = RunRequest(trajectory=TrajectoryId("a"), argv=("true",), kind="x", key="key-a")
        assert await house.backend.run(again) == first
    async with a_life(path) as house:
        assert await house.backend.run(again) == first


async def test_a_defect_behind_a_commit_keeps_nobody_waiting(path: Path) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # It is told of the defect.
    async with a_life(path) as house:
        await submitted(house, "a", "sleep", "1000")
        first, second = [await submitted(house, name, "true") for name in "bc"]
        house.orchestrator.on_ended = _fail
        for receipt in (first, second):
            house.orchestrator.cancel(receipt.action_id)
        async with asyncio.timeout(PATIENCE_S):
            assert (await first.ended).outcome is Outcome.CANCELLED
            with pytest.raises(Broken, match="planted"):
                await second.ended
    async with a_life(path) as house:
        assert (await ending(house, second)).outcome is Outcome.CANCELLED


async def test_an_unknown_id_stays_unknown(path: Path) -> None:
    async with a_life(path) as house:
        with pytest.raises(KeyError):
            house.orchestrator.receipt(ActionId("nobody"))
