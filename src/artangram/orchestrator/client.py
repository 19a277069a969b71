"""The Python client: a cluster, its trajectories, and what they run.

It is the same for an orchestrator in this process and for one behind HTTP; only the `Transport`
differs. A program's failure is in the result; a caller's mistake is raised.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, Unpack
from uuid import uuid4

import msgspec

from artangram.core.ids import ActionId, JobId, NodeId, ServiceId
from artangram.core.scheduling.expected import ExpectedWait
from artangram.core.scheduling.explain import Explanation
from artangram.functions import function_of
from artangram.managers.call import ServiceCall
from artangram.observe.history import HistoryEntry
from artangram.orchestrator.arguments import (
    as_json,
    as_record,
    as_snapshot,
    as_text,
    check_known,
    plain,
)
from artangram.orchestrator.calling import (
    Api,
    RemoteFunction,
    answered,
    checked_options,
    request_of,
)
from artangram.orchestrator.diagnosis import ClusterDiagnosis
from artangram.orchestrator.opening import opening_of
from artangram.orchestrator.options import (
    CallOptions,
    ClusterChanges,
    ServiceOptions,
    TrajectoryOptions,
)
from artangram.orchestrator.reconfigure import Reconfiguration
from artangram.orchestrator.records import ClusterStatus, Opening
from artangram.orchestrator.trajectory import TrajectoryHandle
from artangram.orchestrator.transport import Transport
from artangram.orchestrator.use import UseReport
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotInfo
from artangram.services.service import Loader, Service, loader_name

__all__ = ["Client", "TrajectoryHandle"]

P = ParamSpec("P")
R = TypeVar("R")


class Client:
    """A cluster as its users see it: trajectories, model services, functions and APIs.

    `local` and `connect` give one.
    """

    def __init__(self, backend: Transport, *, new_id: Callable[[], str] | None = None) -> None:
        self._backend = backend
        self._new_id = new_id or (lambda: uuid4().hex[:12])

    def __repr__(self) -> str:
        return f"<Client {self._backend!r}>"

    @property
    def backend(self) -> Transport:
        """The way to its orchestrator, for a layer that wraps it."""
        return self._backend

    def trajectory(self, **options: Unpack[TrajectoryOptions]) -> TrajectoryHandle:
        """One attempt at a problem; use it with `async with`. Its files last until it is closed.

        `TrajectoryOptions` describes the keywords.
        """
        return TrajectoryHandle(self._backend, opening_of(options, new_id=self._new_id))

    def attach(self, id: str, *, task: str = "") -> TrajectoryHandle:
        """A trajectory that is open already, opened by this client or another one.

        Using it with `async with` neither opens nor closes it; `close` does close it. Its owner is
        the client that opened it: when that goes away, the service closes it.

        - `task`: what it attempts, for the kind of its actions.
        """
        opening = as_record(Opening, {"trajectory": as_text("id", id), "task": task})
        return TrajectoryHandle(self._backend, opening, is_attached=True)

    async def call(self, service: str, payload: object, **options: Unpack[CallOptions]) -> Any:
        """Ask a model service and return its answer; both are JSON values."""
        name, body = ServiceId(as_text("service", service)), as_json("payload", payload)
        call = ServiceCall(service=name, body=body)
        request = request_of(call, checked_options(options), kind=f"service/{service}")
        found = answered(await self._backend.call(request))
        return msgspec.json.decode(found.body)

    def function(
        self, code: Callable[P, R], **options: Unpack[CallOptions]
    ) -> RemoteFunction[P, R]:
        """`code` as a coroutine function that runs in a function worker of the cluster.

        `code` has to be stateless and at the top of a module; `artangram.function` marks one.
        """
        found = function_of(code)
        self._backend.register(found)
        return RemoteFunction(found, checked_options(options), self._backend.call)

    async def deploy(self, name: str, loader: Loader, **options: Unpack[ServiceOptions]) -> None:
        """Add a model service. It is loaded onto devices when it is called.

        `loader` is a function at the top of a module, or its name (`module:function`). It returns
        an object with `predict(payloads) -> answers`.
        """
        check_known(ServiceOptions, options, of="a service")
        given = {**options, "id": as_text("name", name), "loader": loader_name(loader)}
        await self._backend.deploy(as_record(Service, given))

    def api(self, name: str) -> Api:
        """An outside API, called within the quota that all jobs share."""
        return Api(as_text("name", name), self._backend.call)

    async def close_job(self, job: str) -> None:
        """Close every trajectory of a job; what it has waiting or running is cancelled."""
        await self._backend.close_job(JobId(as_text("job", job)))

    async def drain(self, node: str, *, undo: bool = False) -> None:
        """Send a node no new trajectories; it leaves when the last one there is closed.

        `undo` lets it take trajectories again, for as long as it has not left.
        """
        await self._backend.drain(NodeId(as_text("node", node)), is_on=not undo)

    async def reconfigure(self, **changes: Unpack[ClusterChanges]) -> None:
        """Change what jobs, functions and APIs may use while the cluster runs.

        What is left out stays as it is. Raises `BadInput` and changes nothing if a value is wrong.
        A restart begins again with what the cluster is started with.
        """
        check_known(ClusterChanges, changes, of="a cluster that runs")
        given = {name: plain(name, one) for name, one in changes.items() if one is not None}
        await self._backend.reconfigure(as_record(Reconfiguration, given))

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """The snapshots that siblings can start from, of all nodes, the newest first."""
        return await self._backend.snapshots()

    async def forget(self, snapshot: Snapshot | SnapshotInfo | str) -> None:
        """Drop a snapshot, given as it is or by its name; sandboxes made from it keep their files.

        Raises `BadInput` if it does not exist.
        """
        await self._backend.forget(as_snapshot(snapshot))

    async def explain(self, action_id: str) -> Explanation:
        """Why an action waits, resource by resource. Raises `KeyError` for one that has ended."""
        return await self._backend.explain(ActionId(as_text("action_id", action_id)))

    async def status(self) -> ClusterStatus:
        """What the cluster does now: queue, nodes, services, functions, APIs."""
        return await self._backend.status()

    async def diagnose(self) -> ClusterDiagnosis:
        """Examine every node and its link: versions, clock, limits, memory, disks, bandwidth."""
        return await self._backend.diagnose()

    async def expected_wait(self, job: str = "default") -> ExpectedWait:
        """How long a trajectory of `job` opened now would wait for memory, and an action for cores.

        A guess by what waits and how fast it is served, for callers that would rather open later.
        """
        return await self._backend.expected_wait(JobId(as_text("job", job)))

    async def use(self) -> UseReport:
        """What every task of every job has used so far: cores, memory, devices, calls, tokens."""
        return await self._backend.use()

    async def history(self, action_id: str) -> tuple[HistoryEntry, ...]:
        """What happened to an action, in order. Raises `KeyError` if it is not known any more."""
        return await self._backend.history(ActionId(as_text("action_id", action_id)))

    async def cancel(self, action_id: str) -> None:
        """Stop an action, also of another client; nothing happens if it has ended."""
        await self._backend.cancel(ActionId(as_text("action_id", action_id)))
