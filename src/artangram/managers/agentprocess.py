"""The node agent as a process: `python -m artangram.managers.agentprocess --socket PATH ...`.

- One orchestrator at a time; a new connection takes the place of the old one.
- Without an orchestrator it goes on running what was started and keeps the ends. Nobody back
  within the grace period: it ends everything and exits.
- The socket is made only when it listens, for its own user alone, and only if whoever started it
  (`--parent`) is still there: the next one has started another agent by then.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec import structs

from artangram.aio import Background
from artangram.core.ids import NodeId
from artangram.managers import wire
from artangram.managers.agent import AgentGone, RunId, RunResult
from artangram.managers.local import LEAST_FREE_MB, WARM, LocalAgent
from artangram.managers.machine import allow_open_files
from artangram.sandbox import (
    ContainerProvider,
    FakeProvider,
    IsolationLevel,
    NamespaceProvider,
    NotCapable,
    Output,
    SandboxProvider,
    open_provider,
)

_OnConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

GRACE_S = 30.0
"""How long actions go on without an orchestrator: a restart takes seconds."""


_PROVIDERS = ("strongest", "namespace", "container", "fake")
"""The first takes namespaces, or plain processes where `--lowest` allows them."""


class AgentServer:
    """Lets one orchestrator at a time use a local agent over a socket."""

    def __init__(self, agent: LocalAgent, *, grace_s: float) -> None:
        self._agent = agent
        self._grace_s = grace_s
        self._writer: asyncio.StreamWriter | None = None
        self._background = Background(self._on_error)
        self._over = asyncio.Event()
        self._patience: asyncio.TimerHandle | None = None
        self._goodbye: tuple[int, asyncio.StreamWriter] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def serve(self, socket: Path) -> None:
        """Until the orchestrator says so, or none comes back."""
        await self._agent.attach(self)
        self._wait_for_somebody()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._over.set)
        server = await _listening(socket, self._on_connection)
        own = os.stat(socket).st_ino
        try:
            await self._over.wait()
        finally:
            server.close()
            _unlink(socket, own)
            await self._agent.aclose()
            await self._say_goodbye()

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        run_s = None
        if ended.began_at is not None:
            run_s = time.monotonic() - ended.began_at
        self._send(wire.RunEnded(ended, run_s))

    def on_output(self, run: RunId, output: Output) -> None:
        self._send(wire.RunPrinted(run, output))

    def on_lost(self, node: NodeId, reason: str) -> None:
        self._over.set()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        if self._writer is not None:
            self._writer.close()
        self._writer = writer
        if self._patience is not None:
            self._patience.cancel()
        decode = msgspec.msgpack.Decoder(wire.Request).decode
        with contextlib.suppress(AgentGone, msgspec.MsgspecError):
            while (body := await wire.next_frame(reader)) is not None:
                self._on_request(decode(body), writer)
        writer.close()
        if self._writer is writer:
            self._writer = None
            self._wait_for_somebody()

    def _wait_for_somebody(self) -> None:
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(self._grace_s, self._over.set)

    def _on_request(self, request: wire.Request, writer: asyncio.StreamWriter) -> None:
        match request:
            case wire.StartRun(run):
                self._agent.start(run)
            case wire.ResizeRun(action_id, cores, pace):
                self._agent.resize(action_id, cores, pace=pace)
            case wire.StopRun(action_id):
                self._agent.stop(action_id)
            case wire.Acknowledge(run):
                self._agent.acknowledge(run)
            case wire.Attach(number):
                self._tell_inventory(number, writer)
            case wire.LeaveAgent():
                self._goodbye = (request.number, writer)
                self._over.set()
            case _:
                self._background.start(self._answer(request, writer))

    def _tell_inventory(self, number: int, writer: asyncio.StreamWriter) -> None:
        found = self._agent.inventory()
        for ended in found.ended:
            writer.write(wire.frame(wire.EndFound(structs.replace(ended, began_at=None))))
        writer.write(wire.frame(wire.AgentAnswer(number, structs.replace(found, ended=()))))

    async def _answer(self, ask: wire.Ask, writer: asyncio.StreamWriter) -> None:
        try:
            frame = wire.frame(await self._answered(ask))
        except Exception as error:  # noqa: BLE001 - whatever it is, its asker must hear of it
            frame = wire.frame(wire.refusal(ask.number, error))
        if not writer.is_closing():
            writer.write(frame)

    async def _answered(self, ask: wire.Ask) -> wire.AgentAnswer:
        agent = self._agent
        match ask:
            case wire.ReadFile(number, trajectory, path, max_bytes):
                return wire.AgentAnswer(
                    number, await agent.read(trajectory, path, max_bytes=max_bytes)
                )
            case wire.WriteFile(number, trajectory, path, data):
                await agent.write(trajectory, path, data=data)
            case wire.TakeSnapshot(number, trajectory):
                return wire.AgentAnswer(number, await agent.snapshot(trajectory))
            case wire.ForgetSnapshot(number, snapshot):
                await agent.forget(snapshot)
            case wire.CloseTrajectory(number, trajectory):
                await agent.close(trajectory)
            case wire.PingAgent(number):
                return wire.AgentAnswer(number, await agent.ping())
        return wire.AgentAnswer(number)

    async def _say_goodbye(self) -> None:
        """Everything is gone; only now is `Leave` answered."""
        await self._background.close()
        if self._goodbye is not None:
            number, writer = self._goodbye
            with contextlib.suppress(ConnectionError):
                writer.write(wire.frame(wire.AgentAnswer(number)))
                await writer.drain()
        if self._writer is not None:
            self._writer.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=1.0)

    def _send(self, message: wire.Response) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.frame(message))

    def _on_error(self, error: BaseException) -> None:
        print(f"agent: {error!r}", file=sys.stderr)


async def _listening(socket: Path, on_connection: _OnConnection) -> asyncio.Server:
    """Listen under another name first: who sees `socket` can connect to it."""
    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    early = socket.with_name(socket.name + ".new")
    early.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(on_connection, early)
    os.chmod(early, 0o600)
    os.replace(early, socket)
    return server


def _unlink(socket: Path, own: int) -> None:
    """Remove the socket, if it is not that of another agent by now."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(socket).st_ino == own:
            os.unlink(socket)


