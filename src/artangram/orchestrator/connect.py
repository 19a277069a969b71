"""The client of an orchestrator behind HTTP: the same `Client`, another `Transport`."""

import asyncio
import io
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec
from msgspec import structs

from artangram.backends.ray.lookup import SCHEME, find_head
from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, NodeId, TrajectoryId
from artangram.core.scheduling.expected import ExpectedWait
from artangram.core.scheduling.explain import Explanation
from artangram.functions import Function
from artangram.observe.history import HistoryEntry
from artangram.orchestrator.arguments import (
    RunRequest,
    StartRequest,
    as_address,
    as_body,
    as_unicode,
    check_loop,
)
from artangram.orchestrator.calling import CallRequest
from artangram.orchestrator.client import Client
from artangram.orchestrator.diagnosis import ClusterDiagnosis
from artangram.orchestrator.errors import ErrorRecord, raised
from artangram.orchestrator.ndjson import read
from artangram.orchestrator.probing import probed_socket
from artangram.orchestrator.process import Printed
from artangram.orchestrator.reconfigure import Reconfiguration
from artangram.orchestrator.records import (
    QUEUEING,
    ActionResult,
    ClusterStatus,
    Opening,
    Queueing,
    Refused,
    Unreachable,
)
from artangram.orchestrator.tokens import checked_token
from artangram.orchestrator.use import UseReport
from artangram.sandbox.process import ProcessBegan, ProcessInput
from artangram.sandbox.protocol import Output, Snapshot
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms
from artangram.services.service import Service

try:
    import aiohttp
except ModuleNotFoundError as error:
    problem = "artangram.connect needs aiohttp; pip install 'artangram[client]'"
    raise ModuleNotFoundError(problem, name="aiohttp") from error

T = TypeVar("T")

BEAT_S = 5.0
"""Between two heartbeats. Far below `SILENCE_S`, because their answers tell what is queued."""

IDLE_S = 15.0
"""How long a connection is kept for the next request; services keep them longer (`aio.KEPT_S`)."""

LARGE_BYTES = 1 << 20
"""A longer body is sent in pieces, between which other requests go on."""

_FROM_BETWEEN = (502, 503, 504)
"""What a proxy answers while the service behind it does not."""


@asynccontextmanager
async def connect(
    url: str, *, token: str | None = None, beat_s: float = BEAT_S
) -> AsyncIterator[Client]:
    """Connect to the service at `url`; `token` is what `artangram up` printed.

    `ray://auto` and `ray://HOST:PORT` name the Ray cluster that the service runs on, which knows
    its address and token.

    The client sends a heartbeat every `beat_s` seconds; the service closes the trajectories of a
    client whose heartbeats stop. A call that gets no answer raises `Unreachable`.
    """
    address = as_address(url).rstrip("/")
    if not isinstance(beat_s, int | float) or not 0 < beat_s < math.inf:
        raise BadInput("beat_s", f"{beat_s!r} is not an interval", "give seconds above 0")
    if address.startswith(SCHEME):
        found = await find_head(address)
        url, address, token = found.url, found.url, token or found.token
    headers = {} if token is None else {"Authorization": f"Bearer {checked_token(token)}"}
    # An action may take as long as it takes, and thousands may wait at once.
    session = aiohttp.ClientSession(
        f"{address}/v1/",
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0),
        connector=aiohttp.TCPConnector(
            limit=0, keepalive_timeout=IDLE_S, socket_factory=probed_socket
        ),
    )
    async with session:
        backend = _Http(session, url)
        beating = asyncio.create_task(backend.beat(beat_s))
        try:
            yield Client(backend)
        finally:
            beating.cancel()
            await asyncio.wait({beating})


