"""Blocking counterparts of `Client` and what it gives: each method waits for the async one.

Every class here forwards to the async object of the same purpose; what a method means is said
there, once.
"""

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack

from artangram.core.ids import TrajectoryId
from artangram.core.scheduling.expected import ExpectedWait
from artangram.core.scheduling.explain import Explanation
from artangram.observe.history import HistoryEntry
from artangram.orchestrator.calling import Api, ApiAnswer, RemoteFunction
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.orchestrator.diagnosis import ClusterDiagnosis
from artangram.orchestrator.files import FileStat
from artangram.orchestrator.options import (
    CallOptions,
    ClusterChanges,
    RunOptions,
    ServiceOptions,
    StartOptions,
    TrajectoryOptions,
)
from artangram.orchestrator.process import KEPT_BYTES
from artangram.orchestrator.records import ActionResult, ClusterStatus, Refused
from artangram.orchestrator.use import UseReport
from artangram.sandbox.protocol import MAX_READ_BYTES, Output, Snapshot
from artangram.sandbox.snapshot import SnapshotInfo
from artangram.services.service import Loader
from artangram.sync.process import SyncExposedPort, SyncProcess, SyncShell
from artangram.sync.thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")


class SyncClient:
    """`Client` for code that is not async. It is open until `close` or the end of its `with`."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._client: Client = thread.client

    def __repr__(self) -> str:
        return f"<Sync {self._client!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster or the connection. Calls in other threads raise `Refused`."""
        self._thread.close()

    def trajectory(self, **options: Unpack[TrajectoryOptions]) -> "SyncTrajectory":
        """See `Client.trajectory`; to be used as `with`, or with `open` and `close`."""
        return SyncTrajectory(self._client.trajectory(**options), self._thread)

    def attach(self, id: str, *, task: str = "") -> "SyncTrajectory":
        """See `Client.attach`."""
        return SyncTrajectory(self._client.attach(id, task=task), self._thread)

    def call(self, service: str, payload: object, **options: Unpack[CallOptions]) -> Any:
        """See `Client.call`."""
        return self._thread.wait(self._client.call(service, payload, **options))

    def function(
        self, code: Callable[P, R], **options: Unpack[CallOptions]
    ) -> "SyncFunction[P, R]":
        """`code` as a function that runs in a function worker of the cluster, and blocks."""
        remote = self._thread.ask(lambda: self._client.function(code, **options))
        return SyncFunction(remote, self._thread)

    def deploy(self, name: str, loader: Loader, **options: Unpack[ServiceOptions]) -> None:
        """See `Client.deploy`."""
        self._thread.wait(self._client.deploy(name, loader, **options))

    def api(self, name: str) -> "SyncApi":
        """See `Client.api`."""
        return SyncApi(self._client.api(name), self._thread)

    def close_job(self, job: str) -> None:
        """See `Client.close_job`."""
        self._thread.wait(self._client.close_job(job))

    def drain(self, node: str, *, undo: bool = False) -> None:
        """See `Client.drain`."""
        self._thread.wait(self._client.drain(node, undo=undo))

    def reconfigure(self, **changes: Unpack[ClusterChanges]) -> None:
        """See `Client.reconfigure`."""
        self._thread.wait(self._client.reconfigure(**changes))

    def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """See `Client.snapshots`."""
        return self._thread.wait(self._client.snapshots())

    def forget(self, snapshot: Snapshot | SnapshotInfo | str) -> None:
        """See `Client.forget`."""
        self._thread.wait(self._client.forget(snapshot))

    def explain(self, action_id: str) -> Explanation:
        """See `Client.explain`."""
        return self._thread.wait(self._client.explain(action_id))

    def status(self) -> ClusterStatus:
        """See `Client.status`."""
        return self._thread.wait(self._client.status())

    def diagnose(self) -> ClusterDiagnosis:
        """See `Client.diagnose`."""
        return self._thread.wait(self._client.diagnose())

    def expected_wait(self, job: str = "default") -> ExpectedWait:
        """See `Client.expected_wait`."""
        return self._thread.wait(self._client.expected_wait(job))

    def use(self) -> UseReport:
        """See `Client.use`."""
        return self._thread.wait(self._client.use())

    def history(self, action_id: str) -> tuple[HistoryEntry, ...]:
        """See `Client.history`."""
        return self._thread.wait(self._client.history(action_id))

    def cancel(self, action_id: str) -> None:
        """See `Client.cancel`."""
        self._thread.wait(self._client.cancel(action_id))


