"""The platform's side of a function: what a container or a Lambda runs.

The convention is that of `platform`: arguments by name as a JSON object in, the answer as JSON out.
A function that raises answers 422 with its traceback, so that the caller knows whose fault it was.

- `asgi(function)` for Knative, OpenFaaS and any container: `uvicorn rewards:app`.
- `lambda_handler(function)` for a Lambda function URL.
- `request_handler(function)` for functions-framework, which serves on Knative and Cloud Run.
"""

import asyncio
import base64
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from artangram.functions.function import Function

Message = MutableMapping[str, Any]
App = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]
JSON_TYPE = "application/json"


def asgi(function: Function[..., Any]) -> App:
    """`function` as an ASGI application; it runs in a thread, several at a time."""

    async def app(
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            raise ValueError(f"a function answers HTTP, not {scope['type']}")
        if scope["method"] == "POST":
            status, body = await asyncio.to_thread(answered, function, await _body(receive))
        else:
            status, body = 405, msgspec.json.encode({"error": "POST the arguments as JSON"})
        headers = [(b"content-type", JSON_TYPE.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def lambda_handler(function: Function[..., Any]) -> Callable[[Any, object], dict[str, Any]]:
    """`function` as the handler of a Lambda function URL."""

    def handle(event: Any, context: object) -> dict[str, Any]:
        text = event.get("body") or ""
        data = base64.b64decode(text) if event.get("isBase64Encoded") else text.encode()
        status, body = answered(function, data)
        return {
            "statusCode": status,
            "headers": {"content-type": JSON_TYPE},
            "body": body.decode(),
        }

    return handle


def request_handler(
    function: Function[..., Any],
) -> Callable[[Any], tuple[bytes, int, dict[str, str]]]:
    """`function` as a target of functions-framework, which calls it with a request of Flask."""

    def handle(request: Any) -> tuple[bytes, int, dict[str, str]]:
        status, body = answered(function, request.get_data())
        return body, status, {"content-type": JSON_TYPE}

    return handle


def answered(function: Function[..., Any], body: bytes) -> tuple[int, bytes]:
    """The status and body with which one call is answered."""
    try:
        arguments = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        return 400, msgspec.json.encode({"error": f"the body is no JSON object: {error}"})
    try:
        return 200, msgspec.json.encode(function.code(**arguments))
    except Exception:  # noqa: BLE001 - whatever it raises is told to the caller
        return 422, msgspec.json.encode({"error": traceback.format_exc()})


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
