"""A front for E2B's clients, served by `up`: sandboxes, commands, terminals and files.

- `E2B_API_URL=URL/e2b`, `E2B_SANDBOX_URL=URL/e2b/envd` and the service's token as `E2B_API_KEY`
  are all that a client of E2B's, or a framework that uses one, has to know.
- A sandbox is a trajectory with the user and home that E2B's have. It ends at its time-out.
- Left out: metadata of files, signed URLs, watching, pausing, templates but `base`.
"""

import asyncio
import gzip
import hashlib
import hmac
import posixpath
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from artangram.core.errors import BadInput, InfraFailed
from artangram.integrations.connectrpc import ConnectProblem, one_message, refused, streamed
from artangram.integrations.e2bfiles import E2bFiles
from artangram.integrations.e2bprocess import E2bProcesses
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.orchestrator import Orchestrator

USER = "user"
HOME = posixpath.join("/home", USER)
ENVD_VERSION = "0.5.7"
"""Of the program in E2B's sandboxes whose interface this is; clients ask for no more."""
MEMORY_MB, DISK_MB = 1024, 512
MOST_LIFE_S = 86_400.0
GONE = 'sandbox "{}" was not found'
_PROCESS = {"List": "list", "Update": "update", "SendInput": "send_input"}
_PROCESS |= {"SendSignal": "send_signal", "CloseStdin": "close_stdin"}
_FILES = {"Stat": "stat", "ListDir": "list_dir", "MakeDir": "make_dir", "Move": "move"}
_FILES |= {"Remove": "remove"}
Verb = Callable[[Request], Awaitable[Response]]


class E2bSandbox:
    """One sandbox of E2B's."""

    def __init__(self, name: str, trajectory: TrajectoryHandle, wanted: dict[str, Any]) -> None:
        self.name = name
        self.trajectory = trajectory
        self.template = wanted.get("templateID", "base")
        self.metadata = wanted.get("metadata") or {}
        self.processes = E2bProcesses(trajectory, home=HOME)
        self.files = E2bFiles(trajectory, home=HOME)
        self.started_at = self.ends_at = datetime.now(UTC)
        self._end: asyncio.TimerHandle | None = None

    def live_for(self, timeout_s: float, end: Callable[[], object]) -> None:
        """Call `end` then; a later call takes the place of an earlier one."""
        timeout_s = min(timeout_s, MOST_LIFE_S)
        self.forget_end()
        self.ends_at = datetime.now(UTC) + timedelta(seconds=timeout_s)
        self._end = asyncio.get_running_loop().call_later(timeout_s, end)

    def forget_end(self) -> None:
        if self._end is not None:
            self._end.cancel()

    def described(self) -> dict[str, Any]:
        return {
            "templateID": self.template,
            "sandboxID": self.name,
            "clientID": "artangram",
            "envdVersion": ENVD_VERSION,
            "startedAt": self.started_at.isoformat(),
            "endAt": self.ends_at.isoformat(),
            "cpuCount": 1,
            "memoryMB": MEMORY_MB,
            "diskSizeMB": DISK_MB,
            "state": "running",
            "metadata": self.metadata,
        }


