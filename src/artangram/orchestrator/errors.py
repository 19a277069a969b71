"""Errors over HTTP: what the service raises, the client raises again.

They travel as fields, as over a link; the tag decides the status.
"""

from http import HTTPStatus

from msgspec import Struct

from artangram.link import FAULTS, Fault, FaultKind, PeerFailed, worded
from artangram.orchestrator.records import Broken, Draining, Overloaded, Refused, Stalled
from artangram.sandbox.errors import NotCapable, SandboxError, SandboxGone


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """What went wrong: one line for people, one word and its parts for programs."""

    error: str
    message: str
    fields: dict[str, str | int] = {}


def _words_of(error: KeyError) -> dict[str, str | int]:
    return {"message": f"{error.args[0]} is not known here"}


def _key_error(*, message: str) -> KeyError:
    return KeyError(message)


_FAULTS = FAULTS.with_kinds(
    worded("overloaded", Overloaded),
    worded("stalled", Stalled),
    worded("draining", Draining),
    worded("broken", Broken),
    worded("refused", Refused),
    worded("gone", SandboxGone),
    worded("not_capable", NotCapable),
    worded("sandbox", SandboxError),
    FaultKind("unknown", KeyError, _words_of, _key_error),
)
_STATUSES = {
    "overloaded": HTTPStatus.TOO_MANY_REQUESTS,
    "stalled": HTTPStatus.REQUEST_TIMEOUT,
    "gone": HTTPStatus.GONE,
    "not_capable": HTTPStatus.UNPROCESSABLE_ENTITY,
    "sandbox": HTTPStatus.BAD_GATEWAY,
    "unknown": HTTPStatus.NOT_FOUND,
    "file": HTTPStatus.UNPROCESSABLE_ENTITY,
    "timeout": HTTPStatus.UNPROCESSABLE_ENTITY,
    "input": HTTPStatus.BAD_REQUEST,
    "value": HTTPStatus.BAD_REQUEST,
}
KNOWN = (Refused, SandboxError, KeyError, OSError, ValueError)


def problem_of(error: Exception) -> tuple[ErrorRecord, HTTPStatus]:
    """How `error` travels."""
    if not isinstance(error, KNOWN):
        raise error
    fault = _FAULTS.fault(error)
    words = fault.fields.get("message", str(error))
    status = _STATUSES.get(fault.tag, HTTPStatus.SERVICE_UNAVAILABLE)
    return ErrorRecord(error=fault.tag, message=str(words), fields=fault.fields), status


def raised(problem: ErrorRecord) -> Exception:
    """The error that travelled."""
    error = _FAULTS.raised(Fault(problem.error, problem.fields))
    return Refused(problem.message) if isinstance(error, PeerFailed) else error
