"""What every node agent promises, in this process or in one of its own."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from busy_machine import PATIENCE_S
from joining_world import a_joining_world, joined
from msgspec import structs
from process_support import few_open_files, is_alive, most_open_files

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.lease import Cores, Lease
from artangram.managers import archives, remote, wire
from artangram.managers.agent import (
    AgentGone,
    NodeAgent,
    Population,
    Run,
    RunId,
    RunResult,
    SandboxSpec,
)
from artangram.managers.agentprocess import AgentServer
from artangram.managers.archives import travel
from artangram.managers.local import LocalAgent
from artangram.managers.remote import RemoteAgent, connect, spawn
from artangram.sandbox import (
    Command,
    CommandResult,
    FakeProvider,
    Output,
    SandboxError,
    SandboxGone,
)
from artangram.sandbox.fake import Console, FakeSandbox
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotTerms

NODE = NodeId("cpu-0")
T = TrajectoryId("t")


class Heard:
    """A listener that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[RunResult] = asyncio.Queue()
        self.lost: asyncio.Queue[str] = asyncio.Queue()
        self.printed: list[tuple[RunId, Output]] = []

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        self.ended.put_nowait(ended)

    def on_lost(self, node: NodeId, reason: str) -> None:
        self.lost.put_nowait(reason)

    def on_output(self, run: RunId, output: Output) -> None:
        self.printed.append((run, output))

    async def next(self) -> RunResult:
        async with asyncio.timeout(PATIENCE_S):
            return await self.ended.get()


def a_run(
    name: str,
    *argv: str,
    trajectory: TrajectoryId = T,
    expects_files: bool = False,
    attempt: int = 1,
    timeout_s: float = 60.0,
    **more: Any,
) -> Run:
    cores = Cores(Resource("cpu"), NODE, (0,))
    lease = Lease(action_id=ActionId(name), allocations=(cores,), attempt=attempt)
    command = Command(argv=argv, timeout_s=timeout_s, cores=(0,), **more) if argv else None
    return Run(
        lease=lease,
        trajectory=trajectory,
        place=SandboxSpec(),
        command=command,
        expects_files=expects_files,
    )


async def local_agent(tmp_path: Path) -> NodeAgent:
    return LocalAgent(NODE, FakeProvider(), now=time.time)


async def remote_agent(tmp_path: Path) -> NodeAgent:
    options = ("--provider", "fake", "--grace-s", "5")
    return await spawn(NODE, tmp_path / "agent.sock", now=time.time, options=options)


@asynccontextmanager
async def owned(agent: NodeAgent) -> AsyncIterator[NodeAgent]:
    yield agent
    await agent.aclose()


@asynccontextmanager
async def joined_agent(tmp_path: Path) -> AsyncIterator[NodeAgent]:
    patient = {"fence_s": 60.0, "silence_s": 30.0}
    async with (
        a_joining_world(tmp_path, **patient) as world,
        joined(world, world.machine(silence_s=30.0)) as agent,
    ):
        yield agent


MAKERS: list[Callable[[Path], Awaitable[NodeAgent]]] = [local_agent, remote_agent]


@pytest.fixture(params=[*MAKERS, joined_agent], ids=lambda maker: maker.__name__)
async def agent(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NodeAgent]:
    made = request.param(tmp_path)
    async with made if request.param is joined_agent else owned(await made) as agent:
        yield agent


@pytest.fixture
async def heard(agent: NodeAgent) -> Heard:
    heard = Heard()
    await agent.attach(heard)
    return heard


async def test_a_run_ends_with_its_result(agent: NodeAgent, heard: Heard) -> None:
    before = time.time()
    agent.start(a_run("a", "echo", "hello"))
    ended = await heard.next()
    assert (ended.run, ended.outcome) == (RunId(ActionId("a"), 1), Outcome.SUCCEEDED)
    assert ended.result is not None
    assert ended.result.stdout == b"hello\n"
    assert ended.began_at is not None
    assert before <= ended.began_at <= time.time()


async def test_an_examined_agent_tells_of_its_machine_and_sends_back_what_it_was_sent(
    agent: NodeAgent, heard: Heard
) -> None:
    about = await agent.examine(b"x" * (3 << 20))
    assert about.data == b"x" * (3 << 20)
    assert (about.providers, about.protocol) == (("fake",), wire.VERSION)
    assert abs(about.unix_s - time.time()) < PATIENCE_S
    assert 0 < about.free_memory_mb <= about.memory_mb


