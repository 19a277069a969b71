"""The node agent in a process of its own, seen from the orchestrator.

- `connect` reaches an agent that listens on a socket; `spawn` starts one first.
- What is too long for the agent is refused here; it costs nobody else anything.
- When the connection breaks, every waiting ask fails with `AgentGone` and the listener is told.
- An agent that does not answer is as good as gone: it is killed, so that it really is.
- `aclose` ends the agent, whoever started it: one that is out of reach and lives is killed.
  `detach` leaves it running, for an orchestrator that comes back.
"""

import asyncio
import contextlib
import itertools
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from socket import SO_PEERCRED, SOL_SOCKET
from typing import BinaryIO, cast

import msgspec
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.scheduling.records import Outcome
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
from artangram.managers.pidfd import ForeignProcess
from artangram.sandbox.protocol import MAX_READ_BYTES, Snapshot

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

    It is to outlive us: a signal to our group must not reach it, and who reads our output to its
    end must not wait for it.
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
    """Connect to an agent that listens already. `AgentGone` if there is none."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError as error:
        raise AgentGone(f"no agent listens on {socket}: {error.strerror}") from error
    try:
        held = process or _held(writer)
    except ProcessLookupError as error:
        writer.close()
        raise AgentGone(f"the agent of {node} has just ended") from error
    agent = RemoteAgent(node, reader, writer, now=now, process=held)
    agent.watch(silence_s)
    return agent


def _held(writer: asyncio.StreamWriter) -> ForeignProcess | None:
    """The process that listens; `None` if it is this one, or none that can be seen from here."""
    pid = _pid_of_peer(writer)
    return ForeignProcess(pid) if pid not in (0, os.getpid()) else None


def _pid_of_peer(writer: asyncio.StreamWriter) -> int:
    peer = writer.get_extra_info("socket")
    found = peer.getsockopt(SOL_SOCKET, SO_PEERCRED, _PID_OF_PEER.size)
    return int(_PID_OF_PEER.unpack(found)[0])


class RemoteAgent:
    """See `agent.NodeAgent`."""

    def __init__(
        self,
        node: NodeId,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        now: Callable[[], float],
        process: asyncio.subprocess.Process | ForeignProcess | None,
    ) -> None:
        self.node = node
        self._writer = writer
        self._now = now
        self._process = process
        self._listener: Listener | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[object]] = {}
        #: Of an answer to `Attach` that is under way.
        self._found: list[RunResult] = []
        self._gone = ""
        #: Did we leave it, and it not us?
        self._is_left = False
        self._reading = asyncio.create_task(self._read(reader))
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.node}: {self._gone or 'connected'}>"

    @property
    def pid(self) -> int:
        """Of the agent."""
        return _pid_of_peer(self._writer)

    def watch(self, silence_s: float) -> None:
        """From now on, give the agent up when it does not answer for so long."""
        self._watching = asyncio.create_task(self._watch(silence_s))

    async def attach(self, listener: Listener) -> NodeInventory:
        # Before the answer: an end told between the two is heard twice rather than never.
        self._listener = listener
        self._found = []
        found = cast(NodeInventory, await self._ask(wire.Attach(self._number())))
        return structs.replace(found, ended=tuple(self._found))

    async def ping(self) -> Population:
        return cast(Population, await self._ask(wire.PingAgent(self._number())))

    def start(self, run: Run) -> None:
        try:
            self._tell(wire.StartRun(_bounded(run)))
        except ValueError as error:
            ended = RunResult(run=run.id, outcome=Outcome.FAILED, reason=str(error))
            asyncio.get_running_loop().call_soon(self._tell_end, ended)

    def resize(self, action_id: ActionId, cores: tuple[int, ...], *, pace: float = 1.0) -> None:
        self._tell(wire.ResizeRun(action_id, cores, pace))

    def stop(self, action_id: ActionId) -> None:
        self._tell(wire.StopRun(action_id))

    def acknowledge(self, run: RunId) -> None:
        self._tell(wire.Acknowledge(run))

    async def read(
        self, trajectory: TrajectoryId, path: str, *, max_bytes: int = MAX_READ_BYTES
    ) -> bytes:
        ask = wire.ReadFile(self._number(), trajectory, path, max_bytes)
        return cast(bytes, await self._ask(ask))

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None:
        await self._ask(wire.WriteFile(self._number(), trajectory, path, data))

    async def snapshot(self, trajectory: TrajectoryId) -> Snapshot:
        return cast(Snapshot, await self._ask(wire.TakeSnapshot(self._number(), trajectory)))

    async def forget(self, snapshot: Snapshot) -> None:
        await self._ask(wire.ForgetSnapshot(self._number(), snapshot))

    async def close(self, trajectory: TrajectoryId) -> None:
        await self._ask(wire.CloseTrajectory(self._number(), trajectory))

    async def aclose(self) -> None:
        """The agent ends everything on it and exits."""
        self._listener = None
        if self._gone and not self._is_left:
            self._kill()  # It may live and go on with what was reported as lost.
        with contextlib.suppress(AgentGone):  # Gone is what was asked for.
            await self._ask(wire.LeaveAgent(self._number()))
        await self._disconnect()
        await self._end_process()

    async def detach(self) -> None:
        """Leave the agent to itself; it waits for its grace period for somebody to come back."""
        self._is_left = True
        await self._disconnect()
        if isinstance(self._process, ForeignProcess):
            self._process.let_go()

    async def _disconnect(self) -> None:
        self._listener = None
        self._writer.close()
        await asyncio.wait({self._reading})
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

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

    def _number(self) -> int:
        return next(self._numbers)

    def _tell(self, message: wire.Tell) -> None:
        """After a loss nobody is there to hear it, and the listener knows."""
        if not self._gone:
            self._writer.write(wire.frame(message))

    def _tell_end(self, ended: RunResult) -> None:
        if self._listener is not None:
            self._listener.on_ended(self.node, ended)

    async def _ask(self, ask: wire.Ask | wire.Attach | wire.LeaveAgent) -> object:
        if self._gone:
            raise AgentGone(f"{self.node}: {self._gone}")
        frame = wire.frame(ask)
        answer = self._waiting[ask.number] = asyncio.get_running_loop().create_future()
        self._writer.write(frame)
        try:
            return await answer
        finally:
            self._waiting.pop(ask.number, None)

    async def _watch(self, silence_s: float) -> None:
        with contextlib.suppress(AgentGone):
            while True:
                await asyncio.sleep(silence_s / 3)
                try:
                    async with asyncio.timeout(silence_s):
                        await self.ping()
                except TimeoutError:
                    self._kill()
                    self._lose(f"the agent did not answer for {silence_s:g} s")
                    return

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decode = msgspec.msgpack.Decoder(wire.Response).decode
        reason = "the agent is gone"
        try:
            while (body := await wire.next_frame(reader)) is not None:
                self._on_response(decode(body))
        except (AgentGone, msgspec.MsgspecError) as error:
            reason = f"the agent talks nonsense: {error}"
        self._lose(reason)

    def _on_response(self, response: wire.Response) -> None:
        match response:
            case wire.RunEnded(ended, run_s):
                self._tell_end(self._retimed(ended, run_s))
            case wire.EndFound(ended):
                self._found.append(self._retimed(ended))
            case wire.RunPrinted(run, output):
                if self._listener is not None:
                    self._listener.on_output(run, output)
            case wire.AgentAnswer(number, value):
                self._settle(number, value, None)
            case wire.AgentRefusal(number):
                self._settle(number, None, wire.raised(response))

    def _settle(self, number: int, value: object, error: Exception | None) -> None:
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)

    def _retimed(self, ended: RunResult, run_s: float | None = None) -> RunResult:
        """The same end with its beginning on our clock: as long ago as it ran."""
        if run_s is None and ended.result is not None:
            run_s = ended.result.run_s
        return structs.replace(ended, began_at=None if run_s is None else self._now() - run_s)

    def _lose(self, reason: str) -> None:
        if self._gone:
            return
        self._gone = reason
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()
        self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(AgentGone(f"{self.node}: {reason}"))
        if self._listener is not None:
            self._listener.on_lost(self.node, reason)


def _bounded(run: Run) -> Run:
    """`run`, printing no more than can be told of its end."""
    command = run.command
    if command is None or command.output_bytes <= wire.MOST_OUTPUT_BYTES:
        return run
    command = structs.replace(command, output_bytes=wire.MOST_OUTPUT_BYTES)
    return structs.replace(run, command=command)
