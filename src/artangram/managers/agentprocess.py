"""The node agent as a process: `python -m artangram.managers.agentprocess --socket PATH ...`.

- One orchestrator at a time; a new connection takes the place of the old one.
- Without an orchestrator it goes on running what was started and keeps the ends. If none connects
  within the grace period, it ends everything and exits.
- The socket is made only when it listens, for its own user alone, and only while the process that
  started it (`--parent`) lives: a later orchestrator has started another agent by then.
"""

import argparse
import asyncio
import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from artangram.aio import Background
from artangram.core.ids import NodeId
from artangram.link import Greet, IncomingAsk, Link, LinkEnded, LinkFull, LinkUser, listen, settle
from artangram.managers import wire
from artangram.managers.agent import NodeInventory, RunId, RunResult
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
from artangram.sandbox.process import ProcessBegan

GRACE_S = 30.0
"""How long actions go on without an orchestrator: a restart takes seconds."""


PROVIDERS = ("strongest", "namespace", "container", "fake")
"""The first takes namespaces, or plain processes where `--lowest` allows them."""


class AgentServer:
    """Lets one orchestrator at a time use a local agent over a socket."""

    def __init__(self, agent: LocalAgent, *, grace_s: float = math.inf) -> None:
        self._agent = agent
        self._grace_s = grace_s
        self._link: Link[wire.Request] | None = None
        self._background = Background(self._on_error)
        self.over = asyncio.Event()
        """The orchestrator said so, or none came back."""
        self.is_dismissed = False
        """Was it told not to join again?"""
        self._patience: asyncio.TimerHandle | None = None
        self._goodbye: IncomingAsk[wire.Request] | None = None

    async def serve(self, socket: Path) -> None:
        """Until the orchestrator says so, or none comes back."""
        await self.begin()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.over.set)
        server = await _listening(socket, self._greet)
        self._start_grace()
        own = os.stat(socket).st_ino
        try:
            await self.over.wait()
        finally:
            server.close()
            _unlink(socket, own)
            await self._agent.aclose()
            await self.say_goodbye()

    async def begin(self) -> None:
        """Hear the agent."""
        await self._agent.attach(self)

    def use(self, link: Link[wire.Request]) -> "_Orchestrator":
        """From now on the orchestrator behind `link` uses the agent."""
        if self._link is not None:
            self._link.close()
        self._link = link
        if self._patience is not None:
            self._patience.cancel()
        return _Orchestrator(self, link)

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        run_s = None
        if ended.began_at is not None:
            run_s = time.monotonic() - ended.began_at
        self._send(wire.RunEnded(ended, run_s), ended.run)

    def on_output(self, run: RunId, output: Output | ProcessBegan) -> None:
        if isinstance(output, ProcessBegan):
            self._send(wire.RunBegan(run, output), run)
        else:
            self._send(wire.RunPrinted(run, output), run)

    def on_lost(self, node: NodeId, reason: str) -> None:
        self.over.set()

    def _greet(self, link: Link[wire.Request]) -> tuple["_Orchestrator", wire.AgentHello]:
        return self.use(link), wire.AgentHello(self._agent.node)

    def on_left(self, link: Link[wire.Request]) -> None:
        """An orchestrator is gone."""
        if self._link is link:
            self._link = None
            self._start_grace()

    def _start_grace(self) -> None:
        if self._grace_s < math.inf:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self._grace_s, self.over.set)

    def on_tell(self, record: wire.Request) -> None:
        match record:
            case wire.StartRun(run):
                self._agent.start(run)
            case wire.ResizeRun(action_id, cores, pace):
                self._agent.resize(action_id, cores, pace=pace)
            case wire.StopRun(action_id):
                self._agent.stop(action_id)
            case wire.Acknowledge(run):
                self._agent.acknowledge(run)

    def on_ask(self, asked: IncomingAsk[wire.Request], link: Link[wire.Request]) -> None:
        match asked.record:
            case wire.Attach():
                self._background.start(settle(asked, _told(link, self._agent.inventory())))
            case wire.LeaveAgent(is_dismissed):
                self._goodbye, self.is_dismissed = asked, is_dismissed
                self.over.set()
            case record:
                self._background.start(settle(asked, self._answered(record)))

    async def _answered(self, ask: wire.Request) -> object:
        agent = self._agent
        match ask:
            case wire.ReadFile(trajectory, path, max_bytes):
                return await agent.read(trajectory, path, max_bytes=max_bytes)
            case wire.WriteFile(trajectory, path, data):
                await agent.write(trajectory, path, data=data)
            case wire.FeedProcess(action_id, given):
                await agent.feed(action_id, given)
            case wire.SignalProcess(action_id, number):
                await agent.signal(action_id, number)
            case wire.TakeSnapshot(trajectory, terms):
                return await agent.snapshot(trajectory, terms)
            case wire.ListSnapshots():
                return await agent.snapshots()
            case wire.ForgetSnapshot(snapshot):
                return await agent.forget(snapshot)
            case wire.CloseTrajectory(trajectory):
                await agent.close(trajectory)
            case wire.BeginCall(name, spec, body, hedged):
                await agent.calls.begin(name, spec, body, hedged=hedged)
            case wire.AwaitCall(name):
                return await agent.calls.answer(name)
            case wire.EndCall(name):
                agent.calls.end(name)
            case wire.PackSnapshot(snapshot):
                return await agent.archives.pack(snapshot)
            case wire.ReadArchive(snapshot, offset):
                return await agent.archives.read(snapshot, offset)
            case wire.WriteArchive(snapshot, offset, data):
                await agent.archives.write(snapshot, offset, data=data)
            case wire.AdoptSnapshot(snapshot, archive):
                await agent.archives.adopt(snapshot, archive)
            case wire.PingAgent():
                return await agent.ping()
            case wire.ExamineNode(data):
                return await agent.examine(data)
        return None

    async def say_goodbye(self) -> None:
        """Everything is gone; only now is `Leave` answered."""
        await self._background.close()
        if self._goodbye is not None:
            self._goodbye.answer()
        if self._link is not None:
            await self._link.aclose()

    def _send(self, record: wire.Report, run: RunId) -> None:
        if self._link is None:
            return
        try:
            self._link.tell(record, stream=run.action_id)
        except LinkFull as error:  # The ends are kept for the next orchestrator.
            self._link.abort(LinkEnded(str(error)))

    def _on_error(self, error: BaseException) -> None:
        print(f"agent: {error!r}", file=sys.stderr)


