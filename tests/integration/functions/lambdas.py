"""The service around a Lambda runtime, as AWS documents it: function URL, Invoke and runtime API.

- A POST to the URL becomes an event in payload format 2.0, waits for the runtime to ask for it, and
  is answered with what the runtime posts. A function that raises is a 502.
- A POST to Invoke is the event; a function that raises is a 200 with `X-Amz-Function-Error`.
- With `credentials` only requests are let in whose signature botocore makes, too.
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
INVOKE = "/2015-03-31/functions/add/invocations"
REGION = "eu-central-1"


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


def is_signed(request: web.Request, body: bytes, credentials: dict[str, str]) -> bool:
    """Would AWS's own library have signed the request as it came?"""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    told = request.headers.get("authorization", "")
    named = told.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    if "host" not in named or "x-amz-date" not in named:
        return False
    headers = {name: request.headers[name] for name in named}
    again = AWSRequest("POST", str(request.url), headers=headers, data=body)
    again.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(Credentials(*credentials.values()), "lambda", REGION)
    text = auth.string_to_sign(again, auth.canonical_request(again))
    return told.endswith(f"Signature={auth.signature(text, again)}")


class LambdaService:
    """One function and its addresses."""

    def __init__(self, credentials: dict[str, str] | None = None) -> None:
        self._credentials = credentials
        self._events: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Where both APIs are: `host:port`."""
        app = web.Application()
        app.router.add_post("/", self._through_url)
        app.router.add_post(INVOKE, self._invoke)
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

    async def _through_url(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        ids, answer, error = await self._ran(request, msgspec.json.encode(an_event(body, headers)))
        if error is not None:
            return web.Response(status=502, text="Internal Server Error", headers=ids)
        body = answer["body"].encode()
        if answer.get("isBase64Encoded"):
            body = base64.b64decode(body)
        return web.Response(status=answer["statusCode"], body=body, headers=answer["headers"] | ids)

    async def _invoke(self, request: web.Request) -> web.Response:
        ids, answer, error = await self._ran(request, await request.read())
        if error is not None:
            return web.json_response(error, headers=ids | {"X-Amz-Function-Error": "Unhandled"})
        return web.json_response(answer, headers=ids)

    async def _ran(self, request: web.Request, event: bytes) -> tuple[dict[str, str], Any, Any]:
        """The number of the call, what the runtime answered, and what it said went wrong."""
        body = await request.read()
        if self._credentials and not is_signed(request, body, self._credentials):
            raise web.HTTPForbidden(text='{"Message":"Forbidden"}')
        name = f"request-{next(self._numbers)}"
        self._answers[name] = asyncio.get_running_loop().create_future()
        self._events.put_nowait((name, event))
        answer, error = await self._answers[name]
        return {"x-amzn-RequestId": name}, answer, error

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
        self._answers.pop(request.match_info["id"]).set_result((await request.json(), None))
        return web.Response(status=202)

    async def _error(self, request: web.Request) -> web.Response:
        self._answers.pop(request.match_info["id"]).set_result((None, await request.json()))
        return web.Response(status=202)
