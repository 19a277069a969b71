"""A whole cluster calls a real API that enforces its limit."""

import asyncio
from posixpath import basename

import msgspec
import pytest
from aiohttp import web

import artangram
from artangram.apis import ApiSpec
from artangram.apis.enforcing import EnforcingApi, serving
from artangram.core.errors import BadInput, InfraFailed
from artangram.core.scheduling.cluster import CallWindow
from artangram.sandbox.fake import FakeProvider

LIMIT, WINDOW_S = 20, 0.2


def a_cluster(url: str, **fields: object):  # type: ignore[no-untyped-def]
    spec = ApiSpec(base_url=url, rest_s=0.05, **fields)  # type: ignore[arg-type]
    return artangram.local(provider=FakeProvider(), apis={"search": spec})


async def test_all_jobs_together_stay_below_the_limit() -> None:
    api = EnforcingApi(limit=LIMIT, window_s=WINDOW_S)
    async with (
        serving(api.respond) as url,
        a_cluster(url, limit=LIMIT, window_s=WINDOW_S, delivery_s=2.0) as client,
    ):
        search = client.api("search")
        calls = [search.get("find", params={"q": n}, job=f"job-{n % 3}") for n in range(80)]
        answers = await asyncio.gather(*calls)
    assert [answer.json()["query"] for answer in answers] == [str(n) for n in range(80)]
    assert (api.served[""].refused, api.served[""].taken) == (0, 80)


async def test_tokens_that_a_call_did_not_use_are_given_back_when_it_ends() -> None:
    """Else the third call, and every one after it, would wait for a minute."""
    spoken = b'{"usage": {"input_tokens": 4, "output_tokens": 6}}'
    most = under_way = 0

    async def respond(request: web.Request) -> web.Response:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        return web.Response(body=spoken, content_type="application/json")

    windows = ({"limit": 100, "window_s": 60.0, "unit": "tokens"},)
    async with (
        serving(respond) as url,
        a_cluster(url, windows=msgspec.convert(windows, tuple[CallWindow, ...])) as client,
    ):
        llm = client.api("search")
        calls = [llm.post("say", json=None, tokens=40, deadline_s=20) for _ in range(6)]
        await asyncio.gather(*calls)
        with pytest.raises(InfraFailed, match="expired"):
            await llm.post("say", json=None, tokens=41, deadline_s=0.2)
        (use,) = [row for row in (await client.use()).rows if row.tokens]
    assert (most, use.tokens, use.calls) == (2, 60, 6)


async def test_when_somebody_else_eats_the_quota_no_call_is_lost() -> None:
    """Posts, too: a call that was refused was not made."""
    api = EnforcingApi(limit=LIMIT, window_s=WINDOW_S)

    async def rival() -> None:
        for _ in range(60):
            api.take("rival")
            await asyncio.sleep(WINDOW_S / LIMIT)

    async with (
        serving(api.respond) as url,
        a_cluster(url, limit=LIMIT, window_s=WINDOW_S) as client,
        asyncio.TaskGroup() as others,
    ):
        for _ in range(LIMIT):
            api.take("rival")
        others.create_task(rival())
        search = client.api("search")
        calls = [search.post("find", json=None, params={"q": n}) for n in range(60)]
        answers = await asyncio.gather(*calls)
    assert [answer.json()["query"] for answer in answers] == [str(n) for n in range(60)]
    assert api.served[""].taken == 60
    assert api.served[""].refused > 0


async def test_two_clusters_with_one_key_lose_no_call() -> None:
    api = EnforcingApi(limit=LIMIT, window_s=WINDOW_S)
    limits = {"limit": LIMIT, "window_s": WINDOW_S}
    async with (
        serving(api.respond) as url,
        a_cluster(url, **limits) as one,
        a_cluster(url, **limits) as other,
    ):
        calls = [
            client.api("search").post("find", json=None, params={"q": n})
            for n in range(40)
            for client in (one, other)
        ]
        answers = await asyncio.gather(*calls)
    assert [answer.json()["query"] for answer in answers] == [str(n // 2) for n in range(80)]
    assert api.served[""].taken == 80
    assert api.served[""].refused > 0


async def test_an_api_that_fails_for_a_while_loses_no_call_that_may_be_repeated() -> None:
    failures = iter(range(2))
    api = EnforcingApi(limit=1000, window_s=60)

    async def respond(request):  # type: ignore[no-untyped-def]
        response = await api.respond(request)
        if next(failures, None) is not None:
            response.set_status(500)
        return response

    async with serving(respond) as url, a_cluster(url, patience=1) as client:
        search = client.api("search")
        answers = await asyncio.gather(*(search.get("find") for _ in range(10)))
    assert [answer.status for answer in answers] == [200] * 10


@pytest.mark.parametrize("status", [429, 500])
async def test_a_deadline_ends_repeating(status: int) -> None:
    """Whether the API wants to be left alone for an hour, or fails again and again."""

    async def respond(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": "3600"})

    async with serving(respond) as url, a_cluster(url, patience=1, most_rest_s=3600) as client:
        async with asyncio.timeout(60):
            with pytest.raises(InfraFailed, match="deadline"):
                await client.api("search").get("find", deadline_s=0.2)
        assert (await client.status()).running == 0


async def test_a_call_that_touches_two_apis_counts_with_both() -> None:
    api = EnforcingApi(limit=1000, window_s=60)
    async with serving(api.respond) as url:
        ample = ApiSpec(base_url=url)
        scarce = ApiSpec(base_url=url, limit=2, window_s=600)
        apis = {"search": ample, "pages": scarce}
        async with artangram.local(provider=FakeProvider(), apis=apis) as client:
            search = client.api("search")
            for _ in range(2):
                await search.get("find", needs={"pages": 1})
            with pytest.raises(InfraFailed, match="deadline"):
                await search.get("find", needs={"pages": 1}, deadline_s=0.1)
            assert (await search.get("find")).status == 200
    assert api.served[""].taken == 3


@pytest.mark.parametrize("name", ["cpu", "gpu", "functions", "platform"])
async def test_an_api_cannot_replace_another_resource(name: str) -> None:
    api = ApiSpec(base_url="http://127.0.0.1:9")
    with pytest.raises(BadInput, match=f"apis.{name}: is another resource"):
        async with artangram.local(provider=FakeProvider(), apis={name: api}):
            pass


async def test_a_limit_that_is_raised_while_calls_wait_lets_them_go() -> None:
    api = EnforcingApi(limit=LIMIT, window_s=60.0)
    async with serving(api.respond) as url, a_cluster(url, limit=1, window_s=60.0) as client:
        calls = [asyncio.create_task(client.api("search").get("find")) for _ in range(3)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert sum(call.done() for call in calls) == 1
        await client.reconfigure(apis={"search": {"limit": LIMIT, "window_s": 60.0}})
        async with asyncio.timeout(10):
            await asyncio.gather(*calls)
        (status,) = (await client.status()).apis
        assert (status.limit, status.window_used) == (LIMIT, 3)
    assert api.served[""].refused == 0


async def test_fewer_workers_end_with_their_calls() -> None:
    async with artangram.local(provider=FakeProvider(), workers=3) as client:
        last = client.function(basename)
        await asyncio.gather(*(last(f"a/{n}") for n in range(3)))
        await client.reconfigure(ceilings={"functions": 1})
        assert await asyncio.gather(*(last(f"a/{n}") for n in range(3))) == ["0", "1", "2"]
        functions = (await client.status()).functions
        assert functions is not None
        assert (functions.workers, functions.ceiling) == (1, 1)
