"""Sessions by name: who opens them, what becomes of a name after its session's end."""

import asyncio

import aiohttp
import openai
import pytest
from gateway_support import TOKEN, WORDS

from artangram.gateway.http import ServerLimits

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def http(endpoint):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(endpoint.url, headers=headers) as session:
        yield session


async def chat(client, messages=HELLO):
    return await client.chat.completions.create(model="tiny", messages=messages)


async def test_a_name_that_is_used_again_begins_with_nothing(endpoint, http):
    client = endpoint.client(session="s")
    for word in ("cat", "dog"):
        asking = asyncio.create_task(chat(client))
        await endpoint.says(word)
        await asking
        closed = await (await http.delete("/sessions/s")).json()
        ((given, said),) = closed["lines"]
        assert WORDS.decode(said["token_ids"]) == word
        assert len(said["logprobs"]) == len(said["token_ids"])
        assert endpoint.engine.asked[-1].prompt == tuple(given["token_ids"])


@pytest.mark.parametrize("limits", [ServerLimits(opens_sessions=False)])
async def test_an_agent_that_outlives_its_trajectory_does_not_begin_another(endpoint):
    session = endpoint.gateway.open("s", tokenizer=WORDS)
    client = endpoint.client(session="s")
    asking = asyncio.create_task(chat(client))
    await endpoint.says("cat")
    await asking
    assert len(session.segments()) == 2
    await session.close()
    with pytest.raises(openai.NotFoundError, match="there is no session 's'"):
        await chat(client)
    assert len(endpoint.engine.asked) == 1


async def test_a_session_that_ends_in_a_turn_says_so_to_its_agent(endpoint, http):
    asking = asyncio.create_task(chat(endpoint.client(session="s")))
    await endpoint.engine.next_request()
    await http.delete("/sessions/s")
    with pytest.raises(openai.APIStatusError) as gone:
        await asking
    assert (gone.value.status_code, gone.value.code) == (410, "session_closed")


ADDRESSES = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/generate"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/sessions"),
    ("POST", "/sessions/s/v1/chat/completions"),
    ("GET", "/sessions/s"),
    ("DELETE", "/sessions/s"),
]


@pytest.mark.parametrize("token", ["", "Bearer ", "Bearer wrong", f"Bearer {TOKEN}s"])
async def test_nobody_gets_anywhere_without_the_token(endpoint, http, token):
    endpoint.gateway.open("s")
    wrong = {"Authorization": token}
    for method, path in ADDRESSES:
        answer = await http.request(method, path, headers=wrong, json={"id": "t"})
        assert (answer.status, (await answer.json())["error"]["code"]) == (401, "invalid_api_key")
    assert list(endpoint.gateway.sessions) == ["s"]


@pytest.mark.parametrize("limits", [ServerLimits(most_sessions=1)])
async def test_there_are_only_so_many_sessions(endpoint, http):
    assert (await http.post("/sessions", json={"id": "s"})).status == 200
    with pytest.raises(openai.RateLimitError, match="1 sessions are open"):
        await chat(endpoint.client(session="t"))


@pytest.mark.parametrize("name", ["", "a/b"])
async def test_a_name_that_no_address_could_have_is_refused(endpoint, http, name):
    answer = await http.post("/sessions", json={"id": name})
    assert (answer.status, (await answer.json())["error"]["param"]) == (400, "id")
    assert dict(endpoint.gateway.sessions) == {}


@pytest.mark.parametrize("limits", [ServerLimits(most_body_bytes=100)])
async def test_a_body_that_is_too_large_is_refused(endpoint, http):
    answer = await http.post("/v1/completions", data=b" " * 101)
    assert (answer.status, (await answer.json())["error"]["code"]) == (413, "body_too_large")


async def test_two_agents_by_header_are_two_trajectories(endpoint):
    for name in ("cat", "dog"):
        client = endpoint.client().with_options(default_headers={"x-artangram-session": name})
        asking = asyncio.create_task(chat(client))
        await endpoint.says(name)
        await asking
    said = {name: one.segments()[1].token_ids for name, one in endpoint.gateway.sessions.items()}
    assert {name: WORDS.decode(tokens) for name, tokens in said.items()} == {
        "cat": "cat",
        "dog": "dog",
    }


async def test_a_session_that_a_caller_opened_has_a_key_of_its_own(endpoint, http):
    opened = [await (await http.post("/sessions", json={"task": "t"})).json() for _ in range(2)]
    first, other = opened
    client = endpoint.client(token=first["api_key"])
    asking = asyncio.create_task(client.chat.completions.create(model="any-name", messages=HELLO))
    await endpoint.says("cat")
    await asking
    lengths = {name: len(one.segments()) for name, one in endpoint.gateway.sessions.items()}
    assert lengths == {first["id"]: 2, other["id"]: 0}
    headers = {"Authorization": f"Bearer {first['api_key']}"}
    async with aiohttp.ClientSession(endpoint.url, headers=headers) as agent:
        verbs = [agent.get(f"/sessions/{first['id']}"), agent.delete(f"/sessions/{other['id']}")]
        verbs.append(agent.post("/sessions", json={}))
        assert [(await verb).status for verb in verbs] == [401] * 3
    await http.delete(f"/sessions/{first['id']}")
    with pytest.raises((openai.AuthenticationError, openai.APIStatusError)) as refused:
        await chat(client)
    assert refused.value.status_code in (401, 410)  # It is forgotten with the session's last use.


@pytest.mark.parametrize("limits", [ServerLimits(idle_s=0.3)])
async def test_a_session_with_a_key_in_use_does_not_expire(endpoint, http):
    opened = await (await http.post("/sessions", json={})).json()
    asking = asyncio.create_task(chat(endpoint.client(token=opened["api_key"])))
    await endpoint.engine.next_request()
    await asyncio.sleep(0.6)
    await endpoint.says("cat")
    await asking
    assert opened["id"] in endpoint.gateway.sessions
