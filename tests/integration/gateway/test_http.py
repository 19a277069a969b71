"""The gateway over plain HTTP: tokens in and out, sessions, callers who go away, bad requests."""

import asyncio
import json
import socket

import aiohttp
import pytest
from busy_machine import PATIENCE_S
from gateway_support import TOKEN, WORDS, PuppetEngine, until

from artangram.gateway.http import ServerLimits

AUTH = {"Authorization": f"Bearer {TOKEN}"}
MANY = b'{"model": "tiny", "n": 2, "prompt": [%s]}' % b", ".join([b'"a"'] * 65)
SAMPLING = {"max_tokens": 5}
NO_TEXT = b'{"model": "tiny", "prompt": "\xff"}'
DEEP = b'{"model": "tiny", "messages": [], "tool_choice": %s1%s}' % (b"[" * 9999, b"]" * 9999)


@pytest.fixture
async def http(endpoint):
    async with aiohttp.ClientSession(endpoint.url, headers=AUTH) as session:
        yield session


async def test_tokens_in_tokens_out_with_versions(endpoint, http):
    asking = asyncio.create_task(
        http.post("/sessions/s/v1/generate", json={"token_ids": [1, 2], "sampling": SAMPLING})
    )
    request = await endpoint.engine.next_request()
    endpoint.engine.say(request, 7)
    endpoint.engine.version = 5
    endpoint.engine.say(request, 8)
    endpoint.engine.end(request)
    answer = await (await asking).json()
    assert answer["token_ids"] == [7, 8]
    assert answer["logprobs"] == [-7.0, -8.0]
    assert answer["spans"] == [
        {"version": 4, "start": 0, "end": 1},
        {"version": 5, "start": 1, "end": 2},
    ]
    shown = await (await http.get("/sessions/s")).json()
    assert [segment["token_ids"] for segment in shown["lines"][0]] == [[1, 2], [7, 8]]
    closed = await http.delete("/sessions/s")
    assert (closed.status, (await http.get("/sessions/s")).status) == (200, 404)


async def test_a_stream_of_tokens(endpoint, http):
    body = {"token_ids": [1], "sampling": SAMPLING, "stream": True}
    asking = asyncio.create_task(http.post("/v1/generate", json=body))
    request = await endpoint.engine.next_request()
    endpoint.engine.say(request, 7)
    endpoint.engine.end(request)
    text = await (await asking).text()
    events = [line for line in text.split("\n\n") if line]
    assert len(events) == 3
    assert events[-1] == "data: [DONE]"


async def test_a_session_can_be_opened_with_a_task(endpoint, http):
    assert (await http.post("/sessions", json={"id": "s", "task": "math"})).status == 200
    assert endpoint.gateway.sessions["s"].task == "math"
    again = await http.post("/sessions", json={"id": "s"})
    assert again.status == 400


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
        ("/v1/completions", {"prompt": "hello"}),
    ],
)
async def test_a_caller_who_goes_away_ends_his_turns_and_leaves_nothing(
    endpoint, http, path, asked, choices, streams
):
    body = {"model": "tiny", "n": choices, "stream": streams, **asked}
    asking = asyncio.create_task(http.post(path, json=body))
    for request in await endpoint.engine.next_requests(choices):
        endpoint.engine.say(request, 30)
    if streams:
        response = await asking
        await response.content.readany()
        response.close()
    else:
        await asyncio.sleep(0.02)
        asking.cancel()
    await until(lambda: not endpoint.engine.running)
    await until(lambda: not endpoint.gateway.sessions)
    assert endpoint.gateway.replicas[0].turns == 0
    assert endpoint.gateway.counters.failed == choices


