"""The live orchestrator, as its callers see it.

- What `written` confirmed is not forgotten, whatever dies; it ends exactly once.
- Everything asked for at one instant is decided together; see `driver`.
- Beyond `Bounds.max_queued` waiting actions a submission is refused at once, never kept hanging;
  no job alone can fill the queue.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import checked
from artangram.core.scheduling.cluster import ClusterSpec, ServiceSpec
from artangram.core.scheduling.events import (
    Cancelled,
    ServiceDeployed,
    ServiceLost,
    Submitted,
    Throttled,
    TrajectoryClosed,
)
from artangram.core.scheduling.explain import Explanation
from artangram.core.scheduling.lease import Devices
from artangram.managers.agent import AgentGone, NodeAgent, OnPrinted
from artangram.managers.calls import Carrier
from artangram.managers.cpu import CpuManager
from artangram.observe.journal import Journal, KeptRecord, Past
from artangram.orchestrator.catalog import Catalog
from artangram.orchestrator.driver import COMPACT_EVERY, Clock, Driver
from artangram.orchestrator.executor import LiveExecutor
from artangram.orchestrator.heartbeats import FORMER, SILENCE_S, Heartbeats
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.live import LiveTrajectory, Phase, Promise
from artangram.orchestrator.promises import Promises
from artangram.orchestrator.reconfigure import Reconfiguration, carry_out, check_same, event_of
from artangram.orchestrator.records import (
    ActionResult,
    Broken,
    ClusterStatus,
    DeployedService,
    Draining,
    Opening,
    Queueing,
    Receipt,
    Submission,
    decode_result,
    decode_submission,
    encoded,
)
from artangram.orchestrator.recovery import Setup, deployed_in, restored, since
from artangram.orchestrator.replacing import NewAgent
from artangram.orchestrator.status import cluster_status
from artangram.services.service import Service


class Bounds(Struct, frozen=True, kw_only=True):
    """How much an orchestrator takes on."""

    max_queued: int = 100_000
    """Waiting actions. Each costs some kilobytes; beyond this many a caller must slow down."""
    compact_every: int = COMPACT_EVERY
    owner_silence_s: float = SILENCE_S
    """A trajectory is closed when its owner has sent no heartbeat for this long."""


class Orchestrator:
    """Callers on one side, node agents on the other, the scheduler between. Call `begin` first."""

    def __init__(
        self,
        setup: Setup,
        *,
        manager: CpuManager,
        journal: Journal,
        clock: Clock,
        past: Past | None = None,
        bounds: Bounds | None = None,
        carriers: Mapping[type, Carrier] | None = None,
        new_agent: NewAgent | None = None,
    ) -> None:
        self.setup = setup
        self.bounds = bounds or Bounds()
        self._past = past
        self._carriers = carriers or {}
        life = restored(past, setup)
        #: One record for everything that is alive.
        self.ledger: Ledger = life.ledger
        self.executor = LiveExecutor(
            manager,
            life.ledger,
            pools=setup.nodes(),
            now=clock.now,
            carriers=self._carriers,
            new_agent=new_agent,
        )
        self._is_anew, self.journal = life.is_anew, journal
        self._driver = Driver(
            life,
            journal=journal,
            clock=clock,
            executor=self.executor,
            callers=self,
            compact_every=self.bounds.compact_every,
        )
        self._heartbeats = Heartbeats(
            clock, silence_s=self.bounds.owner_silence_s, on_gone=self._abandon
        )
        self._promises = Promises(self._driver)
        #: What its cluster file says that cannot change while it runs; `None` without a file.
        self.described: dict[str, str] | None = None
        self._num_abandoned = 0
        self._began_at = self._driver.now()
        self.catalog = Catalog(setup.cluster)
        self.on_ended: Callable[[ActionResult], None] = lambda result: None
        """Called with every result, when the journal has it."""
        self.on_broken: Callable[[], None] = lambda: None
        self._refusal: Exception | None = None
        self._idle = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Orchestrator {self.setup.policy}: {self.ledger!r}>"

    @property
    def nodes(self) -> dict[NodeId, NodeAgent]:
        """The agents that are there."""
        return self.executor.manager.agents

    @property
    def cluster(self) -> ClusterSpec:
        return self._driver.scheduler.cluster

    async def begin(self) -> None:
        """Attach to the agents; after a restart, make true what the journal says."""
        for deployed in deployed_in(self._past):
            self.catalog.services[deployed.service.id] = deployed.spec
            self._driver.lasting.add(f"service:{deployed.service.id}")
        if self._is_anew:
            # Before any entry: what follows is decided by this setup.
            self._driver.compact(self.now(), owner=self.setup.encoded())
        await self.executor.attach(self._driver.post, self._past, self._driver.scheduler)
        if self._past is not None and not self._past.is_empty:
            for event in since(self._driver.scheduler, self.setup.cluster):
                self._driver.post(event)
            # The last process asked for a tick that died with it; a needless one costs nothing.
            self._driver.wake_at(self.now())
        self._past = None
        for live in self.ledger.open_trajectories():
            if not live.is_closed:
                self._heartbeats.keep(live, live.opening.owner or FORMER)

    def check_alive(self) -> None:
        """Raise the reason if nothing is decided any more: a caller would wait for ever."""
        if self._driver.is_closed:
            self._check_open()

    def now(self) -> float:
        """Unix time; deadlines are on this clock."""
        return self._driver.now()

    def open(self, opening: Opening) -> Promise:
        """Begin a trajectory. The future is done when it will not be forgotten."""
        self._check_open()
        trajectory = opening.trajectory
        if trajectory in self.ledger.trajectories:
            raise BadInput("trajectory", f"{trajectory!r} is already open", "use a new id")
        kept = KeptRecord(id=f"trajectory:{trajectory}", body=encoded(opening))
        live = self.ledger.open(opening)
        if opening.owner:
            self._heartbeats.keep(live, opening.owner)
        return self._promises.post(opening.event(), kept=kept)

    def close(self, trajectory: TrajectoryId) -> Promise:
        """End a trajectory: what it has waiting or running is cancelled, its sandbox goes.

        The future is done when nothing of it is left.
        """
        self.check_alive()
        live = self.ledger.trajectories.get(trajectory)
        if live is None:
            gone: Promise = asyncio.Future()
            gone.set_result(None)
            return gone
        if live.closing is None:
            live.closing = asyncio.Future()
            self._heartbeats.forget(live)
            if not live.is_closed and live.phase is not Phase.OVER:
                self._driver.post(TrajectoryClosed(trajectory))
        return live.closing

    def close_job(self, job: JobId) -> list[Promise]:
        """End every trajectory of a job."""
        ours = [live.id for live in self.ledger.open_trajectories() if live.opening.job == job]
        return [self.close(name) for name in ours]

    def submit(self, submission: Submission) -> Receipt:
        """Take an action on. Raises `Refused` or `BadInput`; then nothing has happened."""
        action, kept = checked(submission.action), None
        if self._driver.keeps(submission):
            body = encoded(submission)
            kept = KeptRecord(id=f"action:{action.id}", key=submission.key, body=body)
        known = self.known(submission)
        if known is not None:
            return known
        if self._refusal is not None:
            raise self._refusal
        ledger = self.ledger
        self._driver.check_room()
        ledger.queue.admit(action.job, self.bounds.max_queued)
        if action.id in ledger.actions:
            raise BadInput("id", f"{action.id!r} is already known", "give every action its own id")
        live = ledger.submit(submission)
        if action.trajectory is not None:
            trajectory = ledger.trajectories.get(action.trajectory)
            if trajectory is not None and trajectory.owner is not None:
                self._heartbeats.hear(trajectory.owner)
        self._driver.post(Submitted(action), kept=kept)
        return live.receipt()

    def written(self) -> Promise:
        """Done when nothing that was submitted so far will be forgotten."""
        self.check_alive()
        return self._promises.post(None)

    def heard(self, owner: str) -> dict[TrajectoryId, Queueing]:
        """A heartbeat of `owner`; returns how long the actions of its trajectories have waited."""
        now, theirs = self.now(), self._heartbeats.heard(owner)
        return {live.id: live.queueing(now) for live in theirs if live.phase is Phase.ALIVE}

    def watch(self, action_id: ActionId, on_output: OnPrinted) -> None:
        """Call back with what an action prints. To be called right after `submit`."""
        live = self.ledger.actions.get(action_id)
        if live is not None and live.on_output is None:
            live.on_output = on_output

    def cancel(self, action_id: ActionId, *, reason: str = "the caller cancelled it") -> None:
        """Stop an action; nothing happens if it has ended."""
        live = self.ledger.actions.get(action_id)
        if live is not None and live.phase is not Phase.OVER:
            self._driver.post(Cancelled(action_id, reason))

    def receipt(self, action_id: ActionId) -> Receipt:
        """Ask again for an action that was submitted before. `KeyError` if it is unknown."""
        live = self.ledger.actions.get(action_id)
        if live is not None:
            self.check_alive()
            return live.receipt()
        body = self._driver.journal.settled(f"action:{action_id}")
        if body is None:
            raise KeyError(action_id)
        ended: asyncio.Future[ActionResult] = asyncio.Future()
        ended.set_result(decode_result(body))
        return Receipt(action_id=action_id, ended=ended)

    def service_lost(self, lost: Devices) -> None:
        """A resident service died; its devices are empty."""
        event = ServiceLost(lost.resource, lost.node, lost.first, lost.degree, lost.service)
        self._driver.post(event)

    def drain_node(self, node: NodeId, *, is_on: bool = True) -> Promise:
        """Send a node no new trajectories, and let it go when it is empty; or undo that."""
        self.executor.drain(node, is_on=is_on)
        return self._promises.post(None)

    def reconfigure(self, wanted: Reconfiguration) -> Promise:
        """Change shares, limits, ceilings or quotas. Raises `BadInput` and changes nothing."""
        self._check_open()
        if wanted.fixed is not None and self.described is not None:
            check_same(wanted.fixed, self.described)
        event = event_of(wanted, self.cluster, self._carriers)
        return self._promises.post(event, then=partial(carry_out, wanted, self._carriers))

    def throttled(self, api: Resource, *, until: float) -> None:
        """An API said that it takes no call before `until`."""
        self._driver.post(Throttled(api, until))

    def deploy(self, service: Service, spec: ServiceSpec) -> None:
        """From now on `service` can be called. Raises `BadInput` if its name is taken."""
        if service.id in self.catalog.services:
            raise BadInput("service", f"{service.id!r} is already deployed", "use another name")
        body = encoded(DeployedService(service=service, spec=spec))
        kept = KeptRecord(id=f"service:{service.id}", body=body)
        self.catalog.services[service.id] = spec
        self._driver.lasting.add(kept.id)
        self._driver.post(ServiceDeployed(service.id, spec), kept=kept)

    def explain(self, action_id: ActionId) -> Explanation:
        """Why an action waits. `KeyError` if it is unknown or has ended."""
        return self._driver.scheduler.explain(action_id, self.now())

    def queueing(self, trajectory: TrajectoryId) -> Queueing:
        """How long its actions have waited. `KeyError` if it is not open."""
        live = self.ledger.trajectory(trajectory)
        if live is None:
            raise KeyError(trajectory)
        return live.queueing(self.now())

    def status(self) -> ClusterStatus:
        """One look at everything that is known here; agents are not asked."""
        return cluster_status(
            self.ledger,
            self._carriers,
            nodes=self.nodes,
            node_books=self._driver.scheduler.nodes(),
            policy=self.setup.policy,
            abandoned=self._num_abandoned,
            began_at=self._began_at,
            is_draining=self._refusal is not None,
            now=self.now(),
            cluster=self.setup.cluster,
            warning=self.journal.warning,
        )

    def home(self, trajectory: TrajectoryId) -> NodeAgent | None:
        """Where the sandbox of `trajectory` is; `None` if it has none yet."""
        live = self.ledger.trajectory(trajectory)
        if live is None or live.node is None or not live.has_files:
            return None
        if live.node not in self.nodes:
            raise AgentGone(f"{live.node} was lost, and the sandbox of {trajectory} with it")
        return self.nodes[live.node]

    async def drain(self, grace_s: float) -> None:
        """Take nothing more; wait for what there is, and cancel what is left after `grace_s`."""
        self._refusal = self._refusal or Draining("shutting down; no new work is accepted")
        try:
            async with asyncio.timeout(grace_s):
                await self._until_idle()
        except TimeoutError:
            for action_id in list(self.ledger.actions):
                self.cancel(action_id, reason=f"it still ran {grace_s:g} s after the drain began")
            await self._until_idle()
        if not any(True for _ in self.ledger.open_trajectories()):
            # The next process, with another setup or version, needs nothing of what was.
            self._driver.compact(self.now())

    async def aclose(self) -> None:
        """Stop deciding, and tell waiting callers. The opener closes agents and journal."""
        self._refusal = self._refusal or Draining("this cluster is closed; open another one")
        self._driver.close()
        self._heartbeats.close()
        await self.executor.aclose()
        self._fail(self._refusal)

    def deliver(self, result: ActionResult) -> None:
        """For the driver: the journal has a result, and its callers have it."""
        self.on_ended(result)
        if self._refusal is not None:  # Only a drain waits for this.
            self._idle.set()

    def fail(self, error: Exception) -> None:
        """For the driver: nothing can be written or decided any more."""
        self._refusal = Broken(str(error))
        self._fail(self._refusal)
        self._idle.set()
        self.on_broken()

    def _fail(self, error: Exception) -> None:
        self.ledger.fail(error)
        self._promises.fail(error)

    def _abandon(self, trajectories: list[LiveTrajectory]) -> None:
        """Close what their owners left, unless a caller still waits for an action there."""
        for live in trajectories:
            if self._driver.is_closed or live.phase is Phase.OVER:
                continue
            if any(action.is_awaited for action in live.actions):
                self._heartbeats.keep(live, live.opening.owner or FORMER)
            else:
                self._num_abandoned += 1
                self.close(live.id)

    async def _until_idle(self) -> None:
        while self.ledger.actions and not self._driver.is_closed:
            self._idle.clear()
            await self._idle.wait()

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def by_key(self, key: str) -> Submission | None:
        """What was submitted with this key; `None` if it is new."""
        live = self.ledger.keys.get(key)
        if live is not None:
            return live.submission
        kept = self._driver.journal.kept(key)
        return None if kept is None else decode_submission(kept.body)

    def known(self, wanted: Submission) -> Receipt | None:
        """For a caller that asks again; `None` if the key is new. Raises `BadInput` if taken."""
        before = None if wanted.key is None else self.by_key(wanted.key)
        if before is None:
            return None
        before.check_same(wanted)
        return self.receipt(before.action.id)