async def test_to_make_a_sandbox_is_all_the_work_of_a_run_without_a_command() -> None:
    class Slow(FakeProvider):
        async def create(self, *args: Any, **more: Any) -> FakeSandbox:
            await asyncio.sleep(0.05)
            return await super().create(*args, **more)

    agent, heard = LocalAgent(NODE, Slow(), now=time.time), Heard()
    await agent.attach(heard)
    agent.start(a_run("open"))
    ended = await heard.next()
    assert ended.began_at is not None
    assert time.time() - ended.began_at >= 0.05
    await agent.aclose()


async def test_what_a_streaming_run_prints_is_told_before_its_end(
    agent: NodeAgent, heard: Heard
) -> None:
    run = structs.replace(a_run("a", "echo", "hello"), streams=True)
    agent.start(run)
    ended = await heard.next()
    assert heard.printed == [(run.id, Output(channel="stdout", data=b"hello\n"))]
    assert ended.result is not None
    assert ended.result.stdout == b"hello\n"


async def test_what_other_runs_print_comes_with_their_end(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("a", "echo", "hello"))
    await heard.next()
    assert heard.printed == []


async def test_a_failing_program_is_not_an_infrastructure_failure(
    agent: NodeAgent, heard: Heard
) -> None:
    agent.start(a_run("a", "false"))
    ended = await heard.next()
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, "exit code 1")


async def test_a_run_is_cut_at_its_time_limit(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("a", "sleep", "100", timeout_s=0.05))
    ended = await heard.next()
    assert (ended.outcome, ended.reason) == (Outcome.TIMED_OUT, "it ran longer than 0.05 s")


async def test_a_stopped_run_ends_once(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("a", "sleep", "100"))
    agent.stop(ActionId("a"))
    agent.stop(ActionId("a"))
    assert (await heard.next()).outcome is Outcome.CANCELLED
    agent.start(a_run("b", "true"))
    assert (await heard.next()).run.action_id == "b"


async def test_a_run_without_a_command_makes_the_sandbox(agent: NodeAgent, heard: Heard) -> None:
    with pytest.raises(SandboxGone, match="has no sandbox"):
        await agent.read(T, "x")
    agent.start(a_run("open"))
    assert (await heard.next()).outcome is Outcome.SUCCEEDED
    await agent.write(T, "x", data=b"1")
    assert await agent.read(T, "x") == b"1"


async def test_files_stay_between_runs_and_go_with_the_trajectory(
    agent: NodeAgent, heard: Heard
) -> None:
    agent.start(a_run("open"))
    await heard.next()
    await agent.write(T, "x", data=b"kept")
    agent.start(a_run("a", "cat", "x", expects_files=True))
    ended = await heard.next()
    assert ended.result is not None
    assert ended.result.stdout == b"kept"
    await agent.close(T)
    agent.start(a_run("b", "cat", "x", expects_files=True))
    ended = await heard.next()
    assert ended.outcome is Outcome.INFRA_FAILED
    assert "files" in ended.reason


async def test_a_missing_file_is_an_os_error_that_names_it(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("open"))
    await heard.next()
    with pytest.raises(FileNotFoundError) as caught:
        await agent.read(T, "nothing")
    assert caught.value.filename == "nothing"


async def test_a_snapshot_starts_a_sibling(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("open"))
    await heard.next()
    await agent.write(T, "x", data=b"shared")
    snapshot = await agent.snapshot(T)
    sibling = TrajectoryId("sibling")
    run = a_run("b", "cat", "x", trajectory=sibling)
    agent.start(
        Run(
            lease=run.lease,
            trajectory=sibling,
            place=SandboxSpec(source=snapshot),
            command=run.command,
        )
    )
    ended = await heard.next()
    assert ended.result is not None
    assert ended.result.stdout == b"shared"
    await agent.forget(snapshot)


