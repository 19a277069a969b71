"""The node agent in a process of its own, seen from the orchestrator.

- `connect` reaches an agent that listens on a socket; `spawn` starts one first.
- A record that is too long for the agent is refused here; the connection stays.
- When the connection breaks, every waiting ask fails with `AgentGone` and the listener is told.
- An agent that does not answer is as good as gone: it is killed, so that it really is.
- `aclose` ends the agent, even one that another process started: out of reach, it is killed.
  `detach` leaves it running, for an orchestrator that comes back.
"""

import asyncio
import contextlib
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from socket import SO_PEERCRED, SOL_SOCKET
from types import NoneType
from typing import BinaryIO, TypeVar

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.link import (
    Link,
    LinkBroken,
    LinkEnded,
    LinkFull,
    LinkRefused,
    LinkUser,
    PeerFailed,
    dial,
)
from artangram.managers import wire
from artangram.managers.agent import (
    AgentGone,
    Listener,
    NodeInventory,
    Population,
    Run,
    RunId,
    RunResult,
)
from artangram.managers.archives import RemoteArchives
from artangram.managers.examination import NodeExamination
from artangram.managers.nodefunctions import RemoteFunctions
from artangram.managers.pidfd import ForeignProcess
from artangram.sandbox.errors import SandboxError
from artangram.sandbox.offers import ProviderOffer
from artangram.sandbox.process import ProcessInput
from artangram.sandbox.protocol import MAX_READ_BYTES, Snapshot
from artangram.sandbox.snapshot import HELD, SnapshotInfo, SnapshotTerms

T = TypeVar("T")

START_PATIENCE_S = 30.0
"""How long an agent may take from its start until it listens."""

END_PATIENCE_S = 10.0
"""How long an agent may take to end everything on it before it is killed."""

SILENCE_S = 15.0
"""How long an agent may not answer: far longer than the worst stall of a busy machine."""

MOST_PATH_BYTES = 103
"""What the kernel takes of a socket's path, without the ending that `agentd` begins with."""

_LOOK_EVERY_S = 0.02
_PID_OF_PEER = struct.Struct("3i")


async def spawn(
    node: NodeId,
    socket: Path,
    *,
    now: Callable[[], float],
    options: tuple[str, ...] = (),
    silence_s: float = SILENCE_S,
) -> "RemoteAgent":
    """Start an agent that listens on `socket`, and connect to it."""
    agentd = ("-m", "artangram.managers.agentprocess", "--node", node, "--socket", str(socket))
    argv = (*agentd, "--parent", str(os.getpid()), *options)
    log = socket.with_suffix(".log")
    _check_path(socket)
    process = await _started(argv, log)
    try:
        async with asyncio.timeout(START_PATIENCE_S):
            while not await asyncio.to_thread(socket.exists):
                if process.returncode is not None:
                    words = await asyncio.to_thread(_last_words, log)
                    raise AgentGone(f"the agent of {node} ended at once: {words}; see {log}")
                await asyncio.sleep(_LOOK_EVERY_S)
        return await connect(node, socket, now=now, process=process, silence_s=silence_s)
    except BaseException:
        if process.returncode is None:
            process.kill()
        await process.wait()
        raise


async def _started(argv: tuple[str, ...], log: Path) -> asyncio.subprocess.Process:
    """Start Python with `argv`, as free of us as it can be.

    It is to outlive us: a signal to our group must not reach it, and a reader of our
    output must not wait for it.
    """
    with _private(log) as messages:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=messages,
            start_new_session=True,
        )


def _check_path(socket: Path) -> None:
    num_bytes = len(os.fsencode(socket))
    if num_bytes > MOST_PATH_BYTES:
        problem = f"{socket} has {num_bytes} bytes, and a socket's path {MOST_PATH_BYTES} at most"
        raise BadInput("state_dir", problem, "take a directory with a shorter path")


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "without a word")


def _private(log: Path) -> BinaryIO:
    """Only its owner reads it: what went wrong may name what was run."""
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600))


async def connect(
    node: NodeId,
    socket: Path,
    *,
    now: Callable[[], float],
    process: asyncio.subprocess.Process | None = None,
    silence_s: float = SILENCE_S,
) -> "RemoteAgent":
    """Connect to an agent that listens already. `AgentGone` if none does."""
    agent = RemoteAgent(node, now=now, process=process)
    try:
        await agent.dial(socket, silence_s=silence_s)
    except OSError as error:
        raise AgentGone(f"no agent listens on {socket}: {error.strerror}") from error
    except (LinkRefused, LinkEnded) as error:
        raise AgentGone(f"the agent of {node} on {socket} cannot be used: {error}") from error
    return agent


