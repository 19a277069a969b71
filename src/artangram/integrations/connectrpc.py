"""Connect's protocol with JSON bodies: what E2B's clients speak to the program in their sandbox.

A unary call is a JSON body; a stream is a row of envelopes (a byte of flags, four of length, the
JSON), of which the last has flag 2 and tells how the stream ended.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

END = 2
_STATUS = {"not_found": 404, "already_exists": 409, "invalid_argument": 400, "unauthenticated": 401}
_STATUS |= {"unavailable": 502, "unimplemented": 501}


class ConnectProblem(Exception):
    """An answer of Connect's: its code and what to say."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message}


def envelope(message: object, *, flags: int = 0) -> bytes:
    body = json.dumps(message).encode()
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


def refused(problem: ConnectProblem) -> Response:
    """The answer to a unary call that failed."""
    return JSONResponse(problem.as_json(), _STATUS.get(problem.code, 500))


def streamed(messages: AsyncIterator[dict[str, Any]]) -> Response:
    """The answer to a call that streams; a problem is told in its last envelope."""

    async def envelopes() -> AsyncIterator[bytes]:
        end: dict[str, Any] = {}
        try:
            async for message in messages:
                yield envelope(message)
        except ConnectProblem as problem:
            end = {"error": problem.as_json()}
        yield envelope(end, flags=END)

    return StreamingResponse(envelopes(), media_type="application/connect+json")


async def envelopes_of(request: Request) -> AsyncIterator[dict[str, Any]]:
    """The messages of a body that streams, as they come."""
    held = bytearray()
    async for chunk in request.stream():
        held += chunk
        while len(held) >= 5 and len(held) >= 5 + (size := int.from_bytes(held[1:5], "big")):
            flags, body = held[0], bytes(held[5 : 5 + size])
            del held[: 5 + size]
            if not flags & END:
                yield json.loads(body or b"{}")


async def one_message(request: Request) -> dict[str, Any]:
    """The request of a unary call, or of one that only answers with a stream."""
    if request.headers.get("content-type", "").startswith("application/connect+"):
        async for message in envelopes_of(request):
            return message
        return {}
    found = json.loads(await request.body() or b"{}")
    if not isinstance(found, dict):
        raise ConnectProblem("invalid_argument", "the request is not an object")
    return found
