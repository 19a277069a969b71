"""The platform's side of a function: what a container or a Lambda runs.

The convention is that of `platform`: arguments by name as a JSON object in, the answer as JSON out.
A function that raises answers 422 with its traceback, so that the caller knows whose fault it was.
A CloudEvent brings the arguments as its data, and is answered by one: see `events`.

- `asgi(function)` for Knative, OpenFaaS and any container: `uvicorn rewards:app`.
- `lambda_handler(function)` for a Lambda, behind a URL or invoked by AWS's own API.
- `request_handler(function)` for functions-framework, which serves on Knative and Cloud Run.
"""

import asyncio
import base64
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from artangram.functions.events import JSON_TYPE, STRUCTURED, answer_to, media_type, opened
from artangram.functions.function import Function

Message = MutableMapping[str, Any]
App = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


class HttpReply(NamedTuple):
    """What a call is answered over HTTP."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {"content-type": JSON_TYPE}


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
            headers = {
                name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
            }
            reply = await asyncio.to_thread(answered, function, await _body(receive), headers)
        else:
            reply = HttpReply(405, msgspec.json.encode({"error": "POST the arguments as JSON"}))
        coded = [
            (name.encode("latin-1"), text.encode("latin-1")) for name, text in reply.headers.items()
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": coded})
        await send({"type": "http.response.body", "body": reply.body})

    return app


def lambda_handler(function: Function[..., Any]) -> Callable[[Any, object], Any]:
    """`function` as the handler of a Lambda.

    Behind a URL an event has a request in it, and so has the answer. AWS's own API passes the
    arguments as the event: then the answer is the value, and what the function raises is Lambda's
    to tell (`X-Amz-Function-Error`).
    """

    def handle(event: Any, context: object) -> Any:
        if "requestContext" not in event:
            return function.code(**event)
        text = event.get("body") or ""
        data = base64.b64decode(text) if event.get("isBase64Encoded") else text.encode()
        status, body, headers = answered(function, data, event.get("headers") or {})
        return {"statusCode": status, "headers": dict(headers), "body": body.decode()}

    return handle


def request_handler(
    function: Function[..., Any],
) -> Callable[[Any], tuple[bytes, int, dict[str, str]]]:
    """`function` as a target of functions-framework, which calls it with a request of Flask."""

    def handle(request: Any) -> tuple[bytes, int, dict[str, str]]:
        status, body, headers = answered(function, request.get_data(), request.headers)
        return body, status, dict(headers)

    return handle


def answered(
    function: Function[..., Any], body: bytes, headers: Mapping[str, str] | None = None
) -> HttpReply:
    """How one call is answered; names of `headers` in any case."""
    headers = {name.lower(): text for name, text in (headers or {}).items()}
    try:
        event, data = opened(headers, body)
        arguments = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        return HttpReply(400, msgspec.json.encode({"error": f"no JSON object came: {error}"}))
    try:
        answer = msgspec.json.encode(function.code(**arguments))
    except Exception:  # noqa: BLE001 - the caller gets whatever it raises
        return HttpReply(422, msgspec.json.encode({"error": traceback.format_exc()}))
    if event is None:
        return HttpReply(200, answer)
    structured = media_type(headers) == STRUCTURED
    event_headers, answer = answer_to(
        event, answer, source=quote(function.name, safe=":"), structured=structured
    )
    return HttpReply(200, answer, event_headers)


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
