"""Which callers may use the gateway over HTTP, and how exceptions become responses."""

import secrets
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from artangram.aio import has_token
from artangram.gateway.http.agentkeys import AgentKeys
from artangram.gateway.http.refusal import KNOWN, Refusal, refusal_of, wrong_token
from artangram.gateway.http.sse import failure

Verb = Callable[[Request], Coroutine[Any, Any, Response]]


def guarded(verb: Verb, token: str | None, agent_keys: AgentKeys | None = None) -> Verb:
    """`verb` for callers with the token and agents with a key; its exceptions become responses."""

    def may_use(request: Request) -> bool:
        if token is None or has_token(request.headers, token):
            return True
        if secrets.compare_digest(request.headers.get("x-api-key", "").encode(), token.encode()):
            return True
        return agent_keys is not None and agent_keys.of(request.headers) is not None

    async def respond(request: Request) -> Response:
        if not may_use(request):
            return failure(wrong_token())
        try:
            return await verb(request)
        except KNOWN as error:
            return failure(refusal_of(error))
        except ExceptionGroup as errors:
            if not isinstance(first := errors.exceptions[0], KNOWN):
                raise
            return failure(refusal_of(first))
        except ClientDisconnect:
            return Response(status_code=499)  # The client is gone.

    return respond


async def on_unknown_address(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return failure(Refusal(HTTPStatus(error.status_code), message, code="unknown_url"))


async def on_defect(request: Request, error: Exception) -> Response:
    """Ours; the server's log has it."""
    message = "the gateway failed; see its log"
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return failure(Refusal(status, message, code="internal_error", kind="server_error"))