async def _provider(name: str, *, lowest: IsolationLevel) -> SandboxProvider:
    match name:
        case "fake":
            return FakeProvider()
        case "namespace":
            return await NamespaceProvider.open(lowest=lowest)
        case "container":
            return await ContainerProvider.open()
    return await open_provider(lowest=lowest)


async def _main(options: argparse.Namespace) -> int:
    try:
        provider = await _provider(options.provider, lowest=IsolationLevel[options.lowest.upper()])
    except NotCapable as problem:
        print(f"agent: {problem}", file=sys.stderr)
        return 1
    agent = LocalAgent(
        NodeId(options.node),
        provider,
        now=time.monotonic,
        warm=options.warm,
        least_free_mb=options.least_free_mb,
    )
    if options.parent not in (None, os.getppid()):
        print("agent: who started it is gone", file=sys.stderr)
        await agent.aclose()
        return 1
    await AgentServer(agent, grace_s=options.grace_s).serve(options.socket)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="agentd", description="Run actions on this node.")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--parent", type=int, help="who starts it, as a process id")
    parser.add_argument("--grace-s", type=float, default=GRACE_S)
    parser.add_argument("--provider", choices=_PROVIDERS, default=_PROVIDERS[0])
    parser.add_argument("--warm", type=int, default=WARM)
    parser.add_argument("--least-free-mb", type=int, default=LEAST_FREE_MB)
    parser.add_argument(
        "--lowest", choices=[r.name.lower() for r in IsolationLevel], default="namespaces"
    )
    options = parser.parse_args()
    allow_open_files()
    return asyncio.run(_main(options))


if __name__ == "__main__":
    sys.exit(main())
