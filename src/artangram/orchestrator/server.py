"""The orchestrator as a service: JSON over HTTP, a token by default.

- The interface is that of `transport.Transport`, verb by verb; `/v1/openapi.json` describes it.
- A request to run is answered when the action has ended. When its caller hangs up, the action is
  cancelled, unless it has a key. A request whose body stalls for 30 s is answered 408; an answer
  may take as long as it takes.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import structs
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from artangram.aio import has_token, listening, served
from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, NodeId, TrajectoryId
from artangram.orchestrator.arguments import RunRequest, StartRequest, check_known
from artangram.orchestrator.calling import CallRequest
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.errors import KNOWN, ErrorRecord, problem_of
from artangram.orchestrator.httppolicy import permit_name, permit_names, permit_opening, permit_run
from artangram.orchestrator.ndjson import written
from artangram.orchestrator.openapi import description
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.prometheus import Exposition
from artangram.orchestrator.reconfigure import Reconfiguration
from artangram.orchestrator.records import QUEUEING, Opening, Stalled
from artangram.orchestrator.tokens import checked_token
from artangram.orchestrator.traces import trace_bytes
from artangram.sandbox.network import NetworkPolicy
from artangram.sandbox.process import ProcessInput
from artangram.sandbox.protocol import MAX_READ_BYTES, Snapshot
from artangram.sandbox.snapshot import SnapshotTerms

MOST_BODY_BYTES = MAX_READ_BYTES // 3 * 4 + (1 << 20)
"""A request with the largest stdin of a command, as JSON writes it."""

BODY_SILENCE_S = 30.0
"""How long a body may stall: longer than short network outages last, but a connection and an open
file are held meanwhile."""

_SEND_THE_TOKEN = (
    "send the token that `artangram up` printed: --token, ARTANGRAM_TOKEN, or over HTTP "
    "Authorization: Bearer ..."
)

Pages = Callable[[Orchestrator, str | None], AbstractAsyncContextManager[list[Route]]]
"""Further routes of a service with a token, open for as long as it serves."""

T = TypeVar("T")
Record = TypeVar("Record", bound=msgspec.Struct)


def application(
    orchestrator: Orchestrator,
    *,
    token: str | None,
    images: Sequence[Path] = (),
    network: NetworkPolicy | None = None,
    pages: Sequence[Route] = (),
) -> Starlette:
    """The service, to be served by any ASGI server. Without a token every caller may use it.

    `images` are the folders whose images callers may name, `network` is what they may reach,
    `pages` are further routes.
    """
    if token is not None:
        checked_token(token)
    service = _ServiceRoutes(orchestrator, images, network or NetworkPolicy())
    # Ids may have slashes, so the longer addresses are tried first.
    draining = "/v1/nodes/{node}/draining"
    one, action = "/v1/trajectories/{trajectory:path}", "/v1/actions/{action:path}"
    routes = [
        Route("/v1/openapi.json", _guarded(service.describe, None)),
        Route("/v1/status", _guarded(service.status, token)),
        Route("/v1/diagnosis", _guarded(service.diagnose, token)),
        Route("/v1/use", _guarded(service.use, token)),
        Route("/v1/trace", _guarded(service.trace, token)),
        Route("/metrics", _guarded(service.metrics, token)),
        Route("/v1/trajectories", _guarded(service.open, token), methods=["POST"]),
        Route("/v1/owners/{owner:path}", _guarded(service.heard, token), methods=["PUT"]),
        Route("/v1/calls", _guarded(service.call, token), methods=["POST"]),
        Route(f"{one}/run", _guarded(service.run, token), methods=["POST"]),
        Route(f"{one}/stream", _guarded(service.stream, token), methods=["POST"]),
        Route(f"{one}/start", _guarded(service.start, token), methods=["POST"]),
        Route(f"{one}/snapshot", _guarded(service.snapshot, token), methods=["POST"]),
        Route(f"{one}/files", _guarded(service.read, token), methods=["GET"]),
        Route(f"{one}/files", _guarded(service.write, token), methods=["PUT"]),
        Route(one, _guarded(service.close, token), methods=["DELETE"]),
        Route("/v1/snapshots", _guarded(service.snapshots, token)),
        Route("/v1/snapshots/{snapshot:path}", _guarded(service.forget, token), methods=["DELETE"]),
        Route("/v1/jobs/{job:path}/wait", _guarded(service.expected_wait, token)),
        Route("/v1/jobs/{job:path}", _guarded(service.close_job, token), methods=["DELETE"]),
        Route("/v1/cluster", _guarded(service.reconfigure, token), methods=["PATCH"]),
        Route(draining, _guarded(service.drain, token), methods=["PUT", "DELETE"]),
        Route(f"{action}/input", _guarded(service.feed, token), methods=["POST"]),
        Route(f"{action}/signal", _guarded(service.signal, token), methods=["POST"]),
        Route(f"{action}/history", _guarded(service.history, token)),
        Route(f"{action}/explain", _guarded(service.explain, token)),
        Route(action, _guarded(service.result, token), methods=["GET"]),
        Route(action, _guarded(service.cancel, token), methods=["DELETE"]),
    ]
    return Starlette(routes=[*routes, *pages])


class _ServiceRoutes:
    """A method per verb."""

    def __init__(
        self, orchestrator: Orchestrator, images: Sequence[Path], network: NetworkPolicy
    ) -> None:
        self._orchestrator = orchestrator
        self._backend = Embedded(orchestrator, network=network)
        self._images = images
        self._exposition = Exposition(orchestrator.status, use=self._backend.use_now)
        orchestrator.on_ended = self._exposition.count

    async def describe(self, request: Request) -> object:
        return description()

    async def status(self, request: Request) -> object:
        return await self._backend.status()

    async def diagnose(self, request: Request) -> object:
        return await self._backend.diagnose()

    async def expected_wait(self, request: Request) -> object:
        return await self._backend.expected_wait(JobId(request.path_params["job"]))

    async def use(self, request: Request) -> object:
        return await self._backend.use()

    async def trace(self, request: Request) -> object:
        pieces = trace_bytes(self._orchestrator.journal)
        first = await anext(pieces)  # Raises what is wrong before the answer begins.
        return StreamingResponse(_continued(first, pieces), media_type="application/gzip")

    async def metrics(self, request: Request) -> object:
        return Response(self._exposition.text(), media_type=CONTENT_TYPE_LATEST)

    async def open(self, request: Request) -> object:
        opening = await _decoded(request, Opening)
        permit_name(opening.trajectory)
        opening = await asyncio.to_thread(permit_opening, opening, images=self._images)
        # Without an owner, only the use of a trajectory keeps it open.
        owner = opening.owner or f"the user of {opening.trajectory}"
        opened = self._backend.open(structs.replace(opening, owner=owner))
        return await _while_listening(request, opened)

    async def heard(self, request: Request) -> object:
        return self._orchestrator.heard(request.path_params["owner"])

    async def close(self, request: Request) -> object:
        await self._backend.close(_trajectory(request))
        return None

    async def close_job(self, request: Request) -> object:
        await self._backend.close_job(JobId(request.path_params["job"]))
        return None

    async def drain(self, request: Request) -> object:
        node, is_on = NodeId(request.path_params["node"]), request.method == "PUT"
        await self._backend.drain(node, is_on=is_on)
        return None

    async def reconfigure(self, request: Request) -> object:
        wanted = await _decoded(request, Reconfiguration)
        for job in (*(wanted.shares or ()), *(wanted.limits or ())):
            permit_names(job=job)
        await self._backend.reconfigure(wanted)
        return None

    async def run(self, request: Request) -> object:
        wanted = await _run_request(request)
        result = await _while_listening(request, self._backend.run(wanted))
        return self._with_queueing(wanted.trajectory, result)

    async def stream(self, request: Request) -> object:
        pieces = self._backend.stream(await _run_request(request))
        return StreamingResponse(written(pieces), media_type="application/x-ndjson")

    async def start(self, request: Request) -> object:
        wanted = await _decoded(request, StartRequest)
        _check_address(wanted.trajectory, request)
        permit_names(kind=wanted.kind)
        pieces = written(self._backend.start(wanted))
        return StreamingResponse(pieces, media_type="application/x-ndjson")

    async def feed(self, request: Request) -> object:
        given = await _decoded(request, ProcessInput)
        return await _while_listening(request, self._backend.feed(_action(request), given))

    async def signal(self, request: Request) -> object:
        text = request.query_params.get("number", "")
        await self._backend.signal(_action(request), int(text) if text.isdecimal() else 0)
        return None

    async def call(self, request: Request) -> object:
        wanted = await _decoded(request, CallRequest)
        permit_names(kind=wanted.kind, job=wanted.job, task=wanted.task)
        result = await _while_listening(request, self._backend.call(wanted))
        return self._with_queueing(wanted.trajectory, result)

    async def snapshot(self, request: Request) -> object:
        trajectory, terms = _trajectory(request), await _decoded(request, SnapshotTerms)
        return self._with_queueing(trajectory, await self._backend.snapshot(trajectory, terms))

    async def snapshots(self, request: Request) -> object:
        return await self._backend.snapshots()

    async def forget(self, request: Request) -> object:
        node, provider = (request.query_params.get(one, "") for one in ("node", "provider"))
        name = request.path_params["snapshot"]
        await self._backend.forget(Snapshot(name=name, node=node, provider=provider))
        return None

    async def read(self, request: Request) -> object:
        path, trajectory = _path(request), _trajectory(request)
        found = await self._backend.read(trajectory, path, max_bytes=_max_bytes(request))
        return self._with_queueing(trajectory, found)

    async def write(self, request: Request) -> object:
        path, trajectory = _path(request), _trajectory(request)
        await self._backend.write(trajectory, path, data=await _body(request))
        return self._with_queueing(trajectory, None)

    async def result(self, request: Request) -> object:
        # A caller that hung up no longer waits: its future would keep the trajectory open.
        return await _while_listening(request, self._orchestrator.receipt(_action(request)).ended)

    async def cancel(self, request: Request) -> object:
        self._orchestrator.cancel(_action(request))
        return None

    async def history(self, request: Request) -> object:
        return await self._backend.history(_action(request))

    async def explain(self, request: Request) -> object:
        return await self._backend.explain(_action(request))

    def _with_queueing(self, trajectory: TrajectoryId | None, value: object) -> Response:
        """`value`, and how long the actions of `trajectory` have waited, if it is open."""
        response = _response(value)
        if trajectory is not None:
            with contextlib.suppress(KeyError):
                found = self._orchestrator.queueing(trajectory)
                response.headers[QUEUEING] = msgspec.json.encode(found).decode()
        return response


def _guarded(verb: Callable[[Request], Any], token: str | None) -> Callable[[Request], Any]:
    """`verb` for callers with the token; what it returns or raises becomes a response."""

    async def respond(request: Request) -> Response:
        if token is not None and not has_token(request.headers, token):
            problem = ErrorRecord(error="token", message=_SEND_THE_TOKEN)
            return _response(problem, HTTPStatus.UNAUTHORIZED)
        try:
            return _response(await verb(request))
        except KNOWN as error:
            refusal = _response(*problem_of(error))
            if isinstance(error, Stalled):
                # What would come next on it is the rest of this request, and no other.
                refusal.headers["Connection"] = "close"
            return refusal
        except ClientDisconnect:
            return Response()  # The caller hung up before the end of its request.

    return respond


def _response(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    if isinstance(value, Response):
        return value
    if isinstance(value, bytes):
        return Response(value, media_type="application/octet-stream")
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _decoded(request: Request, record: type[Record]) -> Record:
    body = await _body(request)
    try:
        # A limit that is misspelt would be no limit.
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        check_known(record, fields, of="this request")
        return msgspec.json.decode(body, type=record)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInput("body", str(error), "see /v1/openapi.json") from error


async def _run_request(request: Request) -> RunRequest:
    wanted = await _decoded(request, RunRequest)
    _check_address(wanted.trajectory, request)
    permit_run(wanted)
    return wanted


def _check_address(trajectory: TrajectoryId, request: Request) -> None:
    if trajectory != _trajectory(request):
        raise BadInput("trajectory", "differs from the one in the URL", "name the same one twice")


async def _body(request: Request) -> bytes:
    """The body of a request. Raises `BadInput` if it is too long, `Stalled` if it stops coming."""
    body, loop = bytearray(), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(BODY_SILENCE_S) as silence:
            async for chunk in request.stream():
                silence.reschedule(loop.time() + BODY_SILENCE_S)
                body += chunk
                if len(body) > MOST_BODY_BYTES:
                    problem = f"has more than {MOST_BODY_BYTES} bytes"
                    raise BadInput("body", problem, "send it in pieces")
    except TimeoutError:
        problem = f"nothing came for {BODY_SILENCE_S:g} s after {len(body)} bytes of the body"
        raise Stalled(f"{problem}; send all of it again") from None
    return bytes(body)


async def _while_listening(request: Request, work: Awaitable[T]) -> T | None:
    """What `work` returns; it is cancelled when its caller hangs up."""
    running = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        return running.result() if running.done() else None
    finally:
        running.cancel()
        gone.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _trajectory(request: Request) -> TrajectoryId:
    return TrajectoryId(request.path_params["trajectory"])


def _action(request: Request) -> ActionId:
    return ActionId(request.path_params["action"])


def _path(request: Request) -> str:
    try:
        return request.query_params["path"]
    except KeyError:
        raise BadInput("path", "is missing", "name a file of the sandbox: ?path=...") from None


def _max_bytes(request: Request) -> int:
    text = request.query_params.get("max_bytes", str(MAX_READ_BYTES))
    if not text.isdecimal() or not 0 < int(text) <= MAX_READ_BYTES:
        raise BadInput("max_bytes", f"{text[:20]!r} is not a size", f"give 1 to {MAX_READ_BYTES}")
    return int(text)


async def _continued(first: bytes, more: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(more):
        yield first
        async for piece in more:
            yield piece


@asynccontextmanager
async def serving(
    orchestrator: Orchestrator,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None,
    images: Sequence[Path] = (),
    network: NetworkPolicy | None = None,
    pages: Pages | None = None,
) -> AsyncIterator[str]:
    """Serve while the block lasts; gives the address. Raises `BadInput` if that cannot be had."""
    with listening(host, port) as listener:
        async with contextlib.AsyncExitStack() as stack:
            more = (
                [] if pages is None else await stack.enter_async_context(pages(orchestrator, token))
            )
            service = application(
                orchestrator, token=token, images=images, network=network, pages=more
            )
            yield await stack.enter_async_context(served(service, listener))
