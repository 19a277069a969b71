"""The Python interface: a cluster, its trajectories, and what they run.

The same for an orchestrator in this process and for one behind HTTP; a `Transport` is the
difference. What a program does wrong is in the result; what a caller does wrong is raised.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ParamSpec, Protocol, Self, TypeVar
from uuid import uuid4

import msgspec
from msgspec import UNSET

from artangram.core.ids import ActionId, JobId, ServiceId, TrajectoryId
from artangram.core.scheduling.explain import Explanation
from artangram.functions import Function, function_of
from artangram.managers.call import ServiceCall
from artangram.orchestrator.arguments import (
    FileRead,
    FileWrite,
    as_bytes,
    as_json,
    as_record,
    as_text,
    check_known,
    plain,
)
from artangram.orchestrator.calling import Api, CallRequest, Sent, answered, options_of, request_of
from artangram.orchestrator.records import ActionResult, ClusterStatus, Opening
from artangram.orchestrator.runs import RunRequest, run_request
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

Amount = int | dict[str, Any]
"""A number of units, or what `between` and `one_of` return."""


def between(least: int, most: int) -> dict[str, Any]:
    """Any number of units from `least` to `most`: the more, the faster."""
    return {"min": least, "max": most}


def one_of(*choices: int) -> dict[str, Any]:
    """One of these numbers of units: the more, the faster."""
    return {"choices": list(choices)}


class Transport(Protocol):
    """The way to an orchestrator."""

    async def open(self, opening: Opening) -> None: ...

    async def close(self, trajectory: TrajectoryId) -> None: ...

    async def close_job(self, job: JobId) -> None: ...

    async def run(self, request: RunRequest) -> ActionResult: ...

    def stream(self, request: RunRequest) -> AsyncGenerator[Output | ActionResult, None]: ...

    async def call(self, request: CallRequest) -> ActionResult: ...

    def register(self, function: Function[..., Any]) -> None:
        """Make sure that `function` can be called by its name."""
        ...

    async def deploy(self, service: Service) -> None: ...

    async def read(self, trajectory: TrajectoryId, path: str, *, max_bytes: int) -> bytes: ...

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None: ...

    async def snapshot(self, trajectory: TrajectoryId) -> Snapshot: ...

    def queued_s(self, trajectory: TrajectoryId) -> float | None:
        """How long the actions of a trajectory have waited; `None` if it is not open."""
        ...

    async def explain(self, action_id: ActionId) -> Explanation: ...

    async def status(self) -> ClusterStatus: ...


class Client:
    """Everything one orchestrator offers."""

    def __init__(self, backend: Transport, *, new_id: Callable[[], str] | None = None) -> None:
        self._backend = backend
        self._new_id = new_id or (lambda: uuid4().hex[:12])

    def __repr__(self) -> str:
        return f"<Cluster {self._backend!r}>"

    @property
    def backend(self) -> Transport:
        """The way to its orchestrator, for who puts something in between."""
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
        id: str | None = None,
    ) -> "TrajectoryHandle":
        """One attempt at a problem, to be used as `async with`. It keeps its files to its end.

        With the name of its `problem`, siblings tell each other how long their commands take.
        """
        limits = Limits.sized(memory_mb, disk_mb=disk_mb, processes=processes, network=network)
        named = "" if id is None else as_text("id", id)
        given = {
            "trajectory": named or f"{task or 'trajectory'}-{self._new_id()}",
            "job": job,
            "task": task,
            "problem": problem,
            "memory_mb": memory_mb,
            # As plain data: of a record that is there already nobody looks at the fields.
            "place": {
                "source": plain("place.source", source or HostImage()),
                "limits": plain("place.limits", limits),
            },
        }
        return TrajectoryHandle(self._backend, as_record(Opening, given))

    async def call(self, service: str, payload: object, **options: Any) -> Any:
        """Ask a model service; `payload` and the answer are JSON.

        `options` are those of every call (`CallOptions`): `kind`, `job`, `timeout_s`, `key`, ...
        """
        name, body = ServiceId(as_text("service", service)), as_json("payload", payload)
        call = ServiceCall(service=name, body=body)
        request = request_of(call, options_of(options), kind=f"service/{service}")
        found = answered(await self._backend.call(request))
        return msgspec.json.decode(found.body)

    def function(self, code: Callable[P, R], **options: Any) -> Sent[P, R]:
        """`code`, to be awaited: it runs on a function slot. `options` are those of every call.

        It has to be stateless and at the top of a module; `artangram.function` marks one and says
        more about it.
        """
        found = function_of(code)
        self._backend.register(found)
        return Sent(found, options_of(options), self._backend.call)

    async def deploy(self, name: str, loader: Loader, **options: Any) -> None:
        """Add a model service; it is loaded onto devices when it is called.

        `loader` is a function at the top of a module, or its name (`module:function`); it returns
        something with `predict(payloads) -> answers`. `options` are the fields of `Service`:
        `weights`, `degrees`, `batch`, `options` for the loader, `example`, ...
        """
        check_known(Service, options, of="a service")
        given = {**options, "id": as_text("name", name), "loader": loader_name(loader)}
        await self._backend.deploy(as_record(Service, given))

    def api(self, name: str) -> Api:
        """An outside API, called within the quota that all jobs share."""
        return Api(as_text("name", name), self._backend.call)

    async def close_job(self, job: str) -> None:
        """End every trajectory of a job, with all it has waiting or running."""
        await self._backend.close_job(JobId(as_text("job", job)))

    async def explain(self, action_id: str) -> Explanation:
        """Why an action waits."""
        return await self._backend.explain(ActionId(as_text("action_id", action_id)))

    async def status(self) -> ClusterStatus:
        """One look at everything."""
        return await self._backend.status()


class TrajectoryHandle:
    """A place that keeps its files, and gets cores only while something runs in it."""

    def __init__(self, backend: Transport, opening: Opening) -> None:
        self._backend = backend
        self._opening = opening
        #: A sandbox runs one command at a time: the next one waits here and not on its cores.
        self._turn = asyncio.Lock()
        self._queued_s = 0.0

    def __repr__(self) -> str:
        return f"<Trajectory {self.id}>"

    @property
    def id(self) -> TrajectoryId:
        return self._opening.trajectory

    @property
    def queued_s(self) -> float:
        """Seconds that its actions have waited for what they need, summed; it grows as they wait.

        Calls count that name the trajectory. Limits on work are to leave this out.
        """
        now = self._backend.queued_s(self.id)
        if now is not None:
            self._queued_s = now
        return self._queued_s

    async def __aenter__(self) -> Self:
        try:
            await self._backend.open(self._opening)
        except asyncio.CancelledError:
            await self.close()  # It may be open, and nobody else would.
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End it: what still runs is stopped, its files go."""
        self._queued_s = self.queued_s  # After the end only we remember it.
        await self._backend.close(self.id)

    async def run(
        self,
        argv: Sequence[str],
        *,
        cpu: Amount = 1,
        kind: str | None = None,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        needs: Mapping[str, Any] | None = None,
        speedup: Mapping[str, Any] | None = None,
        work_s: float | None = None,
        repeatable: bool = False,
        key: str | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str = WORK_DIR,
        stdin: bytes | str = b"",
        output_bytes: int = 1 << 20,
        memory_mb: int = 0,
        disk_mb: int = 0,
        processes: int = 0,
        keep: bool = False,
    ) -> ActionResult:
        """Run a command on `cpu` cores; `{units}` in it becomes their number.

        `timeout_s` limits its run, `deadline_s` the whole wait for it; `memory_mb`, `disk_mb` and
        `processes` of 0 are those of the trajectory. `repeatable` lets it run again, in an empty
        sandbox if need be, when infrastructure failed under it. The same `key` twice is the same
        action, run once.
        """
        request = run_request(
            self._opening,
            argv,
            cpu=cpu,
            kind=kind,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            needs={} if needs is None else needs,
            speedup=speedup,
            work_s=work_s,
            repeatable=repeatable,
            key=key,
            environ={} if environ is None else environ,
            cwd=cwd,
            stdin=as_bytes("stdin", stdin) if isinstance(stdin, str) else stdin,
            output_bytes=output_bytes,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            processes=processes,
            keep=keep,
        )
        await self._turn.acquire()
        try:
            return await self._backend.run(request)
        finally:
            self._turn.release()

    async def stream(
        self, argv: Sequence[str], **options: Any
    ) -> AsyncGenerator[Output | ActionResult, None]:
        """What a command prints as it comes, and its result last; `options` as for `run`.

        Who leaves the iteration early ends the command, unless it has a `key`.
        """
        check_known(RunRequest, options, of="a run")
        for name in ("needs", "environ"):
            if options.get(name, UNSET) is None:
                del options[name]
        if isinstance(options.get("stdin"), str):
            options["stdin"] = as_bytes("stdin", options["stdin"])
        request = run_request(self._opening, argv, **options)
        async with self._turn, aclosing(self._backend.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def write(self, path: str, data: bytes | str) -> None:
        """Replace a file's content, making missing directories."""
        body = as_bytes("data", data) if isinstance(data, str) else data
        given = as_record(FileWrite, {"path": path, "data": body})
        await self._backend.write(self.id, given.path, data=given.data)

    async def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """A file's content."""
        given = as_record(FileRead, {"path": path, "max_bytes": max_bytes})
        return await self._backend.read(self.id, given.path, max_bytes=given.max_bytes)

    async def snapshot(self) -> Snapshot:
        """Its files at this moment, as a `source` for siblings."""
        return await self._backend.snapshot(self.id)
