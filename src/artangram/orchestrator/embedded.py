"""The backend of a client in the same process as its orchestrator.

- An action is cancelled when its caller stops waiting, unless it has a key.
- Files need a sandbox, and a sandbox needs memory that the scheduler grants: the first `write` of
  a trajectory is preceded by an action that makes its sandbox.
"""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import uuid4

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Action, Outcome
from artangram.core.scheduling.expected import ExpectedWait
from artangram.core.scheduling.explain import Explanation
from artangram.core.scheduling.needs import Needs
from artangram.functions import Function
from artangram.managers.agent import AgentGone, NodeAgent, Population
from artangram.observe.history import HistoryEntry
from artangram.orchestrator import keptsnapshots
from artangram.orchestrator.arguments import (
    RunRequest,
    StartRequest,
    check_loop,
    inside,
    networked,
    submission_of,
)
from artangram.orchestrator.callbackends import CallBackends
from artangram.orchestrator.calling import CallRequest, called
from artangram.orchestrator.diagnosis import ClusterDiagnosis
from artangram.orchestrator.examining import examine_cluster
from artangram.orchestrator.histories import history
from artangram.orchestrator.live import LiveTrajectory
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.process import Printed
from artangram.orchestrator.providing import provided
from artangram.orchestrator.reconfigure import Reconfiguration
from artangram.orchestrator.records import (
    ActionResult,
    ClusterStatus,
    NodeState,
    Opening,
    Receipt,
    Submission,
)
from artangram.orchestrator.statusparts import explained
from artangram.orchestrator.use import UseReport
from artangram.sandbox.errors import SandboxGone
from artangram.sandbox.network import HOST_NETWORK, NetworkPolicy
from artangram.sandbox.process import ProcessBegan, ProcessInput, TerminalSize, check_signal
from artangram.sandbox.protocol import Output, Snapshot
from artangram.sandbox.snapshot import SnapshotInfo, SnapshotTerms
from artangram.services.service import Service

OPEN_KIND = "sandbox/open"
AGENT_PATIENCE_S = 1.0
"""How long `status` waits for a busy node."""

_ONE_CORE = Needs(amounts=((Resource("cpu"), (1,)),))


def _new_ids() -> Callable[[], str]:
    """Ids that no earlier run has used: a random name of this one, and a number."""
    life, numbers = uuid4().hex, count(1)
    return lambda: f"{life}-{next(numbers)}"


async def _population(agent: NodeAgent | None) -> Population | None:
    """`None` if it does not say."""
    if agent is None:
        return None
    try:
        async with asyncio.timeout(AGENT_PATIENCE_S):
            return await agent.ping()
    except (TimeoutError, AgentGone):
        return None