class _Orchestrator(LinkUser[wire.Request]):
    """The user of the agent over one link."""

    def __init__(self, server: AgentServer, link: Link[wire.Request]) -> None:
        self._server = server
        self._link = link

    def on_tell(self, record: wire.Request) -> None:
        self._server.on_tell(record)

    def on_ask(self, asked: IncomingAsk[wire.Request]) -> None:
        self._server.on_ask(asked, self._link)

    def on_silent(self, silent_s: float) -> None:
        """Only an orchestrator that the agent dialed is watched: another link may reach it."""
        self._link.abort(LinkEnded(f"the orchestrator was silent for {silent_s:.3g} s"))

    def on_end(self, error: LinkEnded) -> None:
        self._server.on_left(self._link)


async def _told(link: Link[wire.Request], found: NodeInventory) -> NodeInventory:
    """Tell the ends that were found; what is left of the inventory comes after them."""
    for ended in found.ended:
        link.tell(wire.EndFound(structs.replace(ended, began_at=None)))
        await link.drain()
    return structs.replace(found, ended=())


async def _listening(socket: Path, greet: Greet[wire.Request]) -> asyncio.Server:
    """Listen under another name first: a process that sees `socket` can connect to it."""
    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    early = socket.with_name(socket.name + ".new")
    early.unlink(missing_ok=True)
    server = await listen(early, wire.agent_terms(), greet)
    os.chmod(early, 0o600)
    os.replace(early, socket)
    return server


def _unlink(socket: Path, own: int) -> None:
    """Remove the socket, if it is not that of another agent by now."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(socket).st_ino == own:
            os.unlink(socket)


async def provider_named(name: str, *, lowest: IsolationLevel, keep_for: str) -> SandboxProvider:
    match name:
        case "fake":
            return FakeProvider()
        case "namespace":
            return await NamespaceProvider.open(lowest=lowest, keep_for=keep_for)
        case "container":
            return await ContainerProvider.open(keep_for=keep_for)
    return await open_provider(lowest=lowest, keep_for=keep_for)


async def providers_named(
    names: Sequence[str], *, lowest: IsolationLevel, keep_for: str
) -> tuple[SandboxProvider, ...]:
    """All of them, or none. Raises `NotCapable`.

    `keep_for` is the same after a restart of the agent, which then has its named snapshots.
    """
    async with contextlib.AsyncExitStack() as undo:
        opened = []
        for name in names:
            opened.append(await provider_named(name, lowest=lowest, keep_for=keep_for))
            undo.push_async_callback(opened[-1].close)
        undo.pop_all()
    return tuple(opened)


def provider_options(names: Sequence[str]) -> tuple[str, ...]:
    """How an agent is told to have these providers."""
    return tuple(word for name in names for word in ("--provider", name))


async def _main(options: argparse.Namespace) -> int:
    try:
        providers = await providers_named(
            options.provider or PROVIDERS[:1],
            lowest=IsolationLevel[options.lowest.upper()],
            keep_for=str(options.socket.absolute()),
        )
    except NotCapable as problem:
        print(f"agent: {problem}", file=sys.stderr)
        return 1
    agent = LocalAgent(
        NodeId(options.node),
        *providers,
        now=time.monotonic,
        warm=options.warm,
        least_free_mb=options.least_free_mb,
        function_slots=options.function_slots,
    )
    if options.parent not in (None, os.getppid()):
        print("agent: the process that started it is gone; shutting down", file=sys.stderr)
        await agent.aclose()
        return 1
    await AgentServer(agent, grace_s=options.grace_s).serve(options.socket)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="agentd", description="Run actions on this node.")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--parent", type=int, help="process id of the parent")
    parser.add_argument("--grace-s", type=float, default=GRACE_S)
    parser.add_argument("--provider", choices=PROVIDERS, action="append")
    parser.add_argument("--warm", type=int, default=WARM)
    parser.add_argument("--least-free-mb", type=int, default=LEAST_FREE_MB)
    parser.add_argument("--function-slots", type=int, default=0)
    parser.add_argument(
        "--lowest", choices=[r.name.lower() for r in IsolationLevel], default="namespaces"
    )
    options = parser.parse_args()
    allow_open_files()
    return asyncio.run(_main(options))


if __name__ == "__main__":
    sys.exit(main())