class _Http:
    """See `transport.Transport`."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        #: Of the trajectories that were opened here and are not closed.
        self._queueing: dict[TrajectoryId, _Heard] = {}
        #: Those that may be open there although they are not used here: no answer came to their
        #: closing (False) or to their opening (True).
        self._left: dict[TrajectoryId, bool] = {}
        self._leaving = asyncio.Lock()
        self._owner = uuid4().hex
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<at {self._url}>"

    async def open(self, opening: Opening) -> None:
        trajectory = opening.trajectory
        ours = as_body(structs.replace(opening, owner=self._owner))
        is_again = await self._returned_to(trajectory)
        try:
            with self._left_without_answer(trajectory, is_opening=True):
                await self._ask("POST", "trajectories", data=ours)
        except BadInput as error:
            # It is open already: only the answer to the first request was lost.
            if not is_again or error.field != "trajectory":
                raise
        self._queueing[trajectory] = _Heard()

    async def close(self, trajectory: TrajectoryId) -> None:
        self._queueing.pop(trajectory, None)
        with self._left_without_answer(trajectory, is_opening=False):
            await self._ask("DELETE", _of(trajectory))

    async def close_job(self, job: JobId) -> None:
        await self._ask("DELETE", f"jobs/{_quoted('job', job)}")

    async def drain(self, node: NodeId, *, is_on: bool) -> None:
        await self._ask("PUT" if is_on else "DELETE", f"nodes/{_quoted('node', node)}/draining")

    async def reconfigure(self, wanted: Reconfiguration) -> None:
        await self._ask("PATCH", "cluster", data=as_body(wanted))

    async def run(self, request: RunRequest) -> ActionResult:
        of, body = request.trajectory, as_body(request)
        found = await self._ask("POST", f"{_of(of)}/run", data=body, of=of)
        return self._decoded(found, ActionResult)

    async def stream(self, request: RunRequest) -> AsyncGenerator[Output | ActionResult, None]:
        path = f"{_of(request.trajectory)}/stream"
        async with aclosing(self._pieces(path, request, request.trajectory)) as pieces:
            async for piece in pieces:
                if not isinstance(piece, ProcessBegan):
                    yield piece

    def start(self, request: StartRequest) -> AsyncGenerator[Printed, None]:
        return self._pieces(f"{_of(request.trajectory)}/start", request, None)

    async def _pieces(
        self, path: str, request: msgspec.Struct, trajectory: TrajectoryId | None
    ) -> AsyncGenerator[Printed, None]:
        with self._waiting_for(trajectory), self._reached():
            async with self._session.post(path, data=as_body(request)) as answer:
                if answer.status != HTTPStatus.OK:
                    raise self._refusal(answer.status, await answer.read())
                async for piece in read(answer.content.iter_any()):
                    yield piece

    async def feed(self, action_id: ActionId, given: ProcessInput) -> None:
        await self._ask("POST", f"{_action(action_id)}/input", data=as_body(given))

    async def signal(self, action_id: ActionId, number: int) -> None:
        await self._ask("POST", f"{_action(action_id)}/signal", query={"number": str(number)})

    async def call(self, request: CallRequest) -> ActionResult:
        found = await self._ask("POST", "calls", data=as_body(request), of=request.trajectory)
        return self._decoded(found, ActionResult)

    def register(self, function: Function[..., Any]) -> None:
        return  # The service knows its own functions, and refuses others by name.

    async def deploy(self, service: Service) -> None:
        fix = "name it under `services:` in the file of `artangram up`"
        raise BadInput(
            "deploy", "a model service brings code, so it cannot be deployed over HTTP", fix
        )

    async def read(self, trajectory: TrajectoryId, path: str, *, max_bytes: int) -> bytes:
        query = {"path": as_unicode("path", path), "max_bytes": str(max_bytes)}
        return await self._ask("GET", f"{_of(trajectory)}/files", query=query, of=trajectory)

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None:
        address, query = f"{_of(trajectory)}/files", {"path": as_unicode("path", path)}
        await self._ask("PUT", address, query=query, data=data, of=trajectory)

    async def snapshot(self, trajectory: TrajectoryId, terms: SnapshotTerms) -> Snapshot:
        address, body = f"{_of(trajectory)}/snapshot", as_body(terms)
        found = await self._ask("POST", address, data=body, of=trajectory)
        return self._decoded(found, Snapshot)

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        return self._decoded(await self._ask("GET", "snapshots"), tuple[SnapshotInfo, ...])

    async def forget(self, snapshot: Snapshot) -> None:
        query = {"node": snapshot.node, "provider": snapshot.provider}
        await self._ask("DELETE", f"snapshots/{_quoted('snapshot', snapshot.name)}", query=query)

    def queued_s(self, trajectory: TrajectoryId) -> float | None:
        heard = self._queueing.get(trajectory)
        return None if heard is None else heard.queued_s

    async def explain(self, action_id: ActionId) -> Explanation:
        return self._decoded(await self._ask("GET", f"{_action(action_id)}/explain"), Explanation)

    async def status(self) -> ClusterStatus:
        return self._decoded(await self._ask("GET", "status"), ClusterStatus)

    async def diagnose(self) -> ClusterDiagnosis:
        return self._decoded(await self._ask("GET", "diagnosis"), ClusterDiagnosis)

    async def expected_wait(self, job: JobId) -> ExpectedWait:
        found = await self._ask("GET", f"jobs/{_quoted('job', job)}/wait")
        return self._decoded(found, ExpectedWait)

    async def use(self) -> UseReport:
        return self._decoded(await self._ask("GET", "use"), UseReport)

    async def history(self, action_id: ActionId) -> tuple[HistoryEntry, ...]:
        found = await self._ask("GET", f"actions/{_quoted('action_id', action_id)}/history")
        return self._decoded(found, tuple[HistoryEntry, ...])

    async def cancel(self, action_id: ActionId) -> None:
        await self._ask("DELETE", f"actions/{_quoted('action_id', action_id)}")

    async def beat(self, every_s: float) -> None:
        """Send heartbeats while anything is open. The next one makes up for one that is lost."""
        while True:
            await asyncio.sleep(every_s)
            if self._queueing or self._left:
                with suppress(Unreachable, Refused, BadInput, OSError):
                    await self._beat()
                    await self._close_left()

    async def _close_left(self) -> None:
        """Close what may be open: our heartbeats would keep it open for ever."""
        for trajectory in list(self._left):
            async with self._leaving:
                if trajectory in self._left:
                    await self._ask("DELETE", _of(trajectory))
                    self._left.pop(trajectory, None)  # Its user may have closed it meanwhile.

    async def _returned_to(self, trajectory: TrajectoryId) -> bool:
        """Was an earlier opening left without an answer? One that may be open is closed first."""
        if trajectory not in self._left:
            return False
        async with self._leaving:
            was_opening = self._left.get(trajectory)
            if was_opening is False:
                await self._ask("DELETE", _of(trajectory))
            self._left.pop(trajectory, None)
        return was_opening is True

    @contextmanager
    def _left_without_answer(self, trajectory: TrajectoryId, *, is_opening: bool) -> Iterator[None]:
        """Around an opening or a closing: remembers it if no answer comes."""
        self._left.pop(trajectory, None)
        try:
            yield
        except (Unreachable, OSError, asyncio.CancelledError):
            self._left[trajectory] = is_opening
            raise

    async def _beat(self) -> None:
        found = await self._ask("PUT", f"owners/{self._owner}")
        for name, queueing in self._decoded(found, dict[str, Queueing]).items():
            heard = self._queueing.get(TrajectoryId(name))
            if heard is not None:
                heard.told(queueing)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        data: bytes | None = None,
        of: TrajectoryId | None = None,
    ) -> bytes:
        """The body of the answer. Raises what the orchestrator raised."""
        body_of = data if data is None or len(data) < LARGE_BYTES else io.BytesIO(data)
        with self._waiting_for(of) as heard, self._reached():
            async with self._session.request(method, path, params=query, data=body_of) as answer:
                body = await answer.read()
                if QUEUEING in answer.headers:
                    heard.told(msgspec.json.decode(answer.headers[QUEUEING], type=Queueing))
                if answer.status == HTTPStatus.OK:
                    return body
                raise self._refusal(answer.status, body)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Around a request: every way to get no answer is one error."""
        check_loop(self._loop)
        if self._session.closed:
            raise Refused("this client is closed; use it within its `async with`, or connect again")
        try:
            yield
        except (aiohttp.ClientResponseError, msgspec.MsgspecError) as error:
            raise self._not_ours() from error
        except aiohttp.ClientError as error:
            why = (isinstance(error, OSError) and error.strerror) or str(error)
            raise self._away(why) from error

    @contextmanager
    def _waiting_for(self, trajectory: TrajectoryId | None) -> Iterator["_Heard"]:
        """While a request is under way that may have to wait."""
        heard = (None if trajectory is None else self._queueing.get(trajectory)) or _Heard()
        heard.asked(1)
        try:
            yield heard
        finally:
            heard.asked(-1)

    def _refusal(self, status: int, body: bytes) -> Exception:
        try:
            return raised(msgspec.json.decode(body, type=ErrorRecord))
        except msgspec.MsgspecError:
            if status in _FROM_BETWEEN:
                return self._away(f"{status} from a proxy")
            if status < HTTPStatus.INTERNAL_SERVER_ERROR:
                return self._not_ours()
            return Refused(f"{self._url} answers {status}: {body[:200]!r}")

    def _away(self, why: str) -> Unreachable:
        return Unreachable(f"{self._url} does not answer: {why}; start it with `artangram up`")

    def _not_ours(self) -> BadInput:
        problem = f"{self._url} answers, but it is not an Artangram service"
        return BadInput("url", problem, "give the address that `artangram up` printed")

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise self._not_ours() from error


class _Heard:
    """How long a trajectory has queued, estimated between two answers of the orchestrator.

    Requests since the last answer count as waiting: waiting is never taken for work.
    """

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._last, self._at = Queueing(), self._clock()
        self._num_asked = 0

    @property
    def queued_s(self) -> float:
        num_waiting = self._last.num_waiting + self._num_asked
        return self._last.queued_s + num_waiting * (self._clock() - self._at)

    def asked(self, more: int) -> None:
        """`more` further requests are under way."""
        self._last = structs.replace(self._last, queued_s=self.queued_s)
        self._at = self._clock()
        self._num_asked = max(0, self._num_asked + more)

    def told(self, queueing: Queueing) -> None:
        """The orchestrator said so."""
        self._last, self._at, self._num_asked = queueing, self._clock(), 0


def _of(trajectory: TrajectoryId) -> str:
    return f"trajectories/{_quoted('trajectory', trajectory)}"


def _action(action_id: ActionId) -> str:
    return f"actions/{_quoted('action_id', action_id)}"


def _quoted(field: str, name: str) -> str:
    """As a part of a URL."""
    return quote(as_unicode(field, name), safe="")
