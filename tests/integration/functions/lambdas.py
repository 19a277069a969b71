"""The service around a Lambda runtime, as AWS documents it: function URL and runtime API.

A POST becomes an event in payload format 2.0, waits for the runtime to ask for it, and is answered
with what the runtime posts. A function that raises is a 502, as behind a function URL.
"""

import asyncio
import base64
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

VERSION = "/2018-06-01/runtime"


def an_event(body: bytes, headers: dict[str, str], *, method: str = "POST") -> dict[str, Any]:
    """What a function behind a URL gets; a body that is no text is coded."""
    is_text = headers.get("content-type", "").startswith(("application/json", "text/"))
    http = {"method": method, "path": "/", "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"}
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": "/",
        "rawQueryString": "",
        "headers": headers,
        "requestContext": {"http": http, "stage": "$default", "requestId": "r"},
        "body": body.decode() if is_text else base64.b64encode(body).decode(),
        "isBase64Encoded": not is_text,
    }


class LambdaService:
    """One function and its URL."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Where both APIs are: `host:port`."""
        app = web.Application()
        app.router.add_post("/", self._invoke)
        app.router.add_get(f"{VERSION}/invocation/next", self._next)
        app.router.add_post(f"{VERSION}/invocation/{{id}}/response", self._response)
        app.router.add_post(f"{VERSION}/invocation/{{id}}/error", self._error)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _invoke(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        event = an_event(await request.read(), headers)
        name = f"request-{next(self._numbers)}"
        self._answers[name] = asyncio.get_running_loop().create_future()
        self._events.put_nowait((name, msgspec.json.encode(event)))
        answer = await self._answers[name]
        ids = {"x-amzn-RequestId": name}
        if answer is None:
            return web.Response(status=502, text="Internal Server Error", headers=ids)
        body = answer["body"].encode()
        if answer.get("isBase64Encoded"):
            body = base64.b64decode(body)
        return web.Response(status=answer["statusCode"], body=body, headers=answer["headers"] | ids)

    async def _next(self, request: web.Request) -> web.Response:
        name, event = await self._events.get()
        return web.Response(
            body=event,
            headers={
                "Lambda-Runtime-Aws-Request-Id": name,
                "Lambda-Runtime-Deadline-Ms": str(int(1000 * (time.time() + 60))),
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:x:0:function:add",
                "Content-Type": "application/json",
            },
        )

    async def _response(self, request: web.Request) -> web.Response:
        self._answers.pop(request.match_info["id"]).set_result(await request.json())
        return web.Response(status=202)

    async def _error(self, request: web.Request) -> web.Response:
        self._answers.pop(request.match_info["id"]).set_result(None)
        return web.Response(status=202)
