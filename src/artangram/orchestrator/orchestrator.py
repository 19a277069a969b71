"""The live orchestrator, as its callers see it.

- What `written` confirmed is not forgotten, whatever dies; it ends exactly once.
- Everything asked for at one instant is decided together; see `body`.
- Who submits more than `Bounds.max_queued` waiting actions is refused at once, never kept hanging.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import checked
from artangram.core.scheduling.cluster import GpuSpec, ServiceSpec, node_ids
from artangram.core.scheduling.events import (
    Cancelled,
    NodeJoined,
    NodeLost,
    ServiceDeployed,
    ServiceLost,
    Submitted,
    Throttled,
    TrajectoryClosed,
    TrajectoryOpened,
)
from artangram.core.scheduling.explain import Explanation
from artangram.core.scheduling.lease import Devices
from artangram.managers.agent import AgentGone, NodeAgent
from artangram.managers.calls import Carrier
from artangram.managers.cpu import CpuManager
from artangram.observe.journal import Journal, KeptRecord, Past
from artangram.orchestrator.catalog import Catalog
from artangram.orchestrator.clock import Clock
from artangram.orchestrator.driver import COMPACT_EVERY, Driver, RestoredLife
from artangram.orchestrator.executor import LiveExecutor, NewAgent
from artangram.orchestrator.heartbeats import FORMER, SILENCE_S, Heartbeats
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.records import (
    ActionResult,
    Broken,
    ClusterStatus,
    DeployedService,
    Draining,
    Opening,
    Overloaded,
    Queueing,
    Receipt,
    Submission,
    decode_result,
    encoded,
)
from artangram.orchestrator.recovery import Setup, deployed_in, restored
from artangram.orchestrator.status import Books
from artangram.orchestrator.waiters import Promise, Waiters
from artangram.sandbox.protocol import Output
from artangram.services.service import Service


class Bounds(Struct, frozen=True, kw_only=True):
    """How much an orchestrator takes on."""

    max_queued: int = 100_000
    """Waiting actions. Each costs some kilobytes; beyond this many a caller must slow down."""
    compact_every: int = COMPACT_EVERY
    owner_silence_s: float = SILENCE_S
    """A trajectory is closed when nothing was heard of its owner for so long."""


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
        self._waiters = Waiters()
        self._executor = LiveExecutor(
            manager, on_gone=self._waiters.gone, carriers=self._carriers, new_agent=new_agent
        )
        life = _life(setup, past)
        self._is_anew = life.is_anew
        self._body = Driver(
            life,
            journal=journal,
            clock=clock,
            executor=self._executor,
            callers=self,
            compact_every=self.bounds.compact_every,
        )
        #: What is alive; to look at.
        self.ledger: Ledger = self._body.ledger
        self._owners = Heartbeats(
            clock, silence_s=self.bounds.owner_silence_s, on_gone=self._abandon
        )
        self._num_abandoned = 0
        self._began_at = self._body.now()
        self.catalog = Catalog(setup.cluster)
        self.on_ended: Callable[[ActionResult], None] = lambda result: None
        """Hears of every ending that is written down."""
        self.on_broken: Callable[[], None] = lambda: None
        self._refusal: Exception | None = None
        self._idle = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Orchestrator {self.setup.policy}: {self.ledger!r}>"

    @property
    def nodes(self) -> dict[NodeId, NodeAgent]:
        """The agents that are there."""
        return self._executor.manager.agents

    async def begin(self) -> None:
        """Attach to the agents; after a restart, make true what the journal says."""
        for deployed in deployed_in(self._past):
            self.catalog.services[deployed.service.id] = deployed.spec
            self._body.lasting.add(f"service:{deployed.service.id}")
        if self._is_anew:
            # Before any entry: what follows is decided by this setup.
            self._body.compact(self.now(), owner=self.setup.encoded())
        for name, live in self.ledger.trajectories.items():
            if live.is_closed:
                # Before anything ends: until all of it is gone nobody may take its name.
                self._waiters.close(name)
        await self._executor.attach(self._body, self._past)
        if self._past is not None and not self._past.is_empty:
            self._empty_devices()
            # The tick that the last life asked for went with it; a needless one costs nothing.
            self._body.wake_at(self.now())
        self._past = None
        for name, live in self.ledger.trajectories.items():
            if not live.is_closed:
                self._owners.keep(name, live.opening.owner or FORMER)

    def check_alive(self) -> None:
        """Where nothing is decided any more nobody may wait: raises why."""
        if self._body.is_closed:
            self._check_open()

    def now(self) -> float:
        """Unix time; deadlines are on this clock."""
        return self._body.now()

    def open(self, opening: Opening) -> Promise:
        """Begin a trajectory. The future is done when it will not be forgotten."""
        self._check_open()
        trajectory = opening.trajectory
        is_leaving = (
            self._waiters.closing(trajectory) is not None or trajectory in self._executor.orphans
        )
        if is_leaving or self.ledger.has(trajectory):
            raise BadInput("trajectory", f"{trajectory!r} is already open", "use a new id")
        kept = KeptRecord(id=f"trajectory:{trajectory}", body=encoded(opening))
        self.ledger.expect(opening)
        if opening.owner:
            self._owners.keep(trajectory, opening.owner)
        opened = self._waiters.writing()
        self._body.post(
            TrajectoryOpened(trajectory, opening.booked_mb, opening.job),
            kept=kept,
            then=partial(self._waiters.written, opened),
        )
        return opened

    def close(self, trajectory: TrajectoryId) -> Promise:
        """End a trajectory: what it has waiting or running is cancelled, its sandbox goes.

        The future is done when nothing of it is left.
        """
        self.check_alive()
        gone = self._waiters.closing(trajectory)
        if gone is not None:
            return gone
        gone = self._waiters.close(trajectory)
        self._owners.forget(trajectory)
        if self.ledger.has(trajectory):
            self._body.post(TrajectoryClosed(trajectory))
        else:
            self._waiters.gone(trajectory)
        return gone

    def close_job(self, job: JobId) -> list[Promise]:
        """End every trajectory of a job."""
        trajectories = self.ledger.trajectories.items()
        ours = [name for name, live in trajectories if live.opening.job == job]
        return [self.close(name) for name in ours]

    def submit(self, submission: Submission) -> Receipt:
        """Take an action on. Raises `Refused` or `BadInput`; then nothing has happened."""
        action, kept = checked(submission.action), None
        if self._body.keeps(submission):
            body = encoded(submission)
            kept = KeptRecord(id=f"action:{action.id}", key=submission.key, body=body)
        known = self.by_key(submission.key) if submission.key is not None else None
        if known is not None:
            return known
        if self._refusal is not None:
            raise self._refusal
        ledger, most = self._body.ledger, self.bounds.max_queued
        if ledger.num_queued >= most:
            raise Overloaded(f"{most} actions wait already (max_queued); try again later")
        if ledger.knows(action.id):
            raise BadInput("id", f"{action.id!r} is already known", "give every action its own id")
        ledger.expect(submission)
        if action.trajectory is not None:
            self._owners.used(action.trajectory)
        receipt = self._waiters.expect(action.id, submission.key)
        self._body.post(Submitted(action), kept=kept)
        return receipt

    def written(self) -> Promise:
        """Done when nothing that was submitted so far will be forgotten."""
        self.check_alive()
        promise = self._waiters.writing()
        self._body.note(then=partial(self._waiters.written, promise))
        return promise

    def heard(self, owner: str) -> dict[TrajectoryId, Queueing]:
        """`owner` is alive; how long the actions of its trajectories have waited."""
        theirs = self._owners.heard(owner)
        return {name: self.queueing(name) for name in theirs if name in self.ledger.trajectories}

    def watch(self, action_id: ActionId, on_output: Callable[[Output], None]) -> None:
        """Call back with what an action prints. To be said right after `submit`."""
        if self.ledger.knows(action_id):
            self._executor.watch(action_id, on_output)

    def cancel(self, action_id: ActionId, *, reason: str = "the caller cancelled it") -> None:
        """Nobody wants it any more; nothing happens if it has ended."""
        if self.ledger.knows(action_id):
            self._body.post(Cancelled(action_id, reason))

    def receipt(self, action_id: ActionId) -> Receipt:
        """Ask again for an action that was submitted before. `KeyError` if it is unknown."""
        if self._body.is_undelivered(action_id):
            self.check_alive()
            return self._waiters.receipt(action_id)
        body = self._body.journal.settled(f"action:{action_id}")
        if body is None:
            raise KeyError(action_id)
        return self._waiters.settled(decode_result(body))

    def service_lost(self, lost: Devices) -> None:
        """A resident service died; its devices are empty."""
        event = ServiceLost(lost.resource, lost.node, lost.first, lost.degree, lost.service)
        self._body.post(event)

    def throttled(self, api: Resource, *, until: float) -> None:
        """An API said that it takes no call before `until`."""
        self._body.post(Throttled(api, until))

    def deploy(self, service: Service, spec: ServiceSpec) -> None:
        """From now on `service` can be called. Raises `BadInput` if its name is taken."""
        if service.id in self.catalog.services:
            raise BadInput("service", f"{service.id!r} is already deployed", "use another name")
        kept = KeptRecord(
            id=f"service:{service.id}", body=encoded(DeployedService(service=service, spec=spec))
        )
        self.catalog.services[service.id] = spec
        self._body.lasting.add(kept.id)
        self._body.post(ServiceDeployed(service.id, spec), kept=kept)

    def explain(self, action_id: ActionId) -> Explanation:
        """Why an action waits. `KeyError` if it is unknown or has ended."""
        return self._body.scheduler.explain(action_id, self.now())

    def queueing(self, trajectory: TrajectoryId) -> Queueing:
        """How long its actions have waited. `KeyError` if it is not open."""
        return self.ledger.queueing(trajectory, self.now())

    def status(self) -> ClusterStatus:
        """One look at everything that is known here; agents are not asked."""
        now, books = self.now(), Books(self.ledger.actions.values())
        services, restores = books.services(self._carriers)
        return ClusterStatus(
            policy=self.setup.policy,
            queued=self.ledger.num_queued,
            running=books.num_running,
            trajectories=len(self.ledger.trajectories),
            abandoned=self._num_abandoned,
            ended=self.ledger.num_ended,
            uptime_s=now - self._began_at,
            is_draining=self._refusal is not None,
            nodes=tuple(books.node(node) for node in self.nodes),
            waiting=books.waiting(now),
            services=services,
            restores=restores,
            functions=books.functions(self._carriers),
            apis=books.apis(self._carriers, now),
        )

    def home(self, trajectory: TrajectoryId) -> NodeAgent | None:
        """Where the sandbox of `trajectory` is; `None` if it has none yet."""
        live = self.ledger.trajectories.get(trajectory)
        if live is None or live.node is None or not live.has_files:
            return None
        if live.node not in self.nodes:
            raise AgentGone(f"{live.node}, where {trajectory} lived, is gone")
        return self.nodes[live.node]

    async def drain(self, grace_s: float) -> None:
        """Take nothing more; wait for what there is, and cancel what is left after `grace_s`."""
        self._refusal = self._refusal or Draining("it drains; submit to another one")
        try:
            async with asyncio.timeout(grace_s):
                await self._until_idle()
        except TimeoutError:
            for action_id in list(self.ledger.actions):
                self.cancel(action_id, reason=f"it was not done {grace_s:g} s into the drain")
            await self._until_idle()
        if not self.ledger.trajectories:
            # Whatever starts next, of another setup or version, needs nothing of what was.
            self._body.compact(self.now())

    async def aclose(self) -> None:
        """Stop deciding; who still waits is told. Agents and journal are their opener's."""
        self._refusal = self._refusal or Draining("it is closed; open another one")
        self._body.close()
        self._owners.close()
        await self._executor.close()
        self._waiters.fail(self._refusal)

    def deliver(self, result: ActionResult) -> None:
        """For the body: an ending is written down."""
        self._waiters.deliver(result)
        self.on_ended(result)
        if self._refusal is not None:  # Else nobody waits for that.
            self._idle.set()

    def fail(self, error: Exception) -> None:
        """For the body: nothing can be written or decided any more."""
        self._refusal = Broken(str(error))
        self._waiters.fail(self._refusal)
        self._idle.set()
        self.on_broken()

    def _abandon(self, trajectories: list[TrajectoryId]) -> None:
        """Their owners are gone; but somebody who waits for an action is a sign, too."""
        for name in trajectories:
            live = self.ledger.trajectories.get(name)
            if self._body.is_closed or live is None:
                continue
            if any(self._waiters.is_awaited(action_id) for action_id in live.actions):
                self._owners.keep(name, live.opening.owner or FORMER)
            else:
                self._num_abandoned += 1
                self.close(name)

    def _empty_devices(self) -> None:
        """Services live in this process: after a restart none is resident."""
        for resource, spec in self.setup.cluster.pools.items():
            if isinstance(spec, GpuSpec):
                for node in node_ids(resource, spec.nodes):
                    self._body.post(NodeLost(resource, node, "the orchestrator was restarted"))
                    self._body.post(NodeJoined(resource, node))

    async def _until_idle(self) -> None:
        while not (self._body.is_idle or self._body.is_closed):
            self._idle.clear()
            await self._idle.wait()

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def by_key(self, key: str) -> Receipt | None:
        """Ask again for the action that has this key; `None` if there was none."""
        action_id = self._waiters.live_key(key)
        if action_id is None:
            found = self._body.journal.id_of(key)
            if found is None:
                return None
            action_id = ActionId(found.removeprefix("action:"))
        return self.receipt(action_id)


def _life(setup: Setup, past: Past | None) -> RestoredLife:
    if past is None:
        return RestoredLife(scheduler=setup.scheduler(), ledger=Ledger())
    found = restored(past, setup)
    return RestoredLife(
        scheduler=found.scheduler,
        ledger=found.ledger,
        last_at=past.last_at,
        is_anew=found.is_anew,
    )
