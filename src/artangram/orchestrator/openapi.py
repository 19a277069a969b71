"""The description of the HTTP interface, made from the records it carries."""

from typing import Any

import msgspec

from artangram import __version__
from artangram.core.scheduling.expected import ExpectedWait
from artangram.core.scheduling.explain import Explanation
from artangram.observe.history import HistoryEntry
from artangram.orchestrator.arguments import RunRequest, StartRequest
from artangram.orchestrator.calling import CallRequest
from artangram.orchestrator.diagnosis import ClusterDiagnosis
from artangram.orchestrator.errors import ErrorRecord
from artangram.orchestrator.ndjson import Piece
from artangram.orchestrator.reconfigure import Reconfiguration
from artangram.orchestrator.records import ActionResult, ClusterStatus, Opening, Queueing
from artangram.orchestrator.use import UseReport
from artangram.sandbox.process import ProcessInput
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms

_RECORDS = (
    Opening,
    RunRequest,
    StartRequest,
    ProcessInput,
    CallRequest,
    Reconfiguration,
    ActionResult,
    Explanation,
    ClusterStatus,
    ClusterDiagnosis,
    UseReport,
    HistoryEntry,
    Queueing,
    Snapshot,
    SnapshotInfo,
    SnapshotTerms,
    Piece,
    ErrorRecord,
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
    action, node = [_in("path", "action")], _in("path", "node")
    text: dict[str, Any] = {"content": {"text/plain": {}}}
    return {
        "/v1/openapi.json": {"get": _does("This description; wants no token") | {"security": []}},
        "/v1/trace": {"get": _does("What ran, as a trace for the simulator (.jsonl.gz)")},
        "/v1/use": {"get": _does("What every job has used", answer=UseReport)},
        "/v1/diagnosis": {"get": _does("Examine every node", answer=ClusterDiagnosis)},
        "/v1/status": {"get": _does("One look at everything", answer=ClusterStatus)},
        "/metrics": {"get": _answering(_does("What Prometheus reads"), text)},
        "/v1/owners/{owner}": {
            "put": _does(
                "Give a sign of life: trajectories of an owner that gives none are closed. "
                "Answers with a Queueing for each of them",
                _in("path", "owner"),
            )
        },
        **_trajectories(),
        "/v1/calls": {
            "post": _does(
                "Call a service, a function or an API; answers when it has ended. Without a `key` "
                "it is cancelled when the connection closes",
                body=CallRequest,
                answer=ActionResult,
            )
        },
        **_snapshots(),
        **_jobs(),
        "/v1/cluster": {
            "patch": _does(
                "Change shares, limits, ceilings or quotas of the running cluster",
                body=Reconfiguration,
            )
        },
        "/v1/nodes/{node}/draining": {
            "put": _does("Send a node no new trajectories; it leaves when it is empty", node),
            "delete": _does("Let a draining node take trajectories again", node),
        },
        "/v1/actions/{action}": {
            "get": _does("The result, as soon as there is one", *action, answer=ActionResult),
            "delete": _does("Cancel an action", *action),
        },
        "/v1/actions/{action}/input": {
            "post": _does("Write to a started process, or take output", *action, body=ProcessInput)
        },
        "/v1/actions/{action}/signal": {
            "post": _does("Send a signal to a started process", *action, _in("query", "number"))
        },
        "/v1/actions/{action}/history": {
            "get": _answering(
                _does("What happened to an action, in order", *action), _list_of(HistoryEntry)
            )
        },
        "/v1/actions/{action}/explain": {
            "get": _does("Why an action waits", *action, answer=Explanation)
        },
    }


def _jobs() -> dict[str, Any]:
    return {
        "/v1/jobs/{job}/wait": {
            "get": _does(
                "How long a job would wait for memory and cores",
                _in("path", "job"),
                answer=ExpectedWait,
            )
        },
        "/v1/jobs/{job}": {"delete": _does("Close every trajectory of a job", _in("path", "job"))},
    }


def _trajectories() -> dict[str, Any]:
    one, trajectory = "/v1/trajectories/{trajectory}", _in("path", "trajectory")
    path, most = _in("query", "path"), _in("query", "max_bytes")
    most |= {"required": False, "schema": {"type": "integer"}}
    raw: dict[str, Any] = {"content": {"application/octet-stream": {}}}
    run = _does(
        "Run a command; answers when it has ended. Without a `key` it is cancelled when the "
        "connection closes",
        trajectory,
        body=RunRequest,
        answer=ActionResult,
    )
    stream = _does(
        "Run a command; answers with lines of JSON as it prints, its result last",
        trajectory,
        body=RunRequest,
    )
    start = _does(
        "Start a process; answers with lines of JSON: that it began, what it prints, its result. "
        "It is cancelled when the connection closes",
        trajectory,
        body=StartRequest,
    )
    return {
        "/v1/trajectories": {"post": _does("Open a trajectory", body=Opening)},
        one: {
            "delete": _does("Close a trajectory; answers when nothing of it is left", trajectory)
        },
        f"{one}/run": {"post": run},
        f"{one}/stream": {"post": _answering(stream, _content(Piece, "application/x-ndjson"))},
        f"{one}/start": {"post": _answering(start, _content(Piece, "application/x-ndjson"))},
        f"{one}/snapshot": {
            "post": _does(
                "Keep its files as they are now", trajectory, body=SnapshotTerms, answer=Snapshot
            )
        },
        f"{one}/files": {
            "get": _answering(_does("Read a file", trajectory, path, most), raw),
            "put": _does("Write a file", trajectory, path)
            | {"requestBody": raw | {"required": True}},
        },
    }


def _snapshots() -> dict[str, Any]:
    optional = [_in("query", name) | {"required": False} for name in ("node", "provider")]
    forget = "Forget a snapshot, of all nodes and providers unless one is named"
    return {
        "/v1/snapshots": {
            "get": _answering(_does("The snapshots of all nodes"), _list_of(SnapshotInfo))
        },
        "/v1/snapshots/{snapshot}": {"delete": _does(forget, _in("path", "snapshot"), *optional)},
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
            "200": _TOLD if answer is None else _TOLD | _content(answer),
            "default": {"description": "it was refused"} | _content(ErrorRecord),
        },
    }
    if body is not None:
        found["requestBody"] = _content(body) | {"required": True}
    return found


def _answering(operation: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """`operation`, answered with something else than JSON."""
    return operation | {"responses": operation["responses"] | {"200": _TOLD | content}}


def _list_of(record: type) -> dict[str, Any]:
    items = {"$ref": _REF.format(name=record.__name__)}
    return {"content": {"application/json": {"schema": {"type": "array", "items": items}}}}


def _content(record: type, media: str = "application/json") -> dict[str, Any]:
    return {"content": {media: {"schema": {"$ref": _REF.format(name=record.__name__)}}}}
