"""SWE-ReX's wire, served by `up`: each sandbox is a SWE-ReX server under its own address.

- `RemoteRuntime(host="http://127.0.0.1:7410/swerex/NAME", auth_token=TOKEN)` uses the trajectory
  `NAME`: one that a client opened, or else one that is opened here, with the defaults below.
- A request that is sent again with the same `X-Request-ID` is answered with the same answer.
- Exceptions travel as SWE-ReX's do: status 511, with the class that the caller raises again.
"""

import asyncio
import io
import secrets
import zipfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from swerex.runtime.abstract import (
    Action,
    CloseResponse,
    CloseSessionRequest,
    Command,
    CreateSessionRequest,
    IsAliveResponse,
    ReadFileRequest,
    UploadResponse,
    WriteFileRequest,
)

from artangram.core.errors import BadInput
from artangram.integrations.swerex import TrajectoryRuntime
from artangram.orchestrator.client import Client
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.orchestrator import Orchestrator

IDLE_S = 3600.0
"""A sandbox that SWE-ReX's client left behind is closed after this long."""
MEMORY_MB = 2048
TRANSFER_STATUS = 511
ANSWERS_KEPT = 256

_VERBS: dict[str, Any] = {
    "create_session": TypeAdapter(CreateSessionRequest),
    "run_in_session": TypeAdapter(Action),
    "close_session": TypeAdapter(CloseSessionRequest),
    "execute": TypeAdapter(Command),
    "read_file": TypeAdapter(ReadFileRequest),
    "write_file": TypeAdapter(WriteFileRequest),
}


class SwerexServer:
    """Runtimes by the name of their trajectory."""

    def __init__(self, client: Client, token: str | None) -> None:
        self._client = client
        self._token = token
        self._runtimes: dict[str, asyncio.Task[TrajectoryRuntime]] = {}
        self._answers: OrderedDict[str, asyncio.Task[Response]] = OrderedDict()

    def routes(self) -> list[Route]:
        return [
            Route("/swerex/{name}", self._guarded(self._hello)),
            Route("/swerex/{name}/is_alive", self._guarded(self._is_alive)),
            Route("/swerex/{name}/upload", self._guarded(self._upload), methods=["POST"]),
            Route("/swerex/{name}/close", self._guarded(self._close), methods=["POST"]),
            Route("/swerex/{name}/{verb}", self._guarded(self._act), methods=["POST"]),
        ]

    def _guarded(
        self, verb: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            given = request.headers.get("x-api-key", "")
            if self._token and not secrets.compare_digest(given.encode(), self._token.encode()):
                return JSONResponse({"detail": "Invalid API Key"}, 401)
            try:
                return await verb(request)
            except Exception as error:  # noqa: BLE001 - SWE-ReX's wire carries every exception.
                return _transferred(error)

        return respond

    async def _runtime(self, request: Request) -> TrajectoryRuntime:
        return await asyncio.shield(self._begun(request.path_params["name"]))

    def _begun(self, name: str) -> asyncio.Task[TrajectoryRuntime]:
        running = self._runtimes.get(name)
        if running is None or (running.done() and running.exception() is not None):
            running = self._runtimes[name] = asyncio.create_task(self._opened(name))
        return running

    async def _opened(self, name: str) -> TrajectoryRuntime:
        try:
            handle = self._client.attach(name)
            await handle.write("/tmp/.is-alive", b"")
        except (KeyError, BadInput):
            handle = self._client.trajectory(
                id=name, job="swerex", task="swerex", memory_mb=MEMORY_MB, idle_s=IDLE_S
            )
            await handle.open()
        return TrajectoryRuntime(handle)

    async def _hello(self, request: Request) -> Response:
        return JSONResponse({"message": "hello world"})

    async def _is_alive(self, request: Request) -> Response:
        # SWE-ReX's client waits 0.15 s for this: the answer does not wait for the sandbox.
        running = self._begun(request.path_params["name"])
        failed = running.done() and running.exception()
        told = IsAliveResponse(is_alive=not failed, message=str(failed or ""))
        return JSONResponse(told.model_dump())

    async def _act(self, request: Request) -> Response:
        key = request.headers.get("x-request-id", "")
        body = await request.body()
        if not key:
            return await self._answer(request, body)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = asyncio.create_task(self._answer(request, body))
            while len(self._answers) > ANSWERS_KEPT:
                self._answers.popitem(last=False)
        return await asyncio.shield(answer)

    async def _answer(self, request: Request, body: bytes) -> Response:
        verb = request.path_params["verb"]
        if verb not in _VERBS:
            return JSONResponse({"detail": f"{verb!r} is not a verb of SWE-ReX 1.4"}, 404)
        wanted = _VERBS[verb].validate_json(body)
        try:
            found = await getattr(await self._runtime(request), verb)(wanted)
        except Exception as error:  # noqa: BLE001 - as above; the answer is kept for a repetition.
            return _transferred(error)
        return JSONResponse(found.model_dump())

    async def _upload(self, request: Request) -> Response:
        runtime = await self._runtime(request)
        async with request.form(max_part_size=1 << 30) as form:
            file, target = form["file"], str(form["target_path"])
            assert not isinstance(file, str)
            data = await file.read()
            if str(form.get("unzip", "false")).lower() != "true":
                await runtime.trajectory.write(target, data)
            else:
                for path, content in await asyncio.to_thread(_unzipped, data):
                    await runtime.trajectory.write(f"{target}/{path}", content)
        return JSONResponse(UploadResponse().model_dump())

    async def _close(self, request: Request) -> Response:
        running = self._runtimes.pop(request.path_params["name"], None)
        if running is not None:
            runtime = await running
            await runtime.close()
            await runtime.trajectory.close()
        return JSONResponse(CloseResponse().model_dump())


def _unzipped(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(one.filename, archive.read(one)) for one in archive.infolist() if not one.is_dir()]


def _transferred(error: Exception) -> Response:
    told = {
        "message": str(error),
        "class_path": f"{type(error).__module__}.{type(error).__name__}",
        "traceback": "",
        "extra_info": getattr(error, "extra_info", {}),
    }
    return JSONResponse({"swerexception": told}, TRANSFER_STATUS)


@asynccontextmanager
async def swerex_pages(orchestrator: Orchestrator, token: str | None) -> AsyncIterator[list[Route]]:
    """The routes that a service adds for SWE-ReX's clients."""
    yield SwerexServer(Client(Embedded(orchestrator)), token).routes()
