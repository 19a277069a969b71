"""The Python client: a cluster, its trajectories, and what they run.

It is the same for an orchestrator in this process and for one behind HTTP; only the `Transport`
differs. A program's failure is in the result; a caller's mistake is raised.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, Unpack
from uuid import uuid4

import msgspec

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, NodeId, ServiceId, TrajectoryId
from artangram.core.scheduling.explain import Explanation
from artangram.functions import function_of
from artangram.managers.call import ServiceCall
from artangram.observe.history import Happening
from artangram.orchestrator.arguments import (
    FileRead,
    FileWrite,
    as_bytes,
    as_json,
    as_mapping,
    as_record,
    as_text,
    check_known,
    plain,
    run_request,
    start_request,
)
from artangram.orchestrator.calling import (
    Api,
    RemoteFunction,
    answered,
    checked_options,
    request_of,
)
from artangram.orchestrator.options import (
    CallOptions,
    ClusterChanges,
    RunOptions,
    ServiceOptions,
    StartOptions,
)
from artangram.orchestrator.process import KEPT_BYTES, ProcessHandle, check_kept
from artangram.orchestrator.reconfigure import Reconfiguration
from artangram.orchestrator.records import ActionResult, ClusterStatus, Opening
from artangram.orchestrator.shell import PROGRAM, ShellHandle
from artangram.orchestrator.transfer import download, upload
from artangram.orchestrator.transport import Transport
from artangram.orchestrator.use import UseReport
from artangram.sandbox.protocol import (
    MAX_READ_BYTES,
    WORK_DIR,
    HostImage,
    Limits,
    Output,
    Snapshot,
    Source,
)
from artangram.services.service import Loader, Service, loader_name

P = ParamSpec("P")
R = TypeVar("R")


class Client:
    """A cluster as its users see it: trajectories, model services, functions and APIs.

    `local` and `connect` give one.
    """

    def __init__(self, backend: Transport, *, new_id: Callable[[], str] | None = None) -> None:
        self._backend = backend
        self._new_id = new_id or (lambda: uuid4().hex[:12])

    def __repr__(self) -> str:
        return f"<Client {self._backend!r}>"

    @property
    def backend(self) -> Transport:
        """The way to its orchestrator, for a layer that wraps it."""
        return self._backend

    def trajectory(
        self,
        *,
        job: str = "default",
        task: str = "",
        problem: str = "",
        memory_mb: int = 512,
        disk_mb: int | None = None,
        processes: int = 256,
        network: bool = False,
        source: Source | None = None,
        selector: Mapping[str, str] | None = None,
        idle_s: float | None = None,
        lifetime_s: float | None = None,
        parent: str | None = None,
        id: str | None = None,
    ) -> "TrajectoryHandle":
        """One attempt at a problem; use it with `async with`. Its files last until it is closed.

        - `job`, `task`: whose share it counts against, and what kind of problem it attempts.
        - `problem`: which problem it attempts; siblings then tell each other how long their
          commands take.
        - `memory_mb`, `disk_mb`, `processes`: limits of its sandbox; files count as memory. By
          default files may take half of the memory, 256 MB at most.
        - `network`: give the sandbox access to the network.
        - `source`: the image or snapshot that it starts from. Default: the programs of the node.
        - `selector`: labels that its node must have, as in `{"disk": "nvme"}`.
        - `idle_s`, `lifetime_s`: it is closed when it has had no action for this long, or this long
          after it was opened, whatever it does. Default: never.
        - `parent`: the trajectory that waits for it. Its actions are refused when everything that
          holds memory waits for such a child: it would wait for ever.
        - `id`: your own name for it. Default: the task and a random suffix.
        """
        limits = Limits.sized(memory_mb, disk_mb=disk_mb, processes=processes, network=network)
        named = "" if id is None else as_text("id", id)
        given = {
            "trajectory": named or f"{task or 'trajectory'}-{self._new_id()}",
            "job": job,
            "task": task,
            "problem": problem,
            "memory_mb": memory_mb,
            "selector": as_mapping("selector", selector),
            "idle_s": idle_s,
            "lifetime_s": lifetime_s,
            "parent": parent,
            # As plain data: msgspec does not check the fields of a record that exists already.
            "place": {
                "source": plain("place.source", source or HostImage()),
                "limits": plain("place.limits", limits),
            },
        }
        return TrajectoryHandle(self._backend, as_record(Opening, given))

    def attach(self, id: str, *, task: str = "") -> "TrajectoryHandle":
        """A trajectory that is open already, opened by this client or another one.

        Using it with `async with` neither opens nor closes it; `close` does close it. Its owner is
        the client that opened it: when that goes away, the service closes it.

        - `task`: what it attempts, for the kind of its actions.
        """
        opening = as_record(Opening, {"trajectory": as_text("id", id), "task": task})
        return TrajectoryHandle(self._backend, opening, is_attached=True)

    async def call(self, service: str, payload: object, **options: Unpack[CallOptions]) -> Any:
        """Ask a model service and return its answer; both are JSON values."""
        name, body = ServiceId(as_text("service", service)), as_json("payload", payload)
        call = ServiceCall(service=name, body=body)
        request = request_of(call, checked_options(options), kind=f"service/{service}")
        found = answered(await self._backend.call(request))
        return msgspec.json.decode(found.body)

    def function(
        self, code: Callable[P, R], **options: Unpack[CallOptions]
    ) -> RemoteFunction[P, R]:
        """`code` as a coroutine function that runs in a function worker of the cluster.

        `code` has to be stateless and at the top of a module; `artangram.function` marks one.
        """
        found = function_of(code)
        self._backend.register(found)
        return RemoteFunction(found, checked_options(options), self._backend.call)

    async def deploy(self, name: str, loader: Loader, **options: Unpack[ServiceOptions]) -> None:
        """Add a model service. It is loaded onto devices when it is called.

        `loader` is a function at the top of a module, or its name (`module:function`). It returns
        an object with `predict(payloads) -> answers`.
        """
        check_known(ServiceOptions, options, of="a service")
        given = {**options, "id": as_text("name", name), "loader": loader_name(loader)}
        await self._backend.deploy(as_record(Service, given))

    def api(self, name: str) -> Api:
        """An outside API, called within the quota that all jobs share."""
        return Api(as_text("name", name), self._backend.call)

    async def close_job(self, job: str) -> None:
        """Close every trajectory of a job; what it has waiting or running is cancelled."""
        await self._backend.close_job(JobId(as_text("job", job)))

    async def drain(self, node: str, *, undo: bool = False) -> None:
        """Send a node no new trajectories; it leaves when the last one there is closed.

        `undo` lets it take trajectories again, for as long as it has not left.
        """
        await self._backend.drain(NodeId(as_text("node", node)), is_on=not undo)

    async def reconfigure(self, **changes: Unpack[ClusterChanges]) -> None:
        """Change what jobs, functions and APIs may use while the cluster runs.

        What is left out stays as it is. Raises `BadInput` and changes nothing if a value is wrong.
        A restart begins again with what the cluster is started with.
        """
        check_known(ClusterChanges, changes, of="a cluster that runs")
        given = {name: plain(name, one) for name, one in changes.items() if one is not None}
        await self._backend.reconfigure(as_record(Reconfiguration, given))

    async def explain(self, action_id: str) -> Explanation:
        """Why an action waits, resource by resource. Raises `KeyError` for one that has ended."""
        return await self._backend.explain(ActionId(as_text("action_id", action_id)))

    async def status(self) -> ClusterStatus:
        """What the cluster does now: queue, nodes, services, functions, APIs."""
        return await self._backend.status()

    async def use(self) -> UseReport:
        """What every task of every job has used so far: cores, memory, devices, calls, tokens."""
        return await self._backend.use()

    async def history(self, action_id: str) -> tuple[Happening, ...]:
        """What happened to an action, in order. Raises `KeyError` if it is not known any more."""
        return await self._backend.history(ActionId(as_text("action_id", action_id)))

    async def cancel(self, action_id: str) -> None:
        """Stop an action, whoever submitted it; nothing happens if it has ended."""
        await self._backend.cancel(ActionId(as_text("action_id", action_id)))


class TrajectoryHandle:
    """One attempt at a problem: a sandbox that keeps its files between commands.

    It holds cores only while a command runs. `run` and `stream` run one command at a time, and
    further ones wait; `start` starts processes beside them.
    """

    def __init__(self, backend: Transport, opening: Opening, *, is_attached: bool = False) -> None:
        self._backend = backend
        self._is_attached = is_attached
        self._opening = opening
        #: A sandbox runs one command at a time: the next one waits here, without cores.
        self._turn = asyncio.Lock()
        self._queued_s = 0.0
        self._started: list[ProcessHandle] = []

    def __repr__(self) -> str:
        return f"<Trajectory {self.id}>"

    @property
    def id(self) -> TrajectoryId:
        return self._opening.trajectory

    @property
    def queued_s(self) -> float:
        """Seconds that its actions have waited for resources, summed over all of them.

        Calls that name the trajectory count, too. Subtract this when you limit working time.
        """
        now = self._backend.queued_s(self.id)
        if now is not None:
            self._queued_s = now
        return self._queued_s

    async def __aenter__(self) -> Self:
        return self if self._is_attached else await self.open()

    async def __aexit__(self, *_: object) -> None:
        if not self._is_attached:
            await self.close()

    async def open(self) -> Self:
        """Open it without an `async with` block; then `close` ends it."""
        try:
            await self._backend.open(self._opening)
        except asyncio.CancelledError:
            await self.close()  # It may be open, and its owner will not close it.
            raise
        return self

    async def close(self) -> None:
        """End it: what still runs is stopped, its files are removed."""
        self._queued_s = self.queued_s  # After the end only this object knows it.
        await self._backend.close(self.id)
        started, self._started = self._started, []
        for process in started:
            await process.aclose()

    async def run(self, argv: Sequence[str], **options: Unpack[RunOptions]) -> ActionResult:
        """Run a command and wait for its end; `{units}` in it becomes the number of its cores.

        The command's own failure is in the result. `RunOptions` describes the keywords.
        """
        request = run_request(self._opening, argv, options)
        await self._turn.acquire()
        try:
            return await self._backend.run(request)
        finally:
            self._turn.release()

    async def stream(
        self, argv: Sequence[str], **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Output | ActionResult, None]:
        """Run a command; gives what it prints as it comes, and its result last.

        Leaving the iteration early stops the command, unless it has a `key`.
        """
        request = run_request(self._opening, argv, options)
        async with self._turn, aclosing(self._backend.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def start(
        self,
        argv: Sequence[str],
        *,
        output_bytes: int = KEPT_BYTES,
        lossless: bool = False,
        **options: Unpack[StartOptions],
    ) -> ProcessHandle:
        """Start a program beside what else runs here; returns when it runs.

        It is an action with a lease of its own, which it holds until it ends or the trajectory is
        closed. `StartOptions` describes the keywords.

        - `output_bytes`: how much unread output is kept. Older output is dropped and counted.
        - `lossless`: let the program wait for its reader instead of dropping its output.
        """
        check_kept(output_bytes)
        pieces = self._backend.start(start_request(self._opening, argv, options))
        process = ProcessHandle(self._backend, pieces, output_bytes=output_bytes, lossless=lossless)
        try:
            await process.begun()
        except asyncio.CancelledError:
            await process.abandon()
            raise
        self._started = [one for one in self._started if not one.is_over]
        self._started.append(process)
        return process

    async def shell(self, **options: Unpack[StartOptions]) -> ShellHandle:
        """Open a bash that keeps its directory and variables from one command to the next."""
        if options.get("terminal") is not None:
            fix = "start a shell with `start` and drive its terminal"
            raise BadInput("terminal", "a shell that is asked for results has none", fix)
        return ShellHandle(await self.start(PROGRAM, lossless=True, **options))

    async def write(self, path: str, data: bytes | str) -> None:
        """Replace a file's content; missing directories are made."""
        body = as_bytes("data", data) if isinstance(data, str) else data
        given = as_record(FileWrite, {"path": path, "data": body})
        await self._backend.write(self.id, given.path, data=given.data)

    async def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """A file's content. Raises `OSError` as `open` would."""
        given = as_record(FileRead, {"path": path, "max_bytes": max_bytes})
        return await self._backend.read(self.id, given.path, max_bytes=given.max_bytes)

    async def upload(self, source: str | PathLike[str], target: str = WORK_DIR) -> None:
        """Copy a file, or what is in a directory, of this machine into `target`, a directory.

        It goes in pieces, so its size has no limit but that of the sandbox. Needs `tar` there.
        Raises `OSError` with what `tar` said.
        """
        await upload(self._piped, Path(source), as_text("target", target))

    async def download(self, source: str, target: str | PathLike[str]) -> None:
        """Copy a file, or what is in a directory, of the sandbox into `target`, a directory here.

        Names and links that lead out of `target` are refused with `OSError`.
        """
        await download(self._piped, as_text("source", source), Path(target))

    async def _piped(self, argv: list[str]) -> ProcessHandle:
        return await self.start(argv, lossless=True, kind="files/tar")

    async def snapshot(self) -> Snapshot:
        """Its files at this moment, as the `source` of other trajectories."""
        return await self._backend.snapshot(self.id)