@pytest.mark.parametrize("limits", [ServerLimits(idle_s=0.1)])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_session_whose_caller_went_away_mid_turn_expires(endpoint, http, streams):
    body = {"token_ids": [1], "sampling": SAMPLING, "stream": streams}
    asking = asyncio.create_task(http.post("/sessions/s/v1/generate", json=body))
    request = await endpoint.engine.next_request()
    endpoint.engine.say(request, 30)
    await asyncio.sleep(0.3)
    assert list(endpoint.gateway.sessions) == ["s"]  # It is in use, so it does not expire.
    if streams:
        (await asking).close()
    else:
        asking.cancel()
    await until(lambda: not endpoint.engine.running)
    await until(lambda: not endpoint.gateway.sessions)
    assert (endpoint.gateway.counters.expired, endpoint.gateway.counters.failed) == (1, 1)
    assert (await http.get("/sessions/s")).status == 404


@pytest.mark.parametrize("limits", [ServerLimits(idle_s=0.2)])
async def test_a_caller_who_never_reads_his_stream_keeps_nothing(endpoint):
    body = json.dumps({"token_ids": [1], "sampling": {"max_tokens": 10**6}, "stream": True})
    head = f"POST /sessions/s/v1/generate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}"
    host, port = endpoint.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        request = await endpoint.engine.next_request()
        async with asyncio.timeout(PATIENCE_S):
            while endpoint.engine.running:
                endpoint.engine.say(request, *[30] * 1000)
                await asyncio.sleep(0.001)
        await until(lambda: not endpoint.gateway.sessions)
    assert (endpoint.gateway.counters.failed, endpoint.gateway.replicas[0].turns) == (1, 0)


async def test_a_turn_that_is_aborted_tells_the_agent_not_to_come_again(endpoint, http):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
    asking = asyncio.create_task(http.post("/sessions/s/v1/chat/completions", json=body))
    await endpoint.engine.next_request()
    await endpoint.gateway.abort("s")
    answer = await asking
    assert answer.status == 410
    assert (await answer.json())["error"]["code"] == "turn_aborted"


async def test_an_engine_that_dies_mid_stream_is_survived(endpoint, http):
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "return_token_ids": True,
    }
    asking = asyncio.create_task(http.post("/sessions/s/v1/chat/completions", json=body))
    request = await endpoint.engine.next_request()
    endpoint.engine.say(request, *WORDS.encode("the"))
    await asyncio.sleep(0.01)
    endpoint.engine.die()
    second = PuppetEngine("b", version=5)
    endpoint.gateway.add(second)
    endpoint.engine = second
    await endpoint.says("cat")
    choice = (await (await asking).json())["choices"][0]
    assert choice["message"]["content"] == "the cat"
    versions = [span["version"] for span in choice["artangram"]["weight_versions"]]
    assert versions == [4, 5]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/chat/completions", b"{", 400, "invalid_value"),
        ("POST", "/v1/chat/completions", b'{"model": "tiny"}', 400, "invalid_value"),
        ("POST", "/v1/chat/completions", DEEP, 400, "invalid_value"),
        ("POST", "/v1/completions", NO_TEXT, 400, "invalid_value"),
        ("POST", "/v1/completions", b'{"model": "tiny", "prompt": []}', 400, "invalid_value"),
        ("POST", "/v1/completions", MANY, 400, "invalid_value"),
        ("POST", "/v1/completions", b'{"model": "tiny", "prompt": [99999]}', 400, "invalid_value"),
        ("POST", "/v1/generate", b'{"token_ids": "x", "sampling": {}}', 400, "invalid_value"),
        ("GET", "/v1/chat/completions", b"", 405, "unknown_url"),
        ("GET", "/v2/nothing", b"", 404, "unknown_url"),
        ("GET", "/sessions/nobody", b"", 404, "session_not_found"),
        ("DELETE", "/sessions/nobody", b"", 404, "session_not_found"),
    ],
)
async def test_bad_requests_get_errors_in_their_form(
    endpoint, http, method, path, body, status, code
):
    answer = await http.request(method, path, data=body)
    error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (status, code)
    assert error["message"]
    assert endpoint.engine.asked == []
