"""E2B's `process.Process` on a trajectory: commands, terminals, and connecting to them again.

A process goes on when the client that started it hangs up; what it prints while no client listens
is dropped. It ends by itself, by a signal, at the time-out of its start, or with its sandbox.
"""

import asyncio
import signal
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request

from artangram.core.scheduling.action import Outcome
from artangram.integrations.connectrpc import ConnectProblem, envelopes_of
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.options import StartOptions
from artangram.orchestrator.process import ProcessHandle
from artangram.orchestrator.records import ActionResult

MOST_PIECES = 256
"""That a listener has not taken; a slow one slows the program."""


class E2bProcess:
    """One process and its listeners."""

    def __init__(self, handle: ProcessHandle, config: dict[str, Any], *, tag: str | None) -> None:
        self.handle = handle
        self.info: dict[str, Any] = {"config": config, "pid": handle.pid}
        if tag is not None:
            self.info["tag"] = tag
        self.has_terminal = False
        self._listeners: list[asyncio.Queue[dict[str, Any]]] = []

    async def pump(self) -> None:
        """Tell listeners what it prints, and its end last."""
        async for piece in self.handle:
            name = "pty" if self.has_terminal else piece.channel
            await self._tell({"data": {name: b64encode(piece.data).decode()}})
        result = await self.handle.wait()
        is_late = result.outcome is Outcome.TIMED_OUT
        await self._tell({"late": {}} if is_late else {"end": _end(result)})

    async def _tell(self, event: dict[str, Any]) -> None:
        for listener in list(self._listeners):
            await listener.put(event)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What happens from now on, after an event that says which process it is."""
        listener: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MOST_PIECES)
        self._listeners.append(listener)
        try:
            yield {"event": {"start": {"pid": self.handle.pid}}}
            while True:
                event = await listener.get()
                if "late" in event:
                    raise ConnectProblem("deadline_exceeded", "the command ran out of its time")
                yield {"event": event}
                if "end" in event:
                    return
        finally:
            self._listeners.remove(listener)
            while not listener.empty():
                listener.get_nowait()  # The pump may wait for room.


def _end(result: ActionResult) -> dict[str, Any]:
    code = result.exit_code
    if code is None:
        return {"exitCode": -1, "exited": False, "status": "lost", "error": result.reason}
    if result.command is not None and result.command.signal:
        status = f"signal: {signal.strsignal(result.command.signal)}"
        return {"exitCode": -1, "exited": False, "status": status.lower(), "error": status.lower()}
    end: dict[str, Any] = {"exitCode": code, "exited": True, "status": f"exit status {code}"}
    return end | ({"error": f"exit status {code}"} if code else {})


class E2bProcesses:
    """All processes of one sandbox, by pid and tag."""

    def __init__(self, trajectory: TrajectoryHandle, *, home: str) -> None:
        self._trajectory = trajectory
        self._home = home
        self._running: dict[int, E2bProcess] = {}
        self._pumps: set[asyncio.Task[None]] = set()

    async def start(
        self, wanted: dict[str, Any], *, timeout_s: float | None
    ) -> AsyncIterator[dict[str, Any]]:
        config = wanted.get("process", {})
        options: StartOptions = {
            "environ": config.get("envs", {}),
            "cwd": config.get("cwd") or self._home,
            "timeout_s": timeout_s,
        }
        size = wanted.get("pty", {}).get("size")
        if size is not None:
            options["terminal"] = (size.get("rows") or 24, size.get("cols") or 80)
        argv = [config.get("cmd", ""), *config.get("args", [])]
        handle = await self._trajectory.start(argv, lossless=True, **options)
        if not handle.pid:
            raise ConnectProblem("invalid_argument", (await handle.wait()).start_error)
        process = E2bProcess(handle, config, tag=wanted.get("tag"))
        process.has_terminal = size is not None
        self._running[handle.pid] = process
        if wanted.get("stdin") is False and size is None:
            await handle.close_stdin()
        events = process.events()
        first = await anext(events)  # It listens before anything is told.
        pump = asyncio.create_task(process.pump())
        self._pumps.add(pump)
        pump.add_done_callback(lambda done: self._ended(handle.pid, done))
        yield first
        async for event in events:
            yield event

    def _ended(self, pid: int, pump: asyncio.Task[None]) -> None:
        self._pumps.discard(pump)
        self._running.pop(pid, None)
        if not pump.cancelled():
            pump.exception()  # A sandbox that is gone ends its processes; clients ask for it.

    def selected(self, wanted: dict[str, Any]) -> E2bProcess:
        """The process that a request is about."""
        selector = wanted.get("process", {})
        for process in self._running.values():
            if process.handle.pid == selector.get("pid"):
                return process
            if "tag" in selector and process.info.get("tag") == selector["tag"]:
                return process
        raise ConnectProblem("not_found", f"process with {selector} not found")

    async def list(self, wanted: dict[str, Any]) -> dict[str, Any]:
        return {"processes": [one.info for one in self._running.values()]}

    async def update(self, wanted: dict[str, Any]) -> dict[str, Any]:
        size = wanted.get("pty", {}).get("size", {})
        await self.selected(wanted).handle.resize(size.get("rows") or 24, size.get("cols") or 80)
        return {}

    async def send_input(self, wanted: dict[str, Any]) -> dict[str, Any]:
        given = wanted.get("input", {})
        data = b64decode(given.get("stdin") or given.get("pty") or "")
        try:
            await self.selected(wanted).handle.write(data)
        except OSError as error:
            raise ConnectProblem("failed_precondition", f"stdin is closed: {error}") from error
        return {}

    async def stream_input(self, request: Request) -> AsyncIterator[dict[str, Any]]:
        selector: dict[str, Any] = {}
        async for message in envelopes_of(request):
            if "start" in message:
                selector = message["start"]
                self.selected(selector)
            elif "data" in message:
                await self.send_input({**selector, "input": message["data"].get("input", {})})
        yield {}

    async def send_signal(self, wanted: dict[str, Any]) -> dict[str, Any]:
        name = str(wanted.get("signal", "")).removeprefix("SIGNAL_")
        await self.selected(wanted).handle.signal(getattr(signal, name, signal.SIGTERM))
        return {}

    async def close_stdin(self, wanted: dict[str, Any]) -> dict[str, Any]:
        await self.selected(wanted).handle.close_stdin()
        return {}