class Embedded:
    """See `transport.Transport`."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        *,
        backends: CallBackends | None = None,
        new_id: Callable[[], str] | None = None,
        network: NetworkPolicy | None = None,
    ) -> None:
        self.orchestrator = orchestrator
        self._loop = asyncio.get_running_loop()
        self._backends = backends
        self._new_id = new_id or _new_ids()
        self._network = network or NetworkPolicy(allow=HOST_NETWORK)

    def __repr__(self) -> str:
        return repr(self.orchestrator)

    @contextmanager
    def permitting(self, private: str) -> Iterator[None]:
        """While the block lasts, sandboxes that ask for it may reach an address that is not public;
        see `sandbox.network.private_rule`. Code in this process may permit it, callers may not."""
        own = self._network
        self._network = structs.replace(own, private=(*own.private, private))
        try:
            yield
        finally:
            kept = tuple(one for one in self._network.private if one != private)
            self._network = structs.replace(self._network, private=kept)

    async def open(self, opening: Opening) -> None:
        check_loop(self._loop)
        opening = await keptsnapshots.placed(self.orchestrator.nodes, opening)
        opening = provided(networked(opening, self._network), self.orchestrator.nodes)
        opened = self.orchestrator.open(opening)
        try:
            await opened
        except asyncio.CancelledError:
            self.orchestrator.close(opening.trajectory)  # Its caller will not use it.
            raise

    async def close(self, trajectory: TrajectoryId) -> None:
        check_loop(self._loop)
        await asyncio.shield(self.orchestrator.close(trajectory))

    async def close_job(self, job: JobId) -> None:
        check_loop(self._loop)
        closing = self.orchestrator.close_job(job)
        if closing:
            await asyncio.wait(closing)

    async def drain(self, node: NodeId, *, is_on: bool) -> None:
        check_loop(self._loop)
        await asyncio.shield(self.orchestrator.drain_node(node, is_on=is_on))

    async def reconfigure(self, wanted: Reconfiguration) -> None:
        check_loop(self._loop)
        await asyncio.shield(self.orchestrator.reconfigure(wanted))

    def run(self, request: RunRequest) -> Coroutine[Any, Any, ActionResult]:
        return self._ended(self.submit(request), request.key)

    async def stream(self, request: RunRequest) -> AsyncGenerator[Output | ActionResult, None]:
        """What an action prints as it comes, and its result last.

        A second request for a key gets the result only. Leaving early cancels one without a key.
        """
        #: Bounded by the command's `output_bytes`.
        printed: asyncio.Queue[Output | ProcessBegan | None] = asyncio.Queue()
        receipt = self.submit(request)
        self.orchestrator.watch(receipt.action_id, printed.put_nowait)
        receipt.ended.add_done_callback(lambda _: printed.put_nowait(None))
        try:
            while (piece := await printed.get()) is not None:
                if not isinstance(piece, ProcessBegan):
                    yield piece
            yield await receipt.ended
        finally:
            if request.key is None:
                self.orchestrator.cancel(receipt.action_id, reason="its caller went away")

    async def start(self, request: StartRequest) -> AsyncGenerator[Printed, None]:
        """What a process prints as it comes, that it began, and its result last.

        Leaving early cancels it.
        """
        #: Bounded: a node sends no more than a window beyond what was taken.
        printed: asyncio.Queue[Output | ProcessBegan | None] = asyncio.Queue()
        run = request.as_run()
        receipt = self.submit(run, terminal=request.terminal, is_parallel=True)
        self.orchestrator.watch(receipt.action_id, printed.put_nowait)
        receipt.ended.add_done_callback(lambda _: printed.put_nowait(None))
        try:
            while (piece := await printed.get()) is not None:
                if isinstance(piece, ProcessBegan):
                    piece = structs.replace(piece, action_id=receipt.action_id)
                yield piece
            yield await receipt.ended
        finally:
            self.orchestrator.cancel(receipt.action_id, reason="its caller went away")

    async def feed(self, action_id: ActionId, given: ProcessInput) -> None:
        agent = self._agent_of(action_id)
        if agent is not None:
            await agent.feed(action_id, given)
        elif given.stdin:
            raise BrokenPipeError(errno.EPIPE, "the process has ended")

    async def signal(self, action_id: ActionId, number: int) -> None:
        check_signal(number)
        agent = self._agent_of(action_id)
        if agent is not None:
            await agent.signal(action_id, number)

    def _agent_of(self, action_id: ActionId) -> NodeAgent | None:
        """Of the node where an action runs; `None` if it has ended."""
        check_loop(self._loop)
        live = self.orchestrator.ledger.actions.get(action_id)
        if live is None or live.cores is None:
            return None
        return self.orchestrator.nodes.get(live.cores.node)

    async def call(self, request: CallRequest) -> ActionResult:
        check_loop(self._loop)
        needs = self.orchestrator.catalog.needs(request)
        action_id, now = ActionId(self._new_id()), self.orchestrator.now()
        receipt = self.orchestrator.submit(called(request, needs, action_id=action_id, now=now))
        return await self._ended(receipt, request.key)

    def register(self, function: Function[..., Any]) -> None:
        if self._backends is not None:
            self._backends.register(function)

    async def deploy(self, service: Service) -> None:
        if self._backends is None:
            raise BadInput("deploy", "this cluster has no devices", "open it with `devices=1`")
        spec = await self._backends.deploy(service)
        if service.id not in self.orchestrator.catalog.services:  # Else it is the same again.
            self.orchestrator.deploy(service, spec)

    def submit(
        self,
        request: RunRequest,
        *,
        is_parallel: bool = False,
        terminal: TerminalSize | None = None,
    ) -> Receipt:
        """Submit an action without waiting for its end."""
        check_loop(self._loop)
        deadline_s, opening = request.deadline_s, self._opening(request)
        submission = submission_of(
            request,
            opening,
            action_id=ActionId(self._new_id()),
            deadline_at=None if deadline_s is None else self.orchestrator.now() + deadline_s,
        )
        if is_parallel and submission.command is not None:
            started = structs.replace(submission.command, parallel=True, terminal=terminal)
            submission = structs.replace(submission, command=started)
        known = self.orchestrator.known(submission)
        if known is not None:
            return known
        command = submission.command
        if command is not None and command.has_own_limits:
            opening.place.limits.admit(command)
        return self.orchestrator.submit(submission)

    async def read(self, trajectory: TrajectoryId, path: str, *, max_bytes: int) -> bytes:
        home, path = await self._home(trajectory), self._path(trajectory, path)
        return await home.read(trajectory, path, max_bytes=max_bytes)

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None:
        home, path = await self._home(trajectory), self._path(trajectory, path)
        await home.write(trajectory, path, data=data)

    async def snapshot(self, trajectory: TrajectoryId, terms: SnapshotTerms) -> Snapshot:
        home = await self._home(trajectory)
        taken = await home.snapshot(trajectory, terms.bounded())
        taken = structs.replace(taken, node=home.node)
        if terms.name:
            await keptsnapshots.forgotten_elsewhere(self.orchestrator.nodes, taken)
        live = self.orchestrator.ledger.trajectories.get(trajectory)
        if live is not None:
            self.orchestrator.executor.travels.taken(taken, live.opening)
        return taken

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        check_loop(self._loop)
        return await keptsnapshots.kept(self.orchestrator.nodes)

    async def forget(self, snapshot: Snapshot) -> None:
        check_loop(self._loop)
        await keptsnapshots.forgotten(self.orchestrator.nodes, snapshot)

    def queued_s(self, trajectory: TrajectoryId) -> float | None:
        try:
            return self.orchestrator.queueing(trajectory).queued_s
        except KeyError:
            return None

    async def explain(self, action_id: ActionId) -> Explanation:
        return self.orchestrator.explain(action_id)

    async def status(self) -> ClusterStatus:
        """What the orchestrator knows, and what its agents say of their sandboxes."""
        check_loop(self._loop)
        known, agents = self.orchestrator.status(), dict(self.orchestrator.nodes)
        silent = {one.node for one in known.nodes if one.state is NodeState.SUSPECT}
        asked = (
            _population(None if one.node in silent else agents.get(NodeId(one.node)))
            for one in known.nodes
        )
        nodes = [
            structs.replace(one, population=found)
            for one, found in zip(known.nodes, await asyncio.gather(*asked), strict=True)
        ]
        return explained(structs.replace(known, nodes=tuple(nodes)), self.orchestrator.explain)

    async def diagnose(self) -> ClusterDiagnosis:
        check_loop(self._loop)
        one = self.orchestrator
        return await examine_cluster(one.status().nodes, one.nodes, journal=one.journal.path)

    async def expected_wait(self, job: JobId) -> ExpectedWait:
        check_loop(self._loop)
        scheduler = self.orchestrator.executor.scheduler
        return scheduler.expected_wait(job, self.orchestrator.now())

    async def use(self) -> UseReport:
        check_loop(self._loop)
        return self.use_now()

    async def history(self, action_id: ActionId) -> tuple[HistoryEntry, ...]:
        check_loop(self._loop)
        orchestrator = self.orchestrator
        journal, now = orchestrator.journal, orchestrator.now()
        return await history(orchestrator.ledger, journal, action_id, now=now)

    async def cancel(self, action_id: ActionId) -> None:
        check_loop(self._loop)
        self.orchestrator.cancel(action_id)

    def use_now(self) -> UseReport:
        """What every job has used until now."""
        orchestrator = self.orchestrator
        cores = sum(node.cores for node in orchestrator.executor.scheduler.nodes())
        ledger = orchestrator.ledger
        return ledger.accounts.report(ledger.alive(), cores=cores, now=orchestrator.now())

    async def _ended(self, receipt: Receipt, key: str | None) -> ActionResult:
        try:
            return await receipt.ended
        except asyncio.CancelledError:
            if key is None:
                self.orchestrator.cancel(receipt.action_id, reason="its caller went away")
            raise

    def _opening(self, request: RunRequest) -> Opening:
        """Of the trajectory of a request. Raises `BadInput` if it is not open.

        A result can be requested again by its key after its trajectory is closed.
        """
        live = self.orchestrator.ledger.trajectories.get(request.trajectory)
        before = None
        if request.key is not None and (live is None or live.is_closed):
            before = self.orchestrator.by_key(request.key)
        if before is None:
            return self._live(request.trajectory).opening
        if live is not None:
            return live.opening
        action = before.action
        return Opening(trajectory=request.trajectory, job=action.job, task=action.task)

    def _live(self, trajectory: TrajectoryId) -> LiveTrajectory:
        live = self.orchestrator.ledger.trajectory(trajectory)
        if live is None or live.is_closed:
            raise BadInput("trajectory", f"{trajectory!r} is not open", "open it first")
        return live

    def _path(self, trajectory: TrajectoryId, path: str) -> str:
        return inside(self._live(trajectory).opening, path)

    async def _home(self, trajectory: TrajectoryId) -> NodeAgent:
        """The node of a trajectory's sandbox, which is made if it has none yet."""
        check_loop(self._loop)
        agent = self.orchestrator.home(trajectory)
        if agent is not None:
            return agent
        live = self._live(trajectory)
        if live.making is None:
            live.making = self._make_sandbox(live.opening)
            live.making.ended.add_done_callback(lambda _: setattr(live, "making", None))
        result = await asyncio.shield(live.making.ended)
        agent = self.orchestrator.home(trajectory)
        if agent is None and result.outcome is Outcome.REFUSED:
            raise BadInput("trajectory", result.reason, "open it with what this cluster has")
        if agent is None:
            raise SandboxGone(f"{trajectory} got no sandbox: {result.reason}")
        return agent

    def _make_sandbox(self, opening: Opening) -> Receipt:
        action = Action(
            id=ActionId(self._new_id()),
            kind=OPEN_KIND,
            needs=_ONE_CORE,
            job=opening.job,
            task=opening.task,
            problem=opening.problem,
            trajectory=opening.trajectory,
            repeatable=True,
        )
        return self.orchestrator.submit(Submission(action=action, command=None))