def _held(pid: int) -> ForeignProcess | None:
    """The process that listens; `None` if it is this one, or cannot be seen from here."""
    return ForeignProcess(pid) if pid not in (0, os.getpid()) else None


def _pid_of_peer(link: Link[wire.Report]) -> int:
    found = link.extra("socket").getsockopt(SOL_SOCKET, SO_PEERCRED, _PID_OF_PEER.size)
    return int(_PID_OF_PEER.unpack(found)[0])


class RemoteAgent(LinkUser[wire.Report]):
    """See `agent.NodeAgent`."""

    def __init__(
        self,
        node: NodeId,
        *,
        now: Callable[[], float],
        process: asyncio.subprocess.Process | ForeignProcess | None,
    ) -> None:
        self.node = node
        self._now = now
        self._process = process
        self._link: Link[wire.Report]
        self.pid = 0
        """Of the agent; 0 before it was dialed."""
        self.offers: tuple[ProviderOffer, ...] = ()
        self.archives = RemoteArchives(self._ask)
        self.functions: RemoteFunctions = RemoteFunctions(self._ask)
        self._listener: Listener | None = None
        #: Of an answer to `Attach` that is under way.
        self._found: list[RunResult] = []
        self._is_attaching = False
        #: What concerns a run goes in the stream of its trajectory, after its start.
        self._streams: dict[ActionId, TrajectoryId] = {}
        self._gone = ""
        #: Did we leave it, and it not us?
        self._is_left = False

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.node}: {self._gone or 'connected'}>"

    async def dial(self, socket: Path, *, silence_s: float) -> None:
        """Connect. An agent that is silent for `silence_s` is killed and reported as lost."""
        self._link = await dial(socket, wire.orchestrator_terms(silence_s), self)
        self.pid = _pid_of_peer(self._link)
        node = self._link.peer(wire.AgentHello).node
        try:
            if node != self.node:
                raise LinkRefused(f"it is the agent of {node}")
            self._process = self._process or _held(self.pid)
        except (LinkRefused, ProcessLookupError) as error:
            await self._link.aclose()
            if isinstance(error, LinkRefused):
                raise
            raise LinkEnded("it has just ended") from error

    async def attach(self, listener: Listener) -> NodeInventory:
        self._listener = listener
        self._found, self._is_attaching = [], True
        try:
            found = await self._ask(wire.Attach(), NodeInventory)
        finally:
            self._is_attaching = False
        self.offers = found.offers
        # What ended since the answer was written ran when it was.
        ended = {one.run: one for one in self._found}
        running = tuple(run for run in found.running if run not in ended)
        return structs.replace(found, running=running, ended=tuple(ended.values()))

    async def ping(self) -> Population:
        return await self._ask(wire.PingAgent(), Population)

    async def examine(self, data: bytes = b"") -> NodeExamination:
        # In a stream of its own: what is sent to measure delays nothing else.
        return await self._ask(wire.ExamineNode(data), NodeExamination, stream="examine")

    def start(self, run: Run) -> None:
        try:
            self._tell(wire.StartRun(_bounded(run)), stream=run.trajectory)
        except ValueError as error:
            ended = RunResult(run=run.id, outcome=Outcome.FAILED, reason=str(error))
            asyncio.get_running_loop().call_soon(self._tell_end, ended)
        else:
            self._streams[run.id.action_id] = run.trajectory

    def resize(self, action_id: ActionId, cores: tuple[int, ...], *, pace: float = 1.0) -> None:
        told = wire.ResizeRun(action_id, cores, pace)
        self._tell(told, stream=self._streams.get(action_id))

    def stop(self, action_id: ActionId) -> None:
        self._tell(wire.StopRun(action_id), stream=self._streams.get(action_id))

    async def feed(self, action_id: ActionId, given: ProcessInput) -> None:
        # Not in the stream of its trajectory: what waits for a reader must delay nothing else.
        await self._ask(wire.FeedProcess(action_id, given), NoneType, stream=f"feed {action_id}")

    async def signal(self, action_id: ActionId, number: int) -> None:
        await self._ask(wire.SignalProcess(action_id, number), NoneType)

    def acknowledge(self, run: RunId) -> None:
        self._tell(wire.Acknowledge(run), stream=None)

    async def read(
        self, trajectory: TrajectoryId, path: str, *, max_bytes: int = MAX_READ_BYTES
    ) -> bytes:
        ask = wire.ReadFile(trajectory, path, max_bytes)
        return await self._ask(ask, bytes, stream=trajectory)

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None:
        await self._ask(wire.WriteFile(trajectory, path, data), NoneType, stream=trajectory)

    async def snapshot(self, trajectory: TrajectoryId, terms: SnapshotTerms = HELD) -> Snapshot:
        return await self._ask(wire.TakeSnapshot(trajectory, terms), Snapshot, stream=trajectory)

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        return await self._ask(wire.ListSnapshots(), tuple[SnapshotInfo, ...])

    async def forget(self, snapshot: Snapshot) -> bool:
        if not self._gone:
            await self._link.drain()  # A start from it may still be on its way, in any stream.
        return await self._ask(wire.ForgetSnapshot(snapshot), bool)

    async def close(self, trajectory: TrajectoryId) -> None:
        await self._ask(wire.CloseTrajectory(trajectory), NoneType, stream=trajectory)

    async def aclose(self) -> None:
        """The agent ends everything on it and exits."""
        self._listener = None
        if self._gone and not self._is_left:
            self._kill()  # It may live and go on with what was reported as lost.
        with contextlib.suppress(AgentGone):  # Gone is what was asked for.
            await self._ask(wire.LeaveAgent(), NoneType)
        await self._disconnect()
        await self._end_process()

    async def detach(self) -> None:
        """Leave the agent to itself; it waits for an orchestrator for its grace period."""
        self._is_left = True
        await self._disconnect()
        if isinstance(self._process, ForeignProcess):
            self._process.let_go()

    async def _disconnect(self) -> None:
        self._listener = None
        await self.functions.aclose()
        await self._link.aclose()

    async def _end_process(self) -> None:
        if self._process is None:
            return
        try:
            async with asyncio.timeout(END_PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._kill()
            await self._process.wait()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _tell(self, record: wire.Tell, *, stream: str | None) -> None:
        """After a loss the agent hears nothing, and the listener knows."""
        try:
            self._link.tell(record, stream=stream)
        except LinkFull as error:
            self._kill()
            self._lose(f"the agent does not read what it is told: {error}")

    def _tell_end(self, ended: RunResult) -> None:
        self._streams.pop(ended.run.action_id, None)
        if self._listener is not None:
            self._listener.on_ended(self.node, ended)

    async def _ask(
        self, record: wire.Ask | wire.Attach | wire.LeaveAgent, answer: type[T], *, stream: str = ""
    ) -> T:
        try:
            return await self._link.ask(record, answer, stream=stream)
        except LinkEnded as error:
            raise AgentGone(f"{self.node}: {self._gone or error}") from None
        except PeerFailed as error:
            raise SandboxError(str(error)) from None

    # What the link calls.

    def on_tell(self, record: wire.Report) -> None:
        match record:
            case wire.RunEnded(ended, run_s) if self._is_attaching:
                self._found.append(self._retimed(ended, run_s))
            case wire.RunEnded(ended, run_s):
                self._tell_end(self._retimed(ended, run_s))
            case wire.EndFound(ended):
                self._found.append(self._retimed(ended))
            case wire.RunPrinted(run, output):
                if self._listener is not None:
                    self._listener.on_output(run, output)
            case wire.RunBegan(run, began):
                if self._listener is not None:
                    self._listener.on_output(run, began)

    def on_silent(self, silent_s: float) -> None:
        self._kill()
        self._lose(f"the agent did not answer for {silent_s:.3g} s")

    def on_end(self, error: LinkEnded) -> None:
        is_nonsense = isinstance(error, LinkBroken)
        self._lose(f"the agent talks nonsense: {error}" if is_nonsense else "the agent is gone")

    def _retimed(self, ended: RunResult, run_s: float | None = None) -> RunResult:
        """The same end with its beginning on our clock: as long ago as it ran."""
        if run_s is None and ended.result is not None:
            run_s = ended.result.run_s
        return structs.replace(ended, began_at=None if run_s is None else self._now() - run_s)

    def _lose(self, reason: str) -> None:
        if self._gone:
            return
        self._gone = reason
        self._link.abort(LinkEnded(reason))
        if self._listener is not None:
            self._listener.on_lost(self.node, reason)


def _bounded(run: Run) -> Run:
    """`run`, printing no more than can be told of its end."""
    command = run.command
    if command is None or command.output_bytes <= wire.MOST_OUTPUT_BYTES:
        return run
    command = structs.replace(command, output_bytes=wire.MOST_OUTPUT_BYTES)
    return structs.replace(run, command=command)
