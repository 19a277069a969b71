"""Our functions on runtimes that others wrote: functions-framework, the Lambda runtime, Mangum."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from artangram.core.errors import CallFailed, InfraFailed
from integration.functions.lambdas import INVOKE, REGION, LambdaService
from integration.functions.test_platform import called, deployed, subjects

TESTS = Path(__file__).parents[2]
DEPLOYABLE = Path(__file__).parent / "deployable.py"
JSON = {"content-type": "application/json"}
BINARY = {"content-type": "application/octet-stream"}


@asynccontextmanager
async def running(*argv: str, **environ: str) -> AsyncIterator[None]:
    """A program that can import our tests, for as long as the block lasts."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *argv, env={**os.environ, "PYTHONPATH": str(TESTS), **environ}
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


def a_free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def framework(target: str) -> AsyncIterator[str]:
    """The address of a target that functions-framework serves, as on Knative or Cloud Run."""
    pytest.importorskip("functions_framework")
    port = a_free_port()
    # Its command line starts a gunicorn, whose workers would outlive a kill; this is its own app.
    serve = (
        "from functions_framework import create_app; from werkzeug.serving import run_simple; "
        f"run_simple('127.0.0.1', {port}, create_app({target!r}, {str(DEPLOYABLE)!r}, 'http'))"
    )
    url = f"http://127.0.0.1:{port}/"
    async with running("-c", serve), asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(url, json={}):
                    break
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
        yield url


@asynccontextmanager
async def in_lambda(handler: str, credentials: dict[str, str] | None = None) -> AsyncIterator[str]:
    """The function URL of a handler that AWS's own runtime client runs."""
    pytest.importorskip("awslambdaric")
    async with (
        LambdaService(credentials).serving() as address,
        running(
            *("-m", "awslambdaric", f"integration.functions.{handler}"),
            AWS_LAMBDA_RUNTIME_API=address,
        ),
        asyncio.timeout(60),
    ):
        yield f"http://{address}/"


async def posted(
    session: aiohttp.ClientSession, url: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, Any]:
    """The status and what was answered, by another client than ours."""
    async with session.post(url, data=body, headers=headers) as response:
        return response.status, await response.json()


async def test_functions_framework_serves_our_function() -> None:
    async with framework("target") as url:
        assert await called(url, 20, 3) == 23


async def test_an_exception_under_functions_framework_is_the_functions_own() -> None:
    async with framework("failing") as url:
        with pytest.raises(CallFailed, match="answered 422"):
            await called(url, 1)


async def test_the_lambda_runtime_runs_our_function_behind_its_url() -> None:
    async with in_lambda("deployable.handler") as url, aiohttp.ClientSession() as session:
        assert await called(url, 20, 3) == 23
        with pytest.raises(
            CallFailed, match=r"answered 422 to x-amzn-requestid request-2.*TypeErr"
        ):
            await called(url, "text", 3)
        async with session.post(url, data=b'{"a": 1, "b": 5}', headers=BINARY) as response:
            assert (response.status, await response.json()) == (200, 6)


async def test_a_handler_that_raises_in_a_lambda_looks_like_infrastructure() -> None:
    async with in_lambda("deployable.broken") as url:
        with pytest.raises(InfraFailed, match="answered 502"):
            await called(url, 1)


async def test_mangum_brings_our_asgi_app_behind_a_function_url() -> None:
    pytest.importorskip("mangum")
    async with in_lambda("through_mangum.handler") as url, aiohttp.ClientSession() as session:
        assert await called(url, 20, 3) == 23
        assert await posted(session, url, b'{"a": 1, "b": 5}', BINARY) == (200, 6)


KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_SESSION_TOKEN": "a+session/token==",
}


async def test_a_lambda_that_wants_signatures_lets_ours_in() -> None:
    """The other side makes the signature again, with AWS's own library."""
    pytest.importorskip("botocore")
    iam: dict[str, Any] = {"authorization": "iam", "environ": {**KEYS, "AWS_REGION": REGION}}
    wrong = {**iam, "environ": {**iam["environ"], "AWS_SECRET_ACCESS_KEY": "another"}}
    async with in_lambda("deployable.handler", KEYS) as url:
        assert await called(url, 20, 3, **iam) == 23
        assert await called(url.rstrip("/") + INVOKE, 20, 3, **iam) == 23
        for options in ({}, wrong):
            with pytest.raises(InfraFailed, match="answered 403"):
                await called(url, 20, 3, **options)


async def test_what_a_function_raises_when_lambda_invokes_it_is_its_own() -> None:
    async with in_lambda("deployable.handler") as url:
        with pytest.raises(CallFailed, match='"errorType": "TypeError"'):
            await called(url.rstrip("/") + INVOKE, "text", 3)


@asynccontextmanager
async def on_asgi() -> AsyncIterator[str]:
    async with deployed(subjects.add) as url:
        yield url


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize("platform", [on_asgi, lambda: framework("target")])
async def test_a_cloud_event_is_answered_by_one_in_its_mode(
    mode: str, platform: Callable[[], AbstractAsyncContextManager[str]]
) -> None:
    http = pytest.importorskip("cloudevents.http")
    from cloudevents import conversion

    event = http.CloudEvent({"type": "score", "source": "test"}, {"a": 1, "b": 5})
    headers, body = getattr(conversion, f"to_{mode}")(event)
    async with (
        platform() as url,
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers={**JSON, **headers}) as response,
    ):
        answer = http.from_http(dict(response.headers), await response.read())
        kind = response.content_type
    assert (response.status, answer.data) == (200, 6)
    assert (answer["id"], answer["type"]) == (event["id"], "score.answered")
    assert answer["source"] == subjects.add.name
    assert (kind == "application/cloudevents+json") is (mode == "structured")


async def test_a_batch_of_events_is_refused() -> None:
    batch = {"content-type": "application/cloudevents-batch+json"}
    async with deployed(subjects.add) as url, aiohttp.ClientSession() as session:
        status, told = await posted(session, url, b"[]", batch)
    assert status == 400
    assert "send them one by one" in told["error"]
