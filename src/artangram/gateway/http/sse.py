"""Server-sent events, and callers that hang up.

- Nothing is sent before the first event is there, so a request that fails at once still gets its
  status.
- When a caller hangs up, the work behind its request is cancelled and awaited.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from artangram.gateway.http.refusal import KNOWN, Refusal, refusal_of

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


def event(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def named_event(name: str, value: object) -> bytes:
    """An event with a name of its own, as Responses and Messages have them."""
    return b"event: " + name.encode() + b"\n" + event(value)


def failure(refusal: Refusal) -> Response:
    body = msgspec.json.encode({"error": refusal.body})
    return Response(body, refusal.status, media_type="application/json")


class EventStream(Response):
    """The events as they come; see the module."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self.background = None
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._respond(scope, receive, send))
        except ClientDisconnect:
            return

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events) as events:
            try:
                first = await anext(events)
            except KNOWN as error:
                await failure(refusal_of(error))(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await _send_part(send, first)
            try:
                async for one in events:
                    await _send_part(send, one)
            except KNOWN as error:
                await _send_part(send, event({"error": refusal_of(error).body}))
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. If the caller goes, it is cancelled: then `ClientDisconnect`."""
    serving = asyncio.current_task()
    assert serving is not None
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        await _hung_up(receive)
        is_gone = True
        serving.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if is_gone and not serving.uncancel():
            raise ClientDisconnect from None
        raise
    finally:
        watching.cancel()


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