async def test_a_snapshot_travels_in_parts_to_another_node(
    agent: NodeAgent, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "PART_BYTES", 1000)
    content = os.urandom(10_000)
    home, there = LocalAgent(NodeId("cpu-1"), FakeProvider(), now=time.time), Heard()
    await home.attach(there)
    home.start(a_run("open"))
    await there.next()
    await home.write(T, "x", data=content)
    snapshot = await home.snapshot(T, SnapshotTerms(keep_s=60.0))
    for _ in range(2):  # Again: its answer may have got lost.
        await travel(snapshot, source=home.archives, target=agent.archives)
    agent.start(structs.replace(a_run("sibling"), place=SandboxSpec(source=snapshot)))
    assert (await heard.next()).outcome is Outcome.SUCCEEDED
    assert await agent.read(T, "x") == content
    back = LocalAgent(NodeId("cpu-2"), FakeProvider(), now=time.time)
    moved = await travel(snapshot, source=agent.archives, target=back.archives)
    assert moved.size_bytes > len(content)
    await home.aclose()
    await back.aclose()


async def test_an_archive_that_was_damaged_is_refused(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("open"))
    await heard.next()
    snapshot = await agent.snapshot(T, SnapshotTerms(keep_s=60.0))
    archive = await agent.archives.pack(snapshot)
    other = LocalAgent(NodeId("cpu-1"), FakeProvider(), now=time.time)
    part = await agent.archives.read(snapshot, 0)
    await other.archives.write(snapshot, 0, data=part[:-1] + b"?")
    with pytest.raises(SandboxError, match="damaged on its way"):
        await other.archives.adopt(snapshot, archive)
    with pytest.raises(SandboxError):
        await other.archives.adopt(snapshot, archive)  # Nothing of it was kept.
    await other.aclose()


@pytest.mark.parametrize("name", ["../secret", "never-made"])
async def test_a_snapshot_that_is_not_there_is_not_packed(agent: NodeAgent, name: str) -> None:
    with pytest.raises(SandboxError):
        await agent.archives.pack(Snapshot(name=name))


async def test_closing_a_trajectory_ends_what_runs_there(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("a", "sleep", "100"))
    await agent.close(T)
    assert (await heard.next()).outcome is Outcome.CANCELLED
    assert (await agent.attach(heard)).trajectories == ()


async def test_resizing_reaches_nobody_after_the_end(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("a", "sleep", "0.02"))
    agent.resize(ActionId("a"), (0, 1))
    await heard.next()
    agent.resize(ActionId("a"), (1,))
    agent.start(a_run("b", "true"))
    assert (await heard.next()).outcome is Outcome.SUCCEEDED


async def test_ends_are_told_again_until_acknowledged(agent: NodeAgent, heard: Heard) -> None:
    for name in "ab":
        agent.start(a_run(name, "echo", name))
        await heard.next()
    agent.acknowledge(RunId(ActionId("a"), 1))
    later = Heard()
    found = await agent.attach(later)
    assert [ended.run.action_id for ended in found.ended] == ["b"]
    assert found.running == ()
    assert found.trajectories == (T,)
    agent.start(a_run("c", "true"))
    assert (await later.next()).run.action_id == "c"
    assert heard.ended.empty()


async def test_an_agent_answers_how_many_sandboxes_it_has(agent: NodeAgent, heard: Heard) -> None:
    assert await agent.ping() == Population()
    agent.start(a_run("a", "true"))
    await heard.next()
    assert await agent.ping() == Population(sandboxes=1)


async def test_two_runs_of_one_trajectory_take_turns(agent: NodeAgent, heard: Heard) -> None:
    agent.start(a_run("a", "sleep", "0.05"))
    agent.start(a_run("b", "true"))
    assert [(await heard.next()).run.action_id for _ in range(2)] == ["a", "b"]


