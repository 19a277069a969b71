"""What the tasks ask of a cluster: the few verbs that they use, and how its answers are read."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from artangram.core.errors import InfraFailed
from artangram.core.scheduling.action import Outcome


class TaskCommandResult(Protocol):
    """How a command ended."""

    @property
    def outcome(self) -> Outcome: ...

    @property
    def reason(self) -> str: ...

    @property
    def exit_code(self) -> int | None: ...

    @property
    def start_error(self) -> str: ...

    @property
    def stdout(self) -> str: ...

    @property
    def stderr(self) -> str: ...


class TaskSandbox(Protocol):
    """A sandbox that keeps its files from command to command."""

    @property
    def queued_s(self) -> float: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def close(self) -> None: ...

    async def write(self, path: str, data: bytes | str) -> None: ...

    async def read(self, path: str) -> bytes: ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        cpu: Any = ...,
        kind: str | None = ...,
        timeout_s: float | None = ...,
        repeatable: bool = ...,
        environ: Mapping[str, str] | None = ...,
    ) -> TaskCommandResult: ...


class TaskApiAnswer(Protocol):
    @property
    def text(self) -> str: ...


class TaskApi(Protocol):
    async def get(
        self,
        path: str = ...,
        *,
        params: Mapping[str, object] | None = ...,
        kind: str | None = ...,
        job: str = ...,
        task: str = ...,
        trajectory: str | None = ...,
        timeout_s: float | None = ...,
    ) -> TaskApiAnswer: ...


class TaskClient(Protocol):
    """`artangram.local()` and `artangram.connect()` give one."""

    def trajectory(
        self,
        *,
        job: str = ...,
        task: str = ...,
        problem: str = ...,
        memory_mb: int = ...,
        id: str | None = ...,
    ) -> TaskSandbox: ...

    async def call(
        self,
        service: str,
        payload: object,
        *,
        kind: str | None = ...,
        job: str = ...,
        task: str = ...,
        trajectory: str | None = ...,
        timeout_s: float | None = ...,
    ) -> Any: ...

    def api(self, name: str) -> TaskApi: ...


def judged_by_itself(ran: TaskCommandResult) -> bool:
    """Whether the command succeeded. Raises `InfraFailed` when that says nothing about it."""
    if ran.start_error:
        raise InfraFailed(f"{ran.reason} (never started: {ran.start_error})")
    if ran.outcome is Outcome.SUCCEEDED:
        return True
    if ran.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
        return False
    raise InfraFailed(f"{ran.outcome.value}: {ran.reason}")
