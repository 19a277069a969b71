"""Functions behind a URL, on real local HTTP servers."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
import uvicorn
from aiohttp import web

import artangram
from artangram.core.errors import BadInput, CallFailed, InfraFailed
from artangram.functions import Function, function
from artangram.functions.platform import ATTEMPTS, HttpFunctions
from artangram.functions.serve import asgi, lambda_handler
from artangram.sandbox.fake import FakeProvider
from integration.functions import subjects

Respond = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def served(respond: Respond) -> AsyncIterator[str]:
    """The address of a platform that responds so."""
    app = web.Application()
    app.router.add_post("/function", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/function"
    finally:
        await runner.cleanup()


async def called(
    url: str,
    *args: object,
    authorization: str | None = None,
    environ: Mapping[str, str] = {},
) -> Any:
    """`subjects.add` behind `url`, called with hardly any back-off."""
    mark = function(url=url, authorization=authorization)
    remote: Function[..., Any] = mark(subjects.add.code)
    functions = HttpFunctions(rng=_Hasty(), environ=environ)
    try:
        return remote.decode(await functions.call(remote.spec, remote.encode(*args)))
    finally:
        await functions.aclose()


class _Hasty(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return 0.001


class Scripted:
    """Answers with one response after the other, the last one for ever."""

    def __init__(self, *responses: tuple[int, bytes, dict[str, str]]) -> None:
        self._responses = list(responses)
        self.bodies: list[bytes] = []

    async def respond(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        index = min(len(self.bodies), len(self._responses)) - 1
        status, body, headers = self._responses[index]
        return web.Response(status=status, body=body, headers=headers)


async def test_arguments_go_by_name_and_the_answer_is_json() -> None:
    platform = Scripted((200, b"3", {}))
    async with served(platform.respond) as url:
        assert await called(url, 1, 2) == 3
    assert [msgspec.json.decode(body) for body in platform.bodies] == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_what_the_platform_could_not_do_is_tried_again(status: int) -> None:
    platform = Scripted((status, b"busy", {}), (status, b"busy", {}), (200, b"2", {}))
    async with served(platform.respond) as url:
        assert await called(url, 1) == 2
    assert len(platform.bodies) == 3


async def test_a_platform_that_stays_broken_is_a_failure_of_infrastructure() -> None:
    platform = Scripted((503, b"broken", {}))
    async with served(platform.respond) as url:
        with pytest.raises(InfraFailed, match="answered 503: broken"):
            await called(url, 1)
    assert len(platform.bodies) == ATTEMPTS


async def test_it_comes_back_no_earlier_than_the_platform_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay_s: float) -> None:
        waited.append(delay_s)
        await sleep(0)

    monkeypatch.setattr("artangram.functions.platform.asyncio.sleep", noted)
    platform = Scripted((429, b"", {"Retry-After": "7"}), (200, b"2", {}))
    async with served(platform.respond) as url:
        assert await called(url, 1) == 2
    assert 7.0 in waited


async def test_a_platform_that_wants_too_much_patience_has_failed() -> None:
    platform = Scripted((503, b"closed", {"Retry-After": "3600"}))
    async with served(platform.respond) as url:
        with pytest.raises(InfraFailed, match="closed"):
            await called(url, 1)
    assert len(platform.bodies) == 1


@pytest.mark.parametrize(
    ("status", "body", "headers", "says"),
    [
        (422, b"ValueError: no", {}, "answered 422: ValueError: no"),
        (413, b"", {}, "answered 413"),
        (200, b'{"errorMessage": "no"}', {"X-Amz-Function-Error": "Unhandled"}, "errorMessage"),
        (200, b'{"errorType": "ValueError"}', {"X-Amz-Function-Error": "Unhandled"}, "ValueErr"),
        (200, b'{"errorType": "Runtime.MarshalError"}', {"X-Amz-Function-Error": "x"}, "Marshal"),
        (200, b"<html>", {}, "did not answer with JSON"),
        (200, b"{}", {"Content-Type": "application/cloudevents+json"}, "did not answer with JSON"),
    ],
)
async def test_the_functions_own_failure_is_not_tried_again(
    status: int, body: bytes, headers: dict[str, str], says: str
) -> None:
    platform = Scripted((status, body, headers))
    async with served(platform.respond) as url:
        with pytest.raises(CallFailed, match=says):
            await called(url, 1)
    assert len(platform.bodies) == 1


@pytest.mark.parametrize("kind", ["Runtime.ExitError", "Sandbox.Timedout"])
async def test_a_runtime_that_dies_around_a_function_is_infrastructure(kind: str) -> None:
    body = msgspec.json.encode({"errorType": kind, "errorMessage": "signal: killed"})
    platform = Scripted((200, body, {"X-Amz-Function-Error": "Unhandled"}))
    async with served(platform.respond) as url:
        with pytest.raises(InfraFailed, match="signal: killed"):
            await called(url, 1)


async def test_an_event_may_bring_the_answer() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": 3}
    kind = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    async with served(Scripted((200, msgspec.json.encode(event), kind)).respond) as url:
        assert await called(url, 1, 2) == 3


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (403, {}, "lets this machine in"),
        (404, {"X-Call-Id": "abc"}, "answered 404 to x-call-id abc"),
        (301, {"Location": "https://there/"}, "the address it names: https://there/"),
        (202, {"X-Call-Id": "abc"}, "it queued the call"),
    ],
)
async def test_a_function_that_was_not_asked_has_not_failed(
    status: int, headers: dict[str, str], says: str
) -> None:
    platform = Scripted((status, b"", headers))
    async with served(platform.respond) as url:
        with pytest.raises(InfraFailed, match=says):
            await called(url, 1)
    assert len(platform.bodies) == 1


async def test_a_named_secret_is_in_the_request_and_nowhere_else() -> None:
    told: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        told.append(request.headers["authorization"])
        return web.Response(status=403, text="no")

    secrets = {"TOKEN": "s3cret"}
    async with served(respond) as url:
        with pytest.raises(InfraFailed) as raised:
            await called(url, 1, authorization="Bearer ${TOKEN}", environ=secrets)
    assert told == ["Bearer s3cret"]
    assert "s3cret" not in str(raised.value)


async def test_a_secret_that_is_not_set_is_refused_when_the_function_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_TOKEN", raising=False)
    mark = function(url="http://127.0.0.1:9/", name="far", authorization="Bearer ${NO_TOKEN}")
    async with artangram.local(provider=FakeProvider(), workers=1) as client:
        with pytest.raises(BadInput, match=r"NO_TOKEN\} is not set; set NO_TOKEN"):
            await client.function(mark(subjects.add.code))(1)


async def test_nobody_there_is_a_failure_of_infrastructure() -> None:
    async with served(Scripted((200, b"1", {})).respond) as url:
        pass
    with pytest.raises(InfraFailed, match="no answer"):
        await called(url, 1)


@asynccontextmanager
async def deployed(code: Function[..., Any]) -> AsyncIterator[str]:
    """The address of a function served as a container would serve it."""
    server = uvicorn.Server(uvicorn.Config(asgi(code), port=0, log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event to wait for
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        await serving


async def test_the_same_function_runs_behind_asgi() -> None:
    async with deployed(subjects.add) as url:
        assert await called(url, 20, 3) == 23


async def test_behind_asgi_an_exception_is_the_functions_own() -> None:
    remote: Function[..., Any] = function(url="http://unused/")(subjects.fail.code)
    async with deployed(remote) as url, aiohttp.ClientSession() as session:
        async with session.post(url, json={"why": "no such luck"}) as response:
            assert response.status == 422
            assert "ValueError: no such luck" in (await response.json())["error"]
        async with session.post(url, data=b"[1]") as response:
            assert response.status == 400
        async with session.get(url) as response:
            assert response.status == 405


def test_the_same_function_runs_in_a_lambda() -> None:
    handle = lambda_handler(subjects.add)
    url = {"requestContext": {}}
    assert handle({**url, "body": '{"a": 1}'}, None)["body"] == "2"
    coded = base64.b64encode(b'{"a": 1, "b": 5}').decode()
    assert handle({**url, "body": coded, "isBase64Encoded": True}, None)["body"] == "6"
    assert handle({**url, "body": "{}"}, None)["statusCode"] == 422
    assert handle({"a": 1, "b": 5}, None) == 6


class Meeting:
    """A platform that answers when so many calls have come together."""

    def __init__(self, size: int) -> None:
        self.most = 0
        self._here = 0
        self._together = asyncio.Barrier(size)

    async def respond(self, request: web.Request) -> web.Response:
        self._here += 1
        self.most = max(self.most, self._here)
        await self._together.wait()
        self._here -= 1
        return web.json_response(await request.json())


async def met(platform: Meeting, *, calls: int, **options: int) -> list[Any]:
    """What so many calls at once are answered in a cluster with one worker of its own."""
    async with (
        served(platform.respond) as url,
        artangram.local(provider=FakeProvider(), workers=1, **options) as client,
    ):
        remote = client.function(function(url=url, name="remote")(subjects.add.code))
        assert await client.function(subjects.add)(1, b=2) == 3
        async with asyncio.timeout(60):
            return await asyncio.gather(*(remote(n) for n in range(calls)))


async def test_calls_of_a_platform_use_none_of_our_workers() -> None:
    platform = Meeting(4)
    assert await met(platform, calls=4) == [{"a": n} for n in range(4)]


async def test_no_more_calls_are_under_way_on_platforms_than_the_cluster_allows() -> None:
    platform = Meeting(2)
    assert len(await met(platform, calls=6, platform_calls=2)) == 6
    assert platform.most == 2