class TestAgentProcess:
    """Promises that need two processes."""

    async def spawned(self, tmp_path: Path, *, grace_s: float) -> tuple[RemoteAgent, Path]:
        socket = tmp_path / "agent.sock"
        options = ("--provider", "fake", "--grace-s", str(grace_s))
        return await spawn(NODE, socket, now=time.time, options=options), socket

    async def test_only_its_owner_reads_what_it_complains_about(self, tmp_path: Path) -> None:
        agent, socket = await self.spawned(tmp_path / "new", grace_s=10)
        await agent.aclose()
        log = socket.with_suffix(".log")
        modes = [path.stat().st_mode & 0o777 for path in (log.parent, log)]
        assert modes == [0o700, 0o600]

    async def test_it_runs_on_alone_and_keeps_the_ends(self, tmp_path: Path) -> None:
        agent, socket = await self.spawned(tmp_path, grace_s=10)
        await agent.attach(Heard())
        asked_at = time.time()
        agent.start(a_run("quick", "sleep", "0.05"))
        agent.start(a_run("slow", "sleep", "100", trajectory=TrajectoryId("other")))
        await agent.detach()
        again = await connect(NODE, socket, now=time.time)
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await again.attach(Heard())).ended:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [ended.run.action_id for ended in found.ended] == ["quick"]
        began_at = found.ended[0].began_at
        assert began_at is not None
        assert asked_at <= began_at <= time.time() - 0.05
        assert [run.action_id for run in found.running] == ["slow"]
        await again.aclose()
        await agent.aclose()

    async def test_it_ends_when_nobody_comes_back(self, tmp_path: Path) -> None:
        agent, socket = await self.spawned(tmp_path, grace_s=0.1)
        await agent.attach(Heard())
        agent.start(a_run("slow", "sleep", "100"))
        await agent.detach()
        await agent.aclose()
        with pytest.raises(AgentGone, match="no agent listens"):
            await connect(NODE, socket, now=time.time)

    async def test_one_that_leaves_does_not_take_the_socket_of_another(
        self, tmp_path: Path
    ) -> None:
        left, socket = await self.spawned(tmp_path, grace_s=0.2)
        socket.unlink()
        agent, _ = await self.spawned(tmp_path, grace_s=10)
        await left.detach()
        await left.aclose()
        again = await connect(NODE, socket, now=time.time)
        assert again.pid == agent.pid
        await again.aclose()
        await agent.aclose()

    async def test_one_whose_starter_is_gone_never_listens(self, tmp_path: Path) -> None:
        options = ("--provider", "fake", "--parent", "1")
        with pytest.raises(AgentGone, match="the process that started it is gone"):
            await spawn(NODE, tmp_path / "agent.sock", now=time.time, options=options)

    async def test_it_has_room_for_as_many_sandboxes_as_it_may(self, tmp_path: Path) -> None:
        with few_open_files() as most:
            agent, _ = await self.spawned(tmp_path, grace_s=10)
        allowed = most_open_files(agent.pid)
        await agent.aclose()
        assert allowed == most

    async def test_one_that_does_not_start_says_why(self, tmp_path: Path) -> None:
        options = ("--provider", "nothing")
        with pytest.raises(AgentGone, match=r"ended at once: .* invalid choice: 'nothing'"):
            await spawn(NODE, tmp_path / "agent.sock", now=time.time, options=options)

    async def test_its_death_is_told_to_everybody_who_waits(self, tmp_path: Path) -> None:
        agent, _ = await self.spawned(tmp_path, grace_s=10)
        heard = Heard()
        await agent.attach(heard)
        agent.start(a_run("slow", "sleep", "100"))
        closing = asyncio.create_task(agent.snapshot(TrajectoryId("none")))
        os.kill(agent.pid, 9)
        async with asyncio.timeout(PATIENCE_S):
            assert await heard.lost.get() == "the agent is gone"
        with pytest.raises(SandboxError):
            await closing
        with pytest.raises(AgentGone):
            await agent.read(T, "x")
        agent.start(a_run("late", "true"))
        await agent.aclose()

    async def test_silence_is_death(self, tmp_path: Path) -> None:
        socket, options = tmp_path / "agent.sock", ("--provider", "fake")
        for silence_s in (0.3, 3.0, 30.0):  # What is long for a busy machine?
            agent = await spawn(NODE, socket, now=time.time, options=options, silence_s=silence_s)
            heard, pid = Heard(), agent.pid
            await agent.attach(heard)
            await asyncio.sleep(1.5 * silence_s)
            if heard.lost.empty():
                break
            await agent.aclose()
        assert heard.lost.empty()
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_S):
            assert "did not answer" in await heard.lost.get()
        await agent.aclose()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    async def test_a_new_orchestrator_takes_the_place_of_the_old(self, tmp_path: Path) -> None:
        agent, socket = await self.spawned(tmp_path, grace_s=10)
        old = Heard()
        await agent.attach(old)
        again = await connect(NODE, socket, now=time.time)
        await again.attach(Heard())
        async with asyncio.timeout(PATIENCE_S):
            assert await old.lost.get()
        await again.aclose()
        await agent.aclose()

    @pytest.mark.parametrize("is_child", [True, False])
    async def test_one_that_lives_out_of_reach_is_ended_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_child: bool
    ) -> None:
        monkeypatch.setattr(remote, "END_PATIENCE_S", 10 * PATIENCE_S)
        agent, socket = await self.spawned(tmp_path, grace_s=10 * PATIENCE_S)
        reached = agent if is_child else await connect(NODE, socket, now=time.time)
        heard, pid = Heard(), agent.pid
        await reached.attach(heard)
        thief = await connect(NODE, socket, now=time.time)
        async with asyncio.timeout(PATIENCE_S):
            await heard.lost.get()
        assert await thief.ping() == Population()
        async with asyncio.timeout(PATIENCE_S):
            await reached.aclose()
        assert not is_alive(pid)
        await thief.detach()
        await agent.aclose()


