"""Agents and carriers in a simulated world: what starts there takes as long as the simulator says.

One world for all nodes of a cluster and all calls, on a virtual clock. It knows the truth about
every action; the orchestrator that uses it only knows what it was told.
"""

import asyncio
from typing import Protocol
from uuid import uuid4

from artangram.core.errors import CallFailed
from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.core.scheduling.lease import Cores, Lease
from artangram.functions.function import FunctionRunner
from artangram.managers.agent import (
    Listener,
    NodeInventory,
    Population,
    Run,
    RunId,
    RunResult,
    SnapshotArchives,
)
from artangram.managers.call import Call, CallResult
from artangram.managers.calls import CallProgress
from artangram.managers.cpu import cores_of
from artangram.managers.examination import NodeExamination
from artangram.observe.trace import TraceAction
from artangram.orchestrator.driver import Clock, Timer
from artangram.sandbox.errors import SandboxGone
from artangram.sandbox.offers import ProviderOffer
from artangram.sandbox.process import ProcessInput
from artangram.sandbox.protocol import MAX_READ_BYTES, Snapshot
from artangram.sandbox.snapshot import HELD, SnapshotInfo, SnapshotTerms
from artangram.sim.machine import Machine


class EndListener(Protocol):
    """Hears that something is over."""

    def tell(self, ended: RunResult) -> None: ...


class World:
    """Everything that runs, and when it ends."""

    def __init__(self, cluster: ClusterSpec, clock: Clock) -> None:
        self.truth: dict[ActionId, TraceAction] = {}
        """What every action really is; to be filled before it is submitted."""
        self.clock = clock
        self.machine = Machine(cluster)
        self.tellers: dict[ActionId, EndListener] = {}
        self._timer: Timer | None = None

    def start(self, lease: Lease, teller: EndListener) -> float:
        """Begin what `lease` allows; returns when its program begins."""
        action_id = lease.action_id
        self.tellers[action_id] = teller
        run = self.machine.start(self.truth[action_id], lease, self.clock.now())
        self.wait_for_next()
        return run.began_at

    def stop(self, action_id: ActionId) -> RunResult:
        """End it early."""
        run = self.machine.stop(action_id, self.clock.now())
        del self.tellers[action_id]
        self.wait_for_next()
        run_id = RunId(action_id, run.attempt)
        return RunResult(run=run_id, outcome=Outcome.CANCELLED, began_at=run.began_at)

    def wait_for_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = self.machine.next_at()
        self._timer = None if at is None else self.clock.call_at(at, self._on_end)

    def _on_end(self) -> None:
        self._timer = None
        for end in self.machine.ended(self.clock.now()):
            run = RunId(end.run.action_id, end.run.attempt)
            ended = RunResult(run=run, outcome=end.outcome, began_at=end.run.began_at)
            self.tellers.pop(run.action_id).tell(ended)
        self.wait_for_next()


class PhysicsAgent:
    """See `managers.agent.NodeAgent`. It has no files."""

    def __init__(self, node: NodeId, world: World) -> None:
        self.node = node
        self.offers: tuple[ProviderOffer, ...] = ()
        self.functions: FunctionRunner | None = None
        self._world = world
        self._listener: Listener | None = None
        self._incarnation = uuid4().hex
        #: Of its node; every lease names it.
        self._pool = Resource("")

    def __repr__(self) -> str:
        return f"<PhysicsAgent {self.node}>"

    def tell(self, ended: RunResult) -> None:
        """A run of this node is over."""
        assert self._listener is not None
        self._listener.on_ended(self.node, ended)

    async def attach(self, listener: Listener) -> NodeInventory:
        self._listener = listener
        return NodeInventory(incarnation=self._incarnation)

    async def ping(self) -> Population:
        return Population()

    async def examine(self, data: bytes = b"") -> NodeExamination:
        raise SandboxGone("there is no machine here")

    def start(self, run: Run) -> None:
        cores = cores_of(run.lease)
        assert cores is not None, f"{run.lease} has no cores"
        self._pool = cores.resource
        self._world.start(run.lease, self)

    def resize(self, action_id: ActionId, cores: tuple[int, ...], *, pace: float = 1.0) -> None:
        allocation = Cores(self._pool, self.node, cores)
        self._world.machine.resize(action_id, allocation, self._world.clock.now(), pace=pace)
        self._world.wait_for_next()

    def stop(self, action_id: ActionId) -> None:
        self.tell(self._world.stop(action_id))

    def acknowledge(self, run: RunId) -> None:
        return

    async def read(
        self, trajectory: TrajectoryId, path: str, *, max_bytes: int = MAX_READ_BYTES
    ) -> bytes:
        raise SandboxGone("there are no files here")

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None:
        raise SandboxGone("there are no files here")

    async def feed(self, action_id: ActionId, given: ProcessInput) -> None:
        raise SandboxGone("there are no processes here")

    async def signal(self, action_id: ActionId, number: int) -> None:
        raise SandboxGone("there are no processes here")

    async def snapshot(self, trajectory: TrajectoryId, terms: SnapshotTerms = HELD) -> Snapshot:
        raise SandboxGone("there are no files here")

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        return ()

    async def forget(self, snapshot: Snapshot) -> bool:
        return False

    @property
    def archives(self) -> SnapshotArchives:
        raise SandboxGone("there are no files here")

    async def close(self, trajectory: TrajectoryId) -> None:
        return

    async def aclose(self) -> None:
        return


class PhysicsCarrier:
    """See `managers.calls.Carrier`. Every call answers when the world says so, and says no more
    than the tokens it used, if it used any."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def carry_out(self, lease: Lease, call: Call, *, progress: CallProgress) -> CallResult:
        over = _Over()
        began_at = self._world.start(lease, over)
        self._world.clock.call_at(began_at, progress.began)
        try:
            ended = await over.future
        except asyncio.CancelledError:
            self._world.stop(lease.action_id)
            raise
        if ended.outcome is not Outcome.SUCCEEDED:
            raise CallFailed("")
        tokens = self._world.truth[lease.action_id].tokens
        body = b"" if tokens is None else b'{"usage": {"total_tokens": %d}}' % tokens
        return CallResult(body=body)

    async def aclose(self) -> None:
        return


class _Over:
    """Tells a carrier that its call is over."""

    def __init__(self) -> None:
        self.future: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()

    def tell(self, ended: RunResult) -> None:
        self.future.set_result(ended)
