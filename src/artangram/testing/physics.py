"""Node agents in a simulated world: what is started there takes as long as the simulator says.

One world for all nodes of a cluster, on a virtual clock. It knows the truth about every action;
the orchestrator that uses it only knows what it was told.
"""

from uuid import uuid4

from artangram.core.cluster import ClusterSpec
from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.lease import Cores
from artangram.core.records import Outcome
from artangram.managers.agent import Ended, Inventory, Listener, Run, RunId
from artangram.observe.trace import TraceAction
from artangram.orchestrator.clock import Clock, Timer
from artangram.sandbox.errors import SandboxGone
from artangram.sandbox.protocol import MAX_READ_BYTES, Snapshot
from artangram.sim.machine import Machine


class World:
    """Everything that runs, and when it ends."""

    def __init__(self, cluster: ClusterSpec, clock: Clock) -> None:
        self.truth: dict[ActionId, TraceAction] = {}
        """What every action really is; to be filled before it is submitted."""
        self.clock = clock
        self.machine = Machine(cluster)
        self.agents: dict[ActionId, PhysicsAgent] = {}
        self._timer: Timer | None = None

    def start(self, run: Run, agent: "PhysicsAgent") -> None:
        action_id = run.lease.action_id
        self.agents[action_id] = agent
        self.machine.start(self.truth[action_id], run.lease, self.clock.now())
        self.wait_for_next()

    def wait_for_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = self.machine.next_at()
        self._timer = None if at is None else self.clock.call_at(at, self._on_end)

    def _on_end(self) -> None:
        self._timer = None
        for end in self.machine.ended(self.clock.now()):
            run = RunId(end.run.action_id, end.run.attempt)
            ended = Ended(run=run, outcome=end.outcome, began_at=end.run.began_at)
            self.agents.pop(run.action_id).tell(ended)
        self.wait_for_next()


class PhysicsAgent:
    """See `managers.agent.NodeAgent`. It has no files."""

    def __init__(self, node: NodeId, world: World) -> None:
        self.node = node
        self._world = world
        self._listener: Listener | None = None
        self._incarnation = uuid4().hex

    def __repr__(self) -> str:
        return f"<PhysicsAgent {self.node}>"

    def tell(self, ended: Ended) -> None:
        """A run of this node is over."""
        assert self._listener is not None
        self._listener.on_ended(self.node, ended)

    async def attach(self, listener: Listener) -> Inventory:
        self._listener = listener
        return Inventory(incarnation=self._incarnation)

    async def ping(self) -> None:
        return

    def start(self, run: Run) -> None:
        self._world.start(run, self)

    def resize(self, action_id: ActionId, cores: tuple[int, ...]) -> None:
        resource = Resource(self.node.rpartition("-")[0])
        allocation = Cores(resource, self.node, cores)
        self._world.machine.resize(action_id, allocation, self._world.clock.now())
        self._world.wait_for_next()

    def stop(self, action_id: ActionId) -> None:
        run = self._world.machine.stop(action_id, self._world.clock.now())
        del self._world.agents[action_id]
        self._world.wait_for_next()
        run_id = RunId(action_id, run.attempt)
        self.tell(Ended(run=run_id, outcome=Outcome.CANCELLED, began_at=run.began_at))

    def acknowledge(self, run: RunId) -> None:
        return

    async def read(
        self, trajectory: TrajectoryId, path: str, *, max_bytes: int = MAX_READ_BYTES
    ) -> bytes:
        raise SandboxGone("there are no files here")

    async def write(self, trajectory: TrajectoryId, path: str, *, data: bytes) -> None:
        raise SandboxGone("there are no files here")

    async def snapshot(self, trajectory: TrajectoryId) -> Snapshot:
        raise SandboxGone("there are no files here")

    async def forget(self, snapshot: Snapshot) -> None:
        return

    async def close(self, trajectory: TrajectoryId) -> None:
        return

    async def aclose(self) -> None:
        return