def _fill(console: Console, argv: tuple[str, ...]) -> int:
    console.files[console.resolve(argv[1])] = bytes(10_000)
    return 0


class TestLongMessages:
    """What is too long for a frame is told its asker, and the node stays."""

    @pytest.fixture
    async def agent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[RemoteAgent]:
        """On a wire that takes kilobytes, so that the tests need not send what is really long."""
        monkeypatch.setattr(wire, "MOST_OUTPUT_BYTES", 4_000)
        monkeypatch.setattr(wire, "MOST_BYTES", 10_000)
        socket = tmp_path / "agent.sock"
        here = LocalAgent(NODE, FakeProvider(programs={"fill": _fill}), now=time.monotonic)
        serving = asyncio.create_task(AgentServer(here, grace_s=PATIENCE_S).serve(socket))
        async with asyncio.timeout(PATIENCE_S):
            while not socket.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        agent = await connect(NODE, socket, now=time.time)
        yield agent
        await agent.aclose()
        await serving

    async def test_a_file_is_refused_on_both_ways(self, agent: RemoteAgent, heard: Heard) -> None:
        agent.start(a_run("a", "fill", "there"))
        await heard.next()
        with pytest.raises(ValueError, match="are too many"):
            await agent.write(T, "here", data=bytes(10_000))
        with pytest.raises(ValueError, match="are too many"):
            await agent.read(T, "there")
        assert (await agent.ping()).sandboxes == 1

    async def test_a_start_ends_at_once_and_says_why(
        self, agent: RemoteAgent, heard: Heard
    ) -> None:
        agent.start(a_run("long", "cat", stdin=bytes(10_000)))
        agent.start(a_run("odd", "echo", "\udc80"))
        ends = [await heard.next(), await heard.next()]
        assert [ended.outcome for ended in ends] == [Outcome.FAILED, Outcome.FAILED]
        assert "are too many" in ends[0].reason
        assert "surrogates not allowed" in ends[1].reason
        agent.start(a_run("next", "true"))
        assert (await heard.next()).outcome is Outcome.SUCCEEDED

    async def test_output_is_cut_off_and_counted(self, agent: RemoteAgent, heard: Heard) -> None:
        agent.start(a_run("a", "echo", 9_000 * "x", output_bytes=1 << 30))
        ended = await heard.next()
        assert ended.result is not None
        assert len(ended.result.stdout) == 4_000
        assert ended.result.truncated_bytes == 5_001

    async def test_ends_that_are_too_long_together_are_found_one_by_one(
        self, agent: RemoteAgent, heard: Heard
    ) -> None:
        for name in "abcd":
            agent.start(a_run(name, "echo", 3_000 * name))
            await heard.next()
        for _ in range(2):
            found = await agent.attach(heard)
            assert [ended.run.action_id for ended in found.ended] == ["a", "b", "c", "d"]
            assert all(ended.began_at is not None for ended in found.ended)


def test_the_longest_output_fits_into_a_frame() -> None:
    most = bytes(wire.MOST_OUTPUT_BYTES)
    result = CommandResult(exit_code=0, stdout=most, stderr=most)
    ended = RunResult(run=RunId(ActionId("a"), 1), outcome=Outcome.SUCCEEDED, result=result)
    assert len(msgspec.msgpack.encode(wire.RunEnded(ended, 1.0))) < wire.MOST_BYTES
