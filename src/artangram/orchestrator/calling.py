"""Calls as a caller makes them: model services, functions, outside APIs.

- A call returns the answer, or raises: `CallFailed` when the callee ran and failed, `InfraFailed`
  when infrastructure failed, `BadInput` when the call could never run on this cluster.
- Functions and services are pure, so their calls are repeated after a failure of infrastructure;
  API calls are repeated only if their method is safe to repeat.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput, CallFailed, InfraFailed
from artangram.core.ids import ActionId, JobId, Resource, TrajectoryId
from artangram.core.scheduling.action import Action, Outcome
from artangram.core.scheduling.needs import Needs
from artangram.functions import Function
from artangram.managers.call import ApiCall, Call, CallResult, FunctionCall
from artangram.orchestrator.arguments import (
    as_json,
    as_mapping,
    as_record,
    as_text,
    check_known,
    check_times,
)
from artangram.orchestrator.options import CallOptions
from artangram.orchestrator.records import ActionResult, Submission

P = ParamSpec("P")
R = TypeVar("R")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that are safe to repeat (RFC 9110)."""


class CallRequest(Struct, frozen=True, kw_only=True):
    """A call as it is requested; times are lengths, because clocks differ."""

    call: Call
    kind: str
    job: JobId = JobId("default")
    task: str = ""
    problem: str = ""
    trajectory: TrajectoryId | None = None
    needs: dict[str, Any] = {}
    """What it needs beside what it calls."""
    work_s: float | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    priority: int = 0
    tokens: int | None = None
    repeatable: bool = False
    key: str | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is self.deadline_s is self.work_s is None:
            return
        check_times(work_s=self.work_s, timeout_s=self.timeout_s, deadline_s=self.deadline_s)


Perform = Callable[[CallRequest], Awaitable[ActionResult]]
"""The way to an orchestrator."""


def request_of(
    call: Call, options: CallOptions, *, kind: str, repeatable: bool = True
) -> CallRequest:
    """The request for `call`; its kind is `kind` unless the options name one."""
    named = options.get("kind") or kind
    given = {**options, "call": call, "kind": named, "repeatable": repeatable}
    return as_record(CallRequest, given)


def checked_options(given: CallOptions) -> CallOptions:
    """`given` itself. Raises `BadInput` for a keyword that is unknown or has a wrong type."""
    check_known(CallOptions, given, of="a call")
    return as_record(CallOptions, given)


def called(request: CallRequest, needs: Needs, *, action_id: ActionId, now: float) -> Submission:
    """The action a request asks for."""
    action = Action(
        id=action_id,
        kind=request.kind,
        needs=needs,
        job=request.job,
        task=request.task,
        problem=request.problem,
        trajectory=request.trajectory,
        work_s=request.work_s,
        timeout_s=request.timeout_s,
        deadline_at=None if request.deadline_s is None else now + request.deadline_s,
        priority=request.priority,
        tokens=request.tokens,
        repeatable=request.repeatable,
    )
    return Submission(action=action, command=None, call=request.call, key=request.key)


def answered(result: ActionResult) -> CallResult:
    """The answer of a call. Raises the error that it ended with."""
    record = result.record
    match record.outcome:
        case Outcome.SUCCEEDED:
            assert result.answer is not None, f"{record.action_id} succeeded without an answer"
            return result.answer
        case Outcome.FAILED | Outcome.TIMED_OUT:
            raise CallFailed(f"{record.kind}: {record.reason}")
        case Outcome.REFUSED:
            raise BadInput(
                "call", record.reason, "`artangram status` lists what this cluster offers"
            )
        case _:
            raise InfraFailed(f"{record.kind}: {record.outcome.value}: {record.reason}")


class RemoteFunction(Generic[P, R]):
    """A function that runs in a worker of the cluster when it is called; to be awaited."""

    def __init__(self, function: Function[P, R], options: CallOptions, perform: Perform) -> None:
        self._function = function
        self._options = options
        self._perform = perform

    def __repr__(self) -> str:
        return f"<Remote {self._function!r}>"

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function returns. Raises `CallFailed` with its traceback if it raises."""
        spec = self._function.spec
        call = FunctionCall(
            function=spec.name,
            body=self._function.encode(*args, **kwargs),
            hedged=spec.idempotent,
        )
        options = self._options
        if options.get("timeout_s") is None:
            options = {**options, "timeout_s": spec.timeout_s}
        request = request_of(call, options, kind=f"function/{spec.name}")
        return self._function.decode(answered(await self._perform(request)).body)


class ApiAnswer(Struct, frozen=True, kw_only=True):
    """What an API answered. It is always a success; everything else was raised."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """The body as a JSON value."""
        return msgspec.json.decode(self.body)


class Api:
    """An outside API. All jobs share its quota; calls wait for it."""

    def __init__(self, name: str, perform: Perform) -> None:
        self.name = Resource(name)
        self._perform = perform

    def __repr__(self) -> str:
        return f"<Api {self.name}>"

    async def get(
        self,
        path: str = "",
        *,
        params: Mapping[str, object] | None = None,
        **options: Unpack[CallOptions],
    ) -> ApiAnswer:
        """GET `path` below the API's address, when the quota allows it."""
        return await self.request("GET", path, params=params, **options)

    async def post(
        self,
        path: str = "",
        *,
        json: object = None,
        params: Mapping[str, object] | None = None,
        repeatable: bool | None = None,
        **options: Unpack[CallOptions],
    ) -> ApiAnswer:
        """POST `json`. It is sent once unless `repeatable=True` allows to send it again."""
        body, headers = as_json("json", json), {"content-type": "application/json"}
        return await self.request(
            "POST",
            path,
            params=params,
            body=body,
            headers=headers,
            repeatable=repeatable,
            **options,
        )

    async def request(
        self,
        method: str,
        path: str = "",
        *,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        repeatable: bool | None = None,
        **options: Unpack[CallOptions],
    ) -> ApiAnswer:
        """Any request.

        `repeatable` says whether it may be sent again. Default: if its method is safe to repeat.
        """
        given = {
            "api": self.name,
            "method": as_text("method", method).upper(),
            "path": path,
            "params": {name: str(one) for name, one in as_mapping("params", params).items()},
            "headers": as_mapping("headers", headers),
            "body": body,
        }
        call = as_record(ApiCall, given)
        may_repeat = call.method in SAFE_METHODS if repeatable is None else repeatable
        request = request_of(
            call, checked_options(options), kind=f"api/{self.name}", repeatable=may_repeat
        )
        found = answered(await self._perform(request))
        return ApiAnswer(status=found.status, headers=found.headers, body=found.body)
