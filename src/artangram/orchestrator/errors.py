"""Errors on their way over HTTP: raised on one side, the same on the other."""

from http import HTTPStatus

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.orchestrator.records import Broken, Draining, Overloaded, Refused, Stalled
from artangram.sandbox.errors import SandboxError, SandboxGone


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """What went wrong, in one line for people and one word for programs."""

    error: str
    message: str
    errno: int = 0
    path: str = ""
    """Of the file that an `OSError` is about."""


#: Most particular first; the first that fits is the one.
_KINDS: tuple[tuple[str, type[Exception], HTTPStatus], ...] = (
    ("overloaded", Overloaded, HTTPStatus.TOO_MANY_REQUESTS),
    ("stalled", Stalled, HTTPStatus.REQUEST_TIMEOUT),
    ("draining", Draining, HTTPStatus.SERVICE_UNAVAILABLE),
    ("broken", Broken, HTTPStatus.SERVICE_UNAVAILABLE),
    ("refused", Refused, HTTPStatus.SERVICE_UNAVAILABLE),
    ("gone", SandboxGone, HTTPStatus.GONE),
    ("sandbox", SandboxError, HTTPStatus.BAD_GATEWAY),
    ("unknown", KeyError, HTTPStatus.NOT_FOUND),
    ("file", OSError, HTTPStatus.UNPROCESSABLE_ENTITY),
    ("input", ValueError, HTTPStatus.BAD_REQUEST),
)
KNOWN = tuple(kind for _, kind, _ in _KINDS)


def problem_of(error: Exception) -> tuple[ErrorRecord, HTTPStatus]:
    """How `error` travels."""
    for name, kind, status in _KINDS:
        if isinstance(error, kind):
            message, errno, path = str(error), 0, ""
            if isinstance(error, OSError):
                message, errno = error.strerror or message, error.errno or 0
                path = str(error.filename or "")
            elif isinstance(error, KeyError):
                message = f"{error.args[0]} is not known here"
            return ErrorRecord(error=name, message=message, errno=errno, path=path), status
    raise error


def raised(problem: ErrorRecord) -> Exception:
    """The error that travelled."""
    match problem.error:
        case "overloaded":
            return Overloaded(problem.message)
        case "stalled":
            return Stalled(problem.message)
        case "draining":
            return Draining(problem.message)
        case "broken":
            return Broken(problem.message)
        case "gone":
            return SandboxGone(problem.message)
        case "sandbox":
            return SandboxError(problem.message)
        case "unknown":
            return KeyError(problem.message)
        case "file":
            return OSError(problem.errno, problem.message, problem.path or None)
        case "input":
            return bad_input(problem.message)
    return Refused(problem.message)


def bad_input(message: str) -> ValueError:
    """`BadInput` again, if that is how it reads."""
    field, colon, rest = message.partition(": ")
    problem, semicolon, fix = rest.partition("; ")
    return BadInput(field, problem, fix) if colon and semicolon else ValueError(message)
