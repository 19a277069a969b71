"""The way from a client to an orchestrator, verb by verb: in this process, or over HTTP."""

from collections.abc import AsyncGenerator
from typing import Any, ParamSpec, Protocol, TypeVar

from artangram.core.ids import ActionId, JobId, NodeId, TrajectoryId
from artangram.core.scheduling.expected import ExpectedWait
from artangram.core.scheduling.explain import Explanation
from artangram.functions import Function
from artangram.observe.history import HistoryEntry
from artangram.orchestrator.arguments import (
    RunRequest,
    StartRequest,
)
from artangram.orchestrator.calling import (
    CallRequest,
)
from artangram.orchestrator.diagnosis import ClusterDiagnosis
from artangram.orchestrator.process import Printed
from artangram.orchestrator.reconfigure import Reconfiguration
from artangram.orchestrator.records import ActionResult, ClusterStatus, Opening
from artangram.orchestrator.use import UseReport
from artangram.sandbox.process import ProcessInput
from artangram.sandbox.protocol import (
    Output,
    Snapshot,
)
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms
from artangram.services.service import Service

P = ParamSpec("P")
R = TypeVar("R")


class Transport(Protocol):
    """The way to an orchestrator."""

    async def open(self, opening: Opening) -> None: ...

    async def close(self, trajectory: TrajectoryId) -> None: ...

    async def close_job(self, job: JobId) -> None: ...

    async def drain(self, node: NodeId, *, is_on: bool) -> None: ...

    async def reconfigure(self, wanted: Reconfiguration) -> None: ...

    async def run(self, request: RunRequest) -> ActionResult: ...

    def stream(self, request: RunRequest) -> AsyncGenerator[Output | ActionResult, None]: ...

    def start(self, request: StartRequest) -> AsyncGenerator[Printed, None]:
        """What a process prints as it comes, that it began, and its result last."""
        ...

    async def feed(self, action_id: ActionId, given: ProcessInput) -> None: ...

    async def signal(self, action_id: ActionId, number: int) -> None: ...

    async def call(self, request: CallRequest) -> ActionResult: ...

    def register(self, function: Function[..., Any]) -> None:
        """Make `function` callable by its name."""
        ...

    async def deploy(self, service: Service) -> None: ...

    async def read(self, trajectory: TrajectoryId, path: str, *, max_bytes: int) -> bytes: ...

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None: ...

    async def snapshot(self, trajectory: TrajectoryId, terms: SnapshotTerms) -> Snapshot: ...

    async def snapshots(self) -> tuple[SnapshotInfo, ...]: ...

    async def forget(self, snapshot: Snapshot) -> None: ...

    def queued_s(self, trajectory: TrajectoryId) -> float | None:
        """How long the actions of a trajectory have waited; `None` if it is not open."""
        ...

    async def explain(self, action_id: ActionId) -> Explanation: ...

    async def status(self) -> ClusterStatus: ...

    async def diagnose(self) -> ClusterDiagnosis: ...

    async def use(self) -> UseReport: ...

    async def expected_wait(self, job: JobId) -> ExpectedWait: ...

    async def history(self, action_id: ActionId) -> tuple[HistoryEntry, ...]: ...

    async def cancel(self, action_id: ActionId) -> None: ...
