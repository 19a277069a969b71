"""Many callers at once: all of them are in a turn together, and none of them sees an error."""

import asyncio

import aiohttp
import pytest
from gateway_support import TOKEN, WORDS

SESSIONS, REQUESTS = 1000, 200
HELLO = [{"role": "user", "content": "hello"}]
BODY = {"model": "tiny", "messages": HELLO}


async def answered(endpoint, running):
    """Let every request be in its turn, then answer all."""
    requests = await endpoint.engine.next_requests(len(running))
    assert len(endpoint.engine.running) == len(running)
    for request in requests:
        endpoint.engine.say(request, *WORDS.encode("cat"), WORDS.eos_id)
        endpoint.engine.end(request)
    return await asyncio.gather(*running)


@pytest.mark.parametrize("streams", [False, True])
async def test_200_requests_of_the_real_client_at_once_have_no_error(endpoint, streams):
    client = endpoint.client()

    async def ask():
        answer = await client.chat.completions.create(**BODY, stream=streams)
        if not streams:
            return answer.choices[0].message.content
        return "".join([piece.choices[0].delta.content or "" async for piece in answer])

    running = [asyncio.create_task(ask()) for _ in range(REQUESTS)]
    assert await answered(endpoint, running) == ["cat"] * REQUESTS


async def test_a_thousand_sessions_are_in_their_turn_at_once(endpoint):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(endpoint.url, headers=headers, connector=connector) as http:

        async def ask(number):
            path = f"/sessions/agent-{number}/v1/chat/completions"
            async with http.post(path, json=BODY) as response:
                return response.status

        running = [asyncio.create_task(ask(number)) for number in range(SESSIONS)]
        assert await answered(endpoint, running) == [200] * SESSIONS
    sessions = endpoint.gateway.sessions.values()
    assert [len(one.segments()) for one in sessions] == [2] * SESSIONS
