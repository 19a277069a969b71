"""The description of the HTTP interface, made from the records it carries."""

from typing import Any

import msgspec

from artangram import __version__
from artangram.core.explain import Explanation
from artangram.orchestrator.calling import CallRequest
from artangram.orchestrator.client import RunRequest
from artangram.orchestrator.errors import Problem
from artangram.orchestrator.pieces import Piece
from artangram.orchestrator.records import ActionResult, Opening, Queueing, Status
from artangram.sandbox.protocol import Snapshot

_RECORDS = (
    Opening,
    RunRequest,
    CallRequest,
    ActionResult,
    Explanation,
    Status,
    Queueing,
    Snapshot,
    Piece,
    Problem,
)
_REF = "#/components/schemas/{name}"


def description() -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    _, schemas = msgspec.json.schema_components(_RECORDS, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Artangram", "version": __version__},
        "security": [{"token": []}],
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "paths": _paths(),
    }


def _paths() -> dict[str, Any]:
    trajectory, action = [_in("path", "trajectory")], [_in("path", "action")]
    file = [*trajectory, _in("query", "path")]
    raw: dict[str, Any] = {"content": {"application/octet-stream": {}}}
    text: dict[str, Any] = {"content": {"text/plain": {}}}
    return {
        "/v1/status": {"get": _does("One look at everything", answer=Status)},
        "/metrics": {"get": _does("What Prometheus reads") | {"responses": {"200": text | _TOLD}}},
        "/v1/trajectories": {"post": _does("Open a trajectory", body=Opening)},
        "/v1/owners/{owner}": {
            "put": _does(
                "Give a sign of life: trajectories of an owner that gives none are closed. "
                "Answers with a Queueing for each of them",
                _in("path", "owner"),
            )
        },
        "/v1/trajectories/{trajectory}": {
            "delete": _does("Close a trajectory; answers when nothing of it is left", *trajectory)
        },
        "/v1/trajectories/{trajectory}/run": {
            "post": _does(
                "Run a command; answers when it has ended. Without a `key` it is cancelled when "
                "the connection closes",
                *trajectory,
                body=RunRequest,
                answer=ActionResult,
            )
        },
        "/v1/trajectories/{trajectory}/stream": {
            "post": _does(
                "Run a command; answers with lines of JSON as it prints, its result last",
                *trajectory,
                body=RunRequest,
                answer=Piece,
            )
        },
        "/v1/calls": {
            "post": _does(
                "Call a service, a function or an API; answers when it has ended. Without a `key` "
                "it is cancelled when the connection closes",
                body=CallRequest,
                answer=ActionResult,
            )
        },
        "/v1/trajectories/{trajectory}/snapshot": {
            "post": _does("Keep its files as they are now", *trajectory, answer=Snapshot)
        },
        "/v1/trajectories/{trajectory}/files": {
            "get": _does("Read a file", *file) | {"responses": {"200": raw | _TOLD}},
            "put": _does("Write a file", *file) | {"requestBody": raw},
        },
        "/v1/jobs/{job}": {"delete": _does("Close every trajectory of a job", _in("path", "job"))},
        "/v1/actions/{action}": {
            "get": _does("The result, as soon as there is one", *action, answer=ActionResult),
            "delete": _does("Cancel an action", *action),
        },
        "/v1/actions/{action}/explain": {
            "get": _does("Why an action waits", *action, answer=Explanation)
        },
    }


_TOLD = {"description": "done"}


def _in(place: str, name: str) -> dict[str, Any]:
    return {"in": place, "name": name, "required": True, "schema": {"type": "string"}}


def _does(
    summary: str, *parameters: dict[str, Any], body: type | None = None, answer: type | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            "200": _TOLD if answer is None else _TOLD | _json(answer),
            "default": {"description": "it was refused"} | _json(Problem),
        },
    }
    return found if body is None else found | {"requestBody": _json(body)}


def _json(record: type) -> dict[str, Any]:
    reference = {"$ref": _REF.format(name=record.__name__)}
    return {"content": {"application/json": {"schema": reference}}}
