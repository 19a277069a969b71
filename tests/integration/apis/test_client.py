"""One API, one client, a real HTTP server between them and the truth."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from msgspec.structs import replace

from artangram.apis import ApiSpec
from artangram.apis.client import ApiClient, ApiRequest
from artangram.apis.enforcing import EnforcingApi, serving
from artangram.apis.limits import TurnedAway
from artangram.core.errors import CallFailed, InfraFailed

Respond = Callable[[web.Request], Awaitable[web.Response]]
SECRETS = {"KEY": "s3cret"}


class Closings:
    """What the scheduler would hear, and the clock it hears it on."""

    def __init__(self) -> None:
        self.now = 1_900_000_000.0
        self.until: list[float] = []


@asynccontextmanager
async def a_client(
    respond: Respond, *, now: Callable[[], float] | None = None, **fields: object
) -> AsyncIterator[tuple[ApiClient, Closings]]:
    closings = Closings()
    async with serving(respond) as url:
        spec = replace(ApiSpec(base_url=f"{url}/v1"), **fields)
        client = ApiClient(
            spec,
            now=now or (lambda: closings.now),
            on_throttled=closings.until.append,
            environ=SECRETS,
            rng=random.Random(1),
        )
        try:
            yield client, closings
        finally:
            await client.aclose()


def responding(status: int, body: str = "", **headers: str) -> Respond:
    async def respond(request: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=body, headers=named)

    return respond


async def test_a_call_is_sent_as_asked_with_what_the_api_wants() -> None:
    async def respond(request: web.Request) -> web.Response:
        text = [request.method, request.path_qs, request.headers["authorization"]]
        return web.json_response([*text, request.headers["x"], await request.text()], status=201)

    headers = {"authorization": "Bearer ${KEY}"}
    async with a_client(respond, headers=headers, params={"id": "${KEY}"}) as (client, _):
        request = ApiRequest(
            "POST", "/find", {"q": "a b"}, {"x": "1", "authorization": "no"}, b"hi"
        )
        answer = await client.call(request)
    assert answer.status == 201
    assert answer.headers["content-type"].startswith("application/json")
    assert b'"/v1/find?q=a+b&id=s3cret", "Bearer s3cret", "1", "hi"' in answer.body


@pytest.mark.parametrize("path", ["//elsewhere.example/", "http://elsewhere.example/x"])
async def test_no_path_leads_to_another_place(path: str) -> None:
    async def respond(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    async with a_client(respond) as (client, _):
        assert (await client.call(ApiRequest("GET", path))).body.startswith(b"/v1/")


@pytest.mark.parametrize(
    "path",
    [
        "../admin",
        "%2e%2e/admin",
        "a/../../admin",
        "a/..%2f..%252fadmin",
        "a%3f/../../x",
        "%" + 20 * "25",  # Quoted over and over again: to find out where it leads takes too long.
    ],
)
async def test_no_path_climbs_above_the_address_that_secrets_go_to(path: str) -> None:
    async def respond(request: web.Request) -> web.Response:
        raise AssertionError("nothing may be sent")

    async with a_client(respond) as (client, _):
        with pytest.raises(CallFailed, match=r"leaves http://.*; name a path below it"):
            await client.call(ApiRequest("GET", path))


async def test_dots_in_names_and_questions_are_no_climbing() -> None:
    async with a_client(responding(200)) as (client, _):
        for path in ("a..b", "...", "find?q=../x", "v1.2/.well-known"):
            assert (await client.call(ApiRequest("GET", path))).status == 200


@pytest.mark.parametrize("status", [400, 403, 404, 422, 301])
async def test_an_answer_that_is_no_success_is_the_calls_own_failure(status: int) -> None:
    async with a_client(responding(status, "no such page"), patience=1) as (client, closings):
        with pytest.raises(CallFailed, match=f"GET /find: answered {status}.*: no such page"):
            await client.call(ApiRequest("GET", "find"))
    assert not closings.until


@pytest.mark.parametrize(
    "wrong", [ApiRequest("GET", headers={"a": "b\r\nc: d"}), ApiRequest("NO METHOD")], ids=repr
)
async def test_what_cannot_be_sent_is_the_callers_own_failure_and_keeps_nobody(
    wrong: ApiRequest,
) -> None:
    answers = iter((500, 200))

    async def respond(request: web.Request) -> web.Response:
        return web.Response(status=next(answers))

    async with a_client(respond, patience=1) as (client, closings):
        with pytest.raises(InfraFailed):
            await client.call(ApiRequest("GET"))
        closings.now = closings.until[0]
        with pytest.raises(CallFailed, match="cannot be sent: "):
            await client.call(wrong)
        async with asyncio.timeout(5.0):
            assert (await client.call(ApiRequest("GET"))).status == 200


async def test_a_redirect_is_not_followed() -> None:
    asked: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async with a_client(respond) as (client, _):
        with pytest.raises(CallFailed, match="answered 302 to /elsewhere"):
            await client.call(ApiRequest("GET", "find"))
    assert asked == ["/v1/find"]


@pytest.mark.parametrize("status", [500, 502, 504, 401, 408])
async def test_what_the_api_cannot_do_is_a_failure_of_infrastructure(status: int) -> None:
    async with a_client(responding(status, "oh")) as (client, closings):
        with pytest.raises(InfraFailed, match=f"answered {status}: oh") as raised:
            await client.call(ApiRequest("GET", "find"))
    assert not isinstance(raised.value, TurnedAway)
    assert not closings.until


async def test_nobody_there_is_a_failure_of_infrastructure() -> None:
    async with a_client(responding(200)) as (client, _):
        spec = replace(client.spec, base_url="http://127.0.0.1:9")
        lonely = ApiClient(spec, now=lambda: 0.0, on_throttled=lambda until: None)
        with pytest.raises(InfraFailed, match="no answer"):
            await lonely.call(ApiRequest("GET"))
        await lonely.aclose()


async def test_an_api_that_falls_silent_is_a_failure_of_infrastructure() -> None:
    silent = asyncio.Event()

    async def respond(request: web.Request) -> web.Response:
        await silent.wait()
        return web.Response()

    async with a_client(respond, silence_s=0.05) as (client, _):
        with pytest.raises(InfraFailed, match="no answer"):
            await client.call(ApiRequest("GET"))
        silent.set()


async def test_a_longer_answer_than_wanted_is_a_failed_call() -> None:
    async with a_client(responding(200, "x" * 11), answer_bytes=10) as (client, _):
        with pytest.raises(CallFailed, match="more than 10 bytes"):
            await client.call(ApiRequest("GET"))
    async with a_client(responding(200, "x" * 10), answer_bytes=10) as (client, _):
        assert len((await client.call(ApiRequest("GET"))).body) == 10


async def test_secrets_are_in_no_error() -> None:
    async with a_client(responding(400, "bad key s3cret"), headers={"x": "${KEY}"}) as (client, _):
        with pytest.raises(CallFailed, match=r"bad key \$\{KEY\}") as raised:
            await client.call(ApiRequest("GET"))
        assert "s3cret" not in str(raised.value) + repr(client)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_closes_the_pool_for_as_long_as_the_api_says(status: int) -> None:
    async with a_client(responding(status, Retry_After="7")) as (client, closings):
        with pytest.raises(TurnedAway, match=f"answered {status}; next try in 7.0 s"):
            await client.call(ApiRequest("POST"))
        assert closings.until == [closings.now + 7]
        with pytest.raises(TurnedAway, match="is left alone"):
            await client.call(ApiRequest("POST"))
        assert len(closings.until) == 1


async def test_a_limit_that_is_told_as_forbidden_closes_the_pool() -> None:
    reset = {"X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "1900000030"}
    there = {"Date": "Sun, 17 Mar 2030 17:46:40 GMT"}
    async with a_client(responding(403, **reset, **there)) as (client, closings):
        with pytest.raises(TurnedAway, match=r"answered 403; next try in 30\.0 s"):
            await client.call(ApiRequest("GET"))
        assert closings.until == [closings.now + 30]


async def test_a_refusal_without_a_time_closes_the_pool_for_a_while() -> None:
    async with a_client(responding(429), rest_s=8.0) as (client, closings):
        with pytest.raises(TurnedAway):
            await client.call(ApiRequest("GET"))
        assert 4 <= closings.until[0] - closings.now <= 8


async def test_an_api_with_nothing_left_closes_the_pool_before_it_has_to_refuse() -> None:
    headers = {"RateLimit_Remaining": "0", "RateLimit_Reset": "5"}
    async with a_client(responding(200, **headers), limit=10) as (client, closings):
        await client.call(ApiRequest("GET"))
        assert closings.until == [closings.now + 5]


async def test_the_end_of_our_own_share_closes_nothing() -> None:
    headers = {"RateLimit_Remaining": "0", "RateLimit_Reset": "5"}
    async with a_client(responding(200, **headers), limit=1) as (client, closings):
        await client.call(ApiRequest("GET"))
        assert closings.until == []


async def test_after_failures_in_a_row_one_call_asks_before_the_others() -> None:
    asked: list[str] = []
    is_well = asyncio.Event()

    async def respond(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path.endswith("probe"):
            await is_well.wait()
        return web.Response(status=200 if is_well.is_set() else 500)

    async with a_client(respond, patience=2, rest_s=10.0) as (client, closings):
        for _ in range(2):
            with pytest.raises(InfraFailed):
                await client.call(ApiRequest("GET", "first"))
        closings.now = closings.until[0]
        probe = asyncio.create_task(client.call(ApiRequest("GET", "probe")))
        others = [asyncio.create_task(client.call(ApiRequest("GET", "other"))) for _ in range(3)]
        while not asked[2:]:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.005)
        assert asked[2:] == ["/v1/probe"]
        is_well.set()
        await asyncio.gather(probe, *others)
    assert asked[3:] == ["/v1/other"] * 3


async def test_a_probe_that_fails_sends_the_others_away() -> None:
    async with a_client(responding(500), patience=1, rest_s=10.0) as (client, closings):
        with pytest.raises(InfraFailed):
            await client.call(ApiRequest("GET"))
        closings.now = closings.until[0]
        calls = [client.call(ApiRequest("GET")) for _ in range(3)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends] == [InfraFailed, TurnedAway, TurnedAway]
    assert len(closings.until) == 2


async def test_a_probe_that_is_cancelled_lets_another_one_ask() -> None:
    never = asyncio.Event()

    async def respond(request: web.Request) -> web.Response:
        if request.path.endswith("hang"):
            await never.wait()
        return web.Response(status=500 if request.path.endswith("fail") else 200)

    async with a_client(respond, patience=1, rest_s=10.0) as (client, closings):
        with pytest.raises(InfraFailed):
            await client.call(ApiRequest("GET", "fail"))
        closings.now = closings.until[0]
        probe = asyncio.create_task(client.call(ApiRequest("GET", "hang")))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(client.call(ApiRequest("GET", "well")))
        await asyncio.sleep(0.05)
        probe.cancel()
        assert (await waiting).status == 200
        never.set()


async def test_another_attempt_backs_off_while_the_api_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept_s: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay_s: float) -> None:
        slept_s.append(delay_s)
        await sleep(0)

    async with a_client(responding(500)) as (client, _):
        monkeypatch.setattr("artangram.apis.client.asyncio.sleep", noted)
        for attempt in (1, 2, 3):
            with pytest.raises(InfraFailed):
                await client.call(ApiRequest("GET"), attempt=attempt)
        client.breaker.succeeded()
        with pytest.raises(InfraFailed):
            await client.call(ApiRequest("GET"), attempt=9)
    backed_off_s = [one for one in slept_s if one >= 0.1]
    assert len(backed_off_s) == 2
    assert 0.1 <= backed_off_s[0] <= 0.2 <= backed_off_s[1] <= 0.4


async def test_alone_it_is_never_refused() -> None:
    api = EnforcingApi(limit=20, window_s=0.2)
    limits = {"limit": 20, "window_s": 0.2, "delivery_s": 2.0}
    now = asyncio.get_running_loop().time
    async with a_client(api.respond, now=now, **limits) as (client, closings):
        await asyncio.gather(*(client.call(ApiRequest("GET", "x")) for _ in range(100)))
    assert (api.served[""].refused, api.served[""].taken, closings.until) == (0, 100, [])
