"""Errors as OpenAI's clients expect them: a status, and a body that says what to do.

Clients repeat requests after 408, 409, 429 and 5xx. Errors that a repetition cannot fix have other
statuses.
"""

from http import HTTPStatus

from msgspec import Struct

from artangram.core.errors import BadInput, InfraFailed
from artangram.gateway.gateway import ContextFull
from artangram.gateway.session import SessionClosed


class ErrorBody(Struct, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(Exception):
    """A request that is not served."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        code: str,
        param: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(message=message, type=kind, param=param, code=code)


KNOWN = (Refusal, BadInput, InfraFailed)
"""What a request may end with; anything else is a defect."""


def refusal_of(error: Exception) -> Refusal:
    match error:
        case Refusal():
            return error
        case ContextFull():
            code = "context_length_exceeded"
            return Refusal(HTTPStatus.BAD_REQUEST, str(error), code=code, param="messages")
        case BadInput():
            code, param = "invalid_value", error.field
            return Refusal(HTTPStatus.BAD_REQUEST, str(error), code=code, param=param)
        case SessionClosed():
            return Refusal(HTTPStatus.GONE, str(error), code="session_closed")
        case _:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return Refusal(status, str(error), code="engine_unavailable", kind="server_error")


def aborted() -> Refusal:
    """The server ended the trajectory."""
    return Refusal(HTTPStatus.GONE, "the turn was aborted; stop", code="turn_aborted")


def wrong_token() -> Refusal:
    message = "send the right token as Authorization: Bearer ..."
    return Refusal(HTTPStatus.UNAUTHORIZED, message, code="invalid_api_key")


def unknown_model(name: str, known: str) -> Refusal:
    message = f"there is no model {name!r}; use {known!r}"
    return Refusal(HTTPStatus.NOT_FOUND, message, code="model_not_found", param="model")


def unknown_session(session_id: str) -> Refusal:
    message = f"there is no session {session_id!r}; open it first"
    return Refusal(HTTPStatus.NOT_FOUND, message, code="session_not_found")


def too_many_sessions(most: int) -> Refusal:
    message = f"{most} sessions are open; close some: DELETE /sessions/ID"
    return Refusal(HTTPStatus.TOO_MANY_REQUESTS, message, code="too_many_sessions")


def too_large(most: int) -> Refusal:
    message = f"the body has more than {most} bytes; shorten it"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, code="body_too_large")