class SyncTrajectory:
    """`TrajectoryHandle` for code that is not async. Several threads may use one."""

    def __init__(self, handle: TrajectoryHandle, thread: LoopThread) -> None:
        self._handle = handle
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Sync {self._handle!r}>"

    @property
    def id(self) -> TrajectoryId:
        return self._handle.id

    @property
    def queued_s(self) -> float:
        """See `TrajectoryHandle.queued_s`."""
        return self._thread.ask(lambda: self._handle.queued_s)

    def __enter__(self) -> Self:
        self._thread.wait(self._handle.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self._handle.__aexit__())

    def open(self) -> Self:
        """Open it without a `with` block, as a notebook does; then `close` ends it."""
        self._thread.wait(self._handle.open())
        return self

    def close(self) -> None:
        """End it: what still runs is stopped, its files are removed."""
        self._end(self._handle.close())

    def run(self, argv: Sequence[str], **options: Unpack[RunOptions]) -> ActionResult:
        """See `TrajectoryHandle.run`."""
        return self._thread.wait(self._handle.run(argv, **options))

    def stream(
        self, argv: Sequence[str], **options: Unpack[RunOptions]
    ) -> Generator[Output | ActionResult, None, None]:
        """See `TrajectoryHandle.stream`."""
        pieces = self._handle.stream(argv, **options)

        async def following() -> Output | ActionResult | None:
            return await anext(pieces, None)

        try:
            while (piece := self._thread.wait(following())) is not None:
                yield piece
        finally:
            # The garbage collector may close a stream in the thread of the loop.
            if self._thread.is_current:
                self._thread.later(_closed(pieces.aclose))
            else:
                self._end(_closed(pieces.aclose))

    def start(
        self,
        argv: Sequence[str],
        *,
        output_bytes: int = KEPT_BYTES,
        lossless: bool = False,
        **options: Unpack[StartOptions],
    ) -> SyncProcess:
        """See `TrajectoryHandle.start`."""
        started = self._handle.start(argv, output_bytes=output_bytes, lossless=lossless, **options)
        return SyncProcess(self._thread.wait(started), self._thread)

    def shell(self, **options: Unpack[StartOptions]) -> SyncShell:
        """See `TrajectoryHandle.shell`."""
        return SyncShell(self._thread.wait(self._handle.shell(**options)), self._thread)

    def write(self, path: str, data: bytes | str) -> None:
        """See `TrajectoryHandle.write`."""
        self._thread.wait(self._handle.write(path, data))

    def read(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """See `TrajectoryHandle.read`."""
        return self._thread.wait(self._handle.read(path, max_bytes=max_bytes))

    def list(self, path: str = ".") -> Sequence[FileStat]:
        """See `TrajectoryHandle.list`."""
        return self._thread.wait(self._handle.list(path))

    def stat(self, path: str) -> FileStat:
        """See `TrajectoryHandle.stat`."""
        return self._thread.wait(self._handle.stat(path))

    def exists(self, path: str) -> bool:
        """See `TrajectoryHandle.exists`."""
        return self._thread.wait(self._handle.exists(path))

    def mkdir(self, path: str) -> None:
        """See `TrajectoryHandle.mkdir`."""
        self._thread.wait(self._handle.mkdir(path))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """See `TrajectoryHandle.remove`."""
        self._thread.wait(self._handle.remove(path, recursive=recursive))

    def move(self, source: str, target: str) -> None:
        """See `TrajectoryHandle.move`."""
        self._thread.wait(self._handle.move(source, target))

    def upload(self, source: str | PathLike[str], target: str = ".") -> None:
        """See `TrajectoryHandle.upload`."""
        self._thread.wait(self._handle.upload(source, target))

    def download(self, source: str, target: str | PathLike[str]) -> None:
        """See `TrajectoryHandle.download`."""
        self._thread.wait(self._handle.download(source, target))

    def expose(self, port: int) -> SyncExposedPort:
        """See `TrajectoryHandle.expose`."""
        return SyncExposedPort(self._thread.wait(self._handle.expose(port)), self._thread)

    def snapshot(self, name: str = "", *, keep_s: float | None = None) -> Snapshot:
        """See `TrajectoryHandle.snapshot`."""
        return self._thread.wait(self._handle.snapshot(name, keep_s=keep_s))

    def _end(self, ending: Coroutine[Any, Any, None]) -> None:
        """Wait for `ending`, unless the end of the client has ended everything."""
        try:
            self._thread.wait(ending)
        except Refused:
            if not self._thread.is_ending:
                raise


async def _closed(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await close()


class SyncFunction(Generic[P, R]):
    """`RemoteFunction` for code that is not async."""

    def __init__(self, remote: RemoteFunction[P, R], thread: LoopThread) -> None:
        self._remote = remote
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Sync {self._remote!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function returns. Raises `CallFailed` with its traceback if it raises."""
        return self._thread.wait(self._remote(*args, **kwargs))


class SyncApi:
    """`Api` for code that is not async."""

    def __init__(self, api: Api, thread: LoopThread) -> None:
        self._api = api
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Sync {self._api!r}>"

    def get(
        self,
        path: str = "",
        *,
        params: Mapping[str, object] | None = None,
        **options: Unpack[CallOptions],
    ) -> ApiAnswer:
        """See `Api.get`."""
        return self._thread.wait(self._api.get(path, params=params, **options))

    def post(
        self,
        path: str = "",
        *,
        json: object = None,
        params: Mapping[str, object] | None = None,
        repeatable: bool | None = None,
        **options: Unpack[CallOptions],
    ) -> ApiAnswer:
        """See `Api.post`."""
        call = self._api.post(path, json=json, params=params, repeatable=repeatable, **options)
        return self._thread.wait(call)

    def request(
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
        """See `Api.request`."""
        call = self._api.request(
            method,
            path,
            params=params,
            headers=headers,
            body=body,
            repeatable=repeatable,
            **options,
        )
        return self._thread.wait(call)
