"""The addresses of the dashboard: one page, its files, what it shows, and one action."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from artangram.core.ids import ActionId
from artangram.dashboard.gate import COOKIE, HEADERS, KEPT_S, PageGate
from artangram.dashboard.source import OwnCluster, ViewSource
from artangram.dashboard.view import viewing
from artangram.orchestrator.orchestrator import Orchestrator

if TYPE_CHECKING:  # It needs torch, and a service that trains nothing does not.
    from artangram.dashboard.run import RunFollower

PATH = "/dashboard"
MOST_LOGIN_BYTES = 4096

_FILES = {
    "app.js": "text/javascript",
    "charts.js": "text/javascript",
    "run.js": "text/javascript",
    "style.css": "text/css",
    "uplot.js": "text/javascript",
    "uplot.css": "text/css",
}

_LOGIN_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
"""The page that asks for the token brings its own style: it may load nothing."""

Answer = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def pages(
    orchestrator: Orchestrator, token: str | None, run: "RunFollower | None" = None
) -> AsyncIterator[list[Route]]:
    """The routes of the dashboard, for as long as the block lasts; `run` uses the cluster alone."""
    async with viewing(orchestrator, "" if run is None else run.run) as viewer:
        yield _Pages(OwnCluster(viewer), PageGate(token), run).routes()


def pages_beside(service: ViewSource, token: str, run: "RunFollower") -> list[Route]:
    """The routes of the dashboard of a run that uses a service; `token` lets its readers in."""
    return _Pages(service, PageGate(token), run).routes()


class _Pages:
    def __init__(self, source: ViewSource, gate: PageGate, run: "RunFollower | None") -> None:
        self._source = source
        self._gate = gate
        self._run = run
        folder = files("artangram.dashboard") / "static"
        self._texts = {name: (folder / name).read_bytes() for name in [*_FILES, "index.html"]}
        self._login = (folder / "login.html").read_bytes()

    def routes(self) -> list[Route]:
        run = [] if self._run is None else self._run_routes(self._run)
        return [
            *run,
            Route("/", self._seen(self.front)),
            Route(PATH, self._seen(self.page)),
            Route(f"{PATH}/login", self.login, methods=["POST"]),
            Route(f"{PATH}/static/{{name}}", self._seen(self.file)),
            Route(f"{PATH}/view.json", self._seen(self.view)),
            Route(f"{PATH}/actions/{{action:path}}", self._seen(self.action)),
        ]

    def _run_routes(self, run: "RunFollower") -> list[Route]:
        async def curves(request: Request) -> Response:
            return _json(msgspec.json.encode(await run.curves()))

        async def transcripts(request: Request) -> Response:
            return _json(msgspec.json.encode(await run.transcripts()))

        return [
            Route(f"{PATH}/run.json", self._seen(curves)),
            Route(f"{PATH}/transcripts.json", self._seen(transcripts)),
        ]

    async def front(self, request: Request) -> Response:
        return RedirectResponse(PATH, HTTPStatus.SEE_OTHER, HEADERS)

    async def page(self, request: Request) -> Response:
        return Response(self._texts["index.html"], headers=HEADERS, media_type="text/html")

    async def login(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_LOGIN_BYTES:
                return self._refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        given = parse_qs(body.decode(errors="replace")).get("token", [""])[0].strip()
        return self._let_in(request, given)

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return Response("no such file", HTTPStatus.NOT_FOUND, HEADERS)
        return Response(self._texts[name], headers=HEADERS, media_type=_FILES[name])

    async def view(self, request: Request) -> Response:
        return _json(*await self._source.view())

    async def action(self, request: Request) -> Response:
        return _json(*await self._source.action(ActionId(request.path_params["action"])))

    def _seen(self, answer: Answer) -> Answer:
        """`answer` for callers that may look; others are asked for the token."""

        async def respond(request: Request) -> Response:
            if self._gate.admits(request.headers, request.cookies):
                return await answer(request)
            given = request.query_params.get("token", "")
            if given and request.method == "GET" and request.url.path == PATH:
                return self._let_in(request, given)
            return self._refusal(HTTPStatus.UNAUTHORIZED)

        return respond

    def _let_in(self, request: Request, given: str) -> Response:
        if not self._gate.accepts(request.headers, given):
            return self._refusal(HTTPStatus.UNAUTHORIZED)
        answer = RedirectResponse(PATH, HTTPStatus.SEE_OTHER, HEADERS)
        answer.set_cookie(
            COOKIE,
            self._gate.pass_(),
            max_age=KEPT_S,
            path=PATH,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    def _refusal(self, status: HTTPStatus) -> Response:
        headers = HEADERS | {"Content-Security-Policy": _LOGIN_POLICY}
        return Response(self._login, status, headers, media_type="text/html")


def _json(body: bytes, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(body, status, HEADERS, media_type="application/json")