class E2bServer:
    """E2B's two interfaces: that of its API, and that of the program in each sandbox."""

    def __init__(self, client: Client, token: str | None) -> None:
        self._client = client
        self._token = token
        self._sandboxes: dict[str, E2bSandbox] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        api, envd = "/e2b", "/e2b/envd"
        one = f"{api}/sandboxes/{{name}}"
        made = [
            ("POST", f"{api}/v2/sandboxes", self._create),
            ("POST", f"{one}/timeout", self._extend),
        ]
        made += [
            ("POST", f"{api}/sandboxes", self._create),
            ("GET", f"{api}/v2/sandboxes", self._list),
        ]
        made += [("GET", one, self._describe), ("DELETE", one, self._kill)]
        made += [("POST", f"{one}/connect", self._connect)]
        made += [("POST", f"{api}/v2/sandboxes/{{name}}/connect", self._connect)]
        inside = [("GET", f"{envd}/health", self._health), ("GET", f"{envd}/files", self._download)]
        inside += [("POST", f"{envd}/files", self._upload)]
        inside += [("POST", f"{envd}/process.Process/{{verb}}", self._process)]
        inside += [("POST", f"{envd}/filesystem.Filesystem/{{verb}}", self._filesystem)]
        return [
            *(Route(path, self._guarded(verb), methods=[how]) for how, path, verb in made),
            *(Route(path, self._inside(verb), methods=[how]) for how, path, verb in inside),
        ]

    def _guarded(self, verb: Verb) -> Verb:
        async def respond(request: Request) -> Response:
            given = request.headers.get("x-api-key", "")
            if self._token and not secrets.compare_digest(given.encode(), self._token.encode()):
                return _problem(401, "the API key is not the service's token")
            try:
                return await verb(request)
            except BadInput as error:
                return _problem(400, str(error))
            except InfraFailed as error:
                return _problem(503, str(error))

        return respond

    def _inside(self, verb: Verb) -> Verb:
        async def respond(request: Request) -> Response:
            name = request.headers.get("e2b-sandbox-id", "")
            if name not in self._sandboxes:
                return _problem(502, GONE.format(name))
            given = request.headers.get("x-access-token", "")
            if not secrets.compare_digest(given.encode(), self._key(name).encode()):
                return _problem(401, "the access token is not this sandbox's")
            try:
                return await verb(request)
            except ConnectProblem as problem:
                return refused(problem)
            except BadInput as error:
                return refused(ConnectProblem("invalid_argument", str(error)))
            except (InfraFailed, KeyError) as error:
                return refused(ConnectProblem("unavailable", str(error)))

        return respond

    def _key(self, name: str) -> str:
        return hmac.new((self._token or "").encode(), name.encode(), hashlib.sha256).hexdigest()

    def _sandbox(self, request: Request) -> E2bSandbox:
        return self._sandboxes[request.headers["e2b-sandbox-id"]]

    async def _create(self, request: Request) -> Response:
        wanted = await request.json()
        if wanted.get("templateID", "base") not in ("base", ""):
            return _problem(404, f"template {wanted['templateID']!r} not found; there is `base`")
        name = uuid4().hex
        trajectory = self._client.trajectory(
            id=name,
            job="e2b",
            task="e2b",
            memory_mb=MEMORY_MB,
            disk_mb=DISK_MB,
            workdir=HOME,
            home=HOME,
            user=USER,
            environ=wanted.get("envVars") or {},
            lifetime_s=MOST_LIFE_S,
        )
        await trajectory.open()
        sandbox = self._sandboxes[name] = E2bSandbox(name, trajectory, wanted)
        sandbox.live_for(float(wanted.get("timeout") or 300), lambda: self._end(name))
        return JSONResponse(self._told(sandbox), 201)

    def _told(self, sandbox: E2bSandbox) -> dict[str, Any]:
        return sandbox.described() | {"envdAccessToken": self._key(sandbox.name)}

    def _end(self, name: str) -> asyncio.Task[None]:
        sandbox = self._sandboxes.pop(name)
        sandbox.forget_end()
        closing = asyncio.create_task(sandbox.trajectory.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    async def _list(self, request: Request) -> Response:
        wanted = dict(
            pair.split("=", 1)
            for pair in request.query_params.get("metadata", "").split("&")
            if "=" in pair
        )
        found = [one for one in self._sandboxes.values() if wanted.items() <= one.metadata.items()]
        return JSONResponse([one.described() for one in found])

    async def _describe(self, request: Request) -> Response:
        found = self._sandboxes.get(request.path_params["name"])
        return _missing(request) if found is None else JSONResponse(self._told(found))

    async def _connect(self, request: Request) -> Response:
        name = request.path_params["name"]
        found = self._sandboxes.get(name)
        if found is None:
            return _missing(request)
        wanted = await request.json()
        if timeout_s := wanted.get("timeout"):
            found.live_for(float(timeout_s), lambda: self._end(name))
        return JSONResponse(self._told(found))

    async def _extend(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._sandboxes:
            return _missing(request)
        timeout_s = float((await request.json()).get("timeout", 300))
        self._sandboxes[name].live_for(timeout_s, lambda: self._end(name))
        return Response(status_code=204)

    async def _kill(self, request: Request) -> Response:
        if request.path_params["name"] not in self._sandboxes:
            return _missing(request)
        await self._end(request.path_params["name"])
        return Response(status_code=204)

    async def _health(self, request: Request) -> Response:
        return Response(status_code=204)

    async def _download(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        path = sandbox.files.absolute(request.query_params.get("path", ""))
        try:
            data = await sandbox.trajectory.read(path)
        except FileNotFoundError:
            return _problem(404, f"path '{path}' does not exist")
        except OSError as error:
            return _problem(400, f"path '{path}' cannot be read: {error}")
        headers = {}
        if request.headers.get("accept-encoding", "") == "gzip":
            data, headers = gzip.compress(data), {"Content-Encoding": "gzip"}
        return Response(data, headers=headers, media_type="application/octet-stream")

    async def _upload(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        given = request.query_params.get("path", "")
        written = []
        for path, data in await _parts(request, given):
            target = sandbox.files.absolute(path)
            try:
                await sandbox.trajectory.write(target, data)
            except OSError as error:
                return _problem(507 if error.errno == 28 else 400, f"path '{target}': {error}")
            written.append({"name": target.rpartition("/")[2], "type": "file", "path": target})
        return JSONResponse(written)

    async def _process(self, request: Request) -> Response:
        processes, verb = self._sandbox(request).processes, request.path_params["verb"]
        if verb == "StreamInput":
            return streamed(processes.stream_input(request))
        wanted = await one_message(request)
        if verb == "Start":
            limit = request.headers.get("connect-timeout-ms", "")
            timeout_s = int(limit) / 1000 if limit.isdecimal() and int(limit) else None
            return streamed(processes.start(wanted, timeout_s=timeout_s))
        if verb == "Connect":
            return streamed(processes.selected(wanted).events())
        return await _called(processes, _PROCESS, verb, wanted)

    async def _filesystem(self, request: Request) -> Response:
        wanted = await one_message(request)
        return await _called(
            self._sandbox(request).files, _FILES, request.path_params["verb"], wanted
        )

    async def aclose(self) -> None:
        for name in list(self._sandboxes):
            await self._end(name)


async def _called(of: object, verbs: dict[str, str], verb: str, wanted: dict[str, Any]) -> Response:
    if verb not in verbs:
        raise ConnectProblem("unimplemented", f"{verb} is not served here")
    return JSONResponse(await getattr(of, verbs[verb])(wanted))


async def _parts(request: Request, path: str) -> list[tuple[str, bytes]]:
    """The files of an upload: one as the body, or several as a form."""
    if not request.headers.get("content-type", "").startswith("multipart/"):
        body = await request.body()
        is_packed = request.headers.get("content-encoding", "") == "gzip"
        return [(path, gzip.decompress(body) if is_packed else body)]
    async with request.form(max_files=10_000, max_part_size=1 << 30) as form:
        files = [one for one in form.getlist("file") if not isinstance(one, str)]
        several = len(files) > 1
        return [
            (one.filename or path if several else path or one.filename or "", await one.read())
            for one in files
        ]


def _problem(status: int, message: str) -> Response:
    return JSONResponse({"code": status, "message": message}, status)


def _missing(request: Request) -> Response:
    return _problem(404, GONE.format(request.path_params["name"]))


@asynccontextmanager
async def e2b_pages(orchestrator: Orchestrator, token: str | None) -> AsyncIterator[list[Route]]:
    """The routes that a service adds for E2B's clients; their sandboxes end with it."""
    server = E2bServer(Client(Embedded(orchestrator)), token)
    try:
        yield server.routes()
    finally:
        await server.aclose()
