"""A real cluster and everything it calls: function workers, services on devices, an HTTP server."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import callees
import pytest
from aiohttp import web
from busy_machine import PATIENCE_S

import artangram
from artangram.core.errors import BadInput, CallFailed, InfraFailed
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.orchestrator.client import Client
from artangram.orchestrator.connect import connect
from artangram.orchestrator.local import running
from artangram.orchestrator.server import serving
from artangram.sandbox.fake import FakeProvider
from artangram.services.service import Service


@asynccontextmanager
async def a_search_engine() -> AsyncIterator[str]:
    """A server that finds what it was asked for."""

    async def find(request: web.Request) -> web.Response:
        return web.json_response({"found": request.query["q"]})

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "100"})

    app = web.Application()
    app.router.add_get("/find", find)
    app.router.add_get("/refuse", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_cluster(**options: object) -> AsyncIterator[Client]:
    async with artangram.local(provider=FakeProvider(), cores=2, **options) as client:
        yield client


async def test_a_function_runs_in_another_process() -> None:
    async with a_cluster() as client:
        assert await client.function(callees.add)(2, other=3) == 5
        assert await client.function(callees.pid)() != os.getpid()
        with pytest.raises(CallFailed, match="not like this"):
            await client.function(callees.fail)()
        with pytest.raises(BadInput, match="lambda"):
            client.function(lambda: 0)


async def test_a_service_is_deployed_called_and_restored_after_its_death() -> None:
    async with a_cluster(devices=1, device_memory_mb=1024) as client:
        await client.deploy("double", callees.scale, options={"factor": 2})
        assert await client.call("double", 21) == 42
        with pytest.raises(InfraFailed):
            await client.call("double", "die")
        assert await client.call("double", 4) == 8
        await client.deploy("double", callees.scale, options={"factor": 2})  # The same again.
        with pytest.raises(BadInput, match="already deployed"):
            await client.deploy("double", callees.scale, options={"factor": 3})


async def test_services_that_do_not_fit_together_take_turns() -> None:
    options = {"runtime_mb": 300, "batch": 2}
    offered = tuple(
        Service(id=f"times-{n}", loader="callees:scale", options={"factor": n}, **options)
        for n in (2, 3, 5)
    )
    async with a_cluster(devices=1, device_memory_mb=500, services=offered) as client:
        calls = [client.call(f"times-{n}", 10) for _ in range(4) for n in (2, 3, 5)]
        assert await asyncio.gather(*calls) == [20, 30, 50] * 4


async def test_an_api_is_called_within_its_quota() -> None:
    async with a_search_engine() as url:
        spec = artangram.ApiSpec(base_url=url, concurrency=2)
        async with a_cluster(apis={"search": spec}) as client:
            api = client.api("search")
            answers = await asyncio.gather(*(api.get("/find", params={"q": n}) for n in range(8)))
            assert [answer.json()["found"] for answer in answers] == [str(n) for n in range(8)]
            with pytest.raises(CallFailed, match="404"):
                await api.get("/lose")


async def test_a_service_deployed_before_a_restart_is_there_after_it(tmp_path: Path) -> None:
    async with running(state_dir=tmp_path, provider=FakeProvider(), options=_with_device()) as one:
        orchestrator, backends = one
        service = Service(id="double", loader="callees:scale", options={"factor": 2})
        orchestrator.deploy(service, await backends.deploy(service))
        await asyncio.sleep(0.2)  # Until the journal has it; nobody waits for that here.
    async with (
        running(state_dir=tmp_path, provider=FakeProvider(), options=_with_device()) as (again, _),
        serving(again, token=None) as url,
        connect(url) as client,
    ):
        assert await client.call("double", 3) == 6


def _with_device() -> ClusterOptions:
    return ClusterOptions(devices=1, device_memory_mb=512, functions=("callees:add",))


async def test_strangers_call_what_was_offered_and_send_plain_data() -> None:
    options = ClusterOptions(functions=("callees:add",), takes_objects=False)
    async with (
        running(provider=FakeProvider(), options=options) as (orchestrator, _),
        serving(orchestrator, token=None) as url,
        connect(url) as client,
    ):
        assert await client.function(callees.add)(1, 2) == 3
        with pytest.raises(CallFailed, match="no function"):
            await client.function(callees.pid)()
        with pytest.raises(CallFailed, match="plain data"):
            await client.function(callees.add)(Path("a"), Path("b"))  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="services:"):
            await client.deploy("double", callees.scale, options={"factor": 2})


async def test_status_tells_of_functions_services_and_apis_and_waiting_calls_explain() -> None:
    async with a_search_engine() as url:
        spec = artangram.ApiSpec(base_url=url, limit=1, window_s=1000.0)
        async with a_cluster(devices=2, device_memory_mb=600, apis={"search": spec}) as client:
            await client.deploy("double", callees.scale, options={"factor": 2})
            before = await client.status()
            assert [(one.service, one.resident) for one in before.services] == [("double", ())]
            await client.call("double", 1)
            await client.function(callees.add)(2, other=3)
            await client.api("search").get("/find", params={"q": 1})
            late = asyncio.create_task(client.api("search").get("/find", params={"q": 2}))
            await asyncio.sleep(0.05)

            now = await client.status()
            (service,) = now.services
            assert len(service.resident) == 1
            assert service.resident[0].startswith("gpu-0:")
            assert (service.busy, now.restores - before.restores) == (0, 1)
            assert now.functions is not None
            assert (now.functions.workers, now.functions.cold_starts, now.functions.busy) == (
                1,
                1,
                0,
            )
            (api,) = now.apis
            assert (api.in_flight, api.queued, api.window_used, api.limit) == (0, 1, 1, 1)
            assert api.shut_s == 0.0

            (waiting,) = now.waiting
            assert (waiting.kind, waiting.trajectory) == ("api/search", None)
            why = await client.explain(waiting.action)
            assert why.state == "waiting"
            assert [hindrance.resource for hindrance in why.hindrances] == ["search"]
            late.cancel()


async def test_status_tells_when_an_api_is_left_alone() -> None:
    async with a_search_engine() as url:
        spec = artangram.ApiSpec(base_url=url, concurrency=2)
        async with a_cluster(apis={"search": spec}) as client:
            refused = asyncio.create_task(client.api("search").get("/refuse"))
            async with asyncio.timeout(PATIENCE_S):
                while not (now := await client.status()).apis[0].shut_s:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert 50 < now.apis[0].shut_s <= 100
            refused.cancel()
