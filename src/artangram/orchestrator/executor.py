"""The side of the orchestrator that touches nodes: carries decisions out, hears how runs end.

- Every lease that was started ends in one `Finished`, or with its node.
- What must not be done twice, an action with a key or a call that may not be repeated, starts when
  its start is written down: one that is asked for again is known by then.
- After a restart: what still runs is found again, what ended meanwhile is collected, what never
  arrived is started, what is gone with its agent ends with the node, and what nobody knows is
  ended; so is an agent that was given up before. What runs without a word in the journal is its
  action's next start, or ends with it. Calls live in this process, so they are made again where
  they may be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from artangram.aio import Background, uncancelled
from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.decisions import Resize, Start, Stop
from artangram.core.scheduling.events import Finished, NodeJoined, NodeLost
from artangram.core.scheduling.lease import Cores, Lease
from artangram.core.scheduling.records import ActionRecord, Outcome
from artangram.managers.agent import AgentGone, NodeAgent, NodeInventory, RunId, RunResult
from artangram.managers.calls import CallManager, Carrier
from artangram.managers.cpu import CpuManager, cores_of
from artangram.observe.journal import KeptRecord, Past
from artangram.orchestrator.driver import Driver
from artangram.orchestrator.ledger import LiveAction, LiveTrajectory
from artangram.orchestrator.records import ActionResult
from artangram.sandbox.errors import SandboxError
from artangram.sandbox.protocol import Output

NewAgent = Callable[[NodeId], Awaitable[NodeAgent]]
"""Gets an agent for a node whose agent is gone."""

REPLACE_AFTER_S = 0.5
"""Until a new agent is tried for again; doubled with every failure."""
REPLACE_AFTER_MOST_S = 30.0
"""What keeps agents from starting may pass, and without one a node is worth nothing."""


class LiveExecutor:
    """See `body.Hands`."""

    def __init__(
        self,
        manager: CpuManager,
        *,
        on_gone: Callable[[TrajectoryId], None],
        carriers: Mapping[type, Carrier] | None = None,
        new_agent: NewAgent | None = None,
    ) -> None:
        self.manager = manager
        self._calls = CallManager(
            carriers or {}, now=self._now, on_ended=lambda ended: self._on_end(ended)
        )
        self._on_gone = on_gone
        self._new_agent = new_agent
        #: How running actions ended, until their reports.
        self._ends: dict[ActionId, RunResult] = {}
        #: Who wants to see what an action prints; as many as such actions are alive.
        self._watchers: dict[ActionId, Callable[[Output], None]] = {}
        #: Nodes whose agents are gone and not there again.
        self._replacing: set[NodeId] = set()
        #: Found on nodes after a restart, started by the last life before it was written down;
        #: with their ends. Each stays until its action is started, or reported.
        self._ahead: dict[RunId, tuple[NodeId, RunResult | None]] = {}
        #: Found after a restart, unknown here, and not quite gone: nobody may take their names.
        self.orphans: set[TrajectoryId] = set()
        #: Decisions about actions whose start is still to be written down.
        self._held: dict[ActionId, list[Start | Resize | Stop]] = {}
        self._is_attached = False
        self._background = Background(self._on_error)

    async def attach(self, body: Driver, past: Past | None) -> None:
        """Begin to hear the agents, and make true what the journal says."""
        self._body = body
        for node, agent in list(self.manager.agents.items()):
            try:
                found = await agent.attach(self)
            except AgentGone as error:
                self.on_lost(node, str(error))
            else:
                self._take_up(node, found, past)
        if past is not None:
            self._end_calls()
        self._is_attached = True

    async def close(self) -> None:
        """Hear nothing more; calls end."""
        await self._calls.aclose()
        await self._background.close()

    def perform(self, decision: Start | Resize | Stop) -> None:
        """Carry a decision out, in the order of those about its action."""
        if not self._body.journal.is_lasting:
            self._perform(decision)
            return
        action_id = decision.lease.action_id if isinstance(decision, Start) else decision.action_id
        held = self._held.get(action_id)
        if held is not None:
            held.append(decision)
        elif isinstance(decision, Start) and self._is_first_written(action_id):
            self._held[action_id] = [decision]
            self._body.once_written(partial(self._release, action_id))
        else:
            self._perform(decision)

    def _is_first_written(self, action_id: ActionId) -> bool:
        submission = self._body.ledger.actions[action_id].submission
        is_delicate = submission.call is not None and not submission.action.repeatable
        return is_delicate or submission.key is not None

    def _release(self, action_id: ActionId) -> None:
        """Its start is written down."""
        is_current = False
        for decision in self._held.pop(action_id):
            live = self._body.ledger.actions.get(action_id)
            if live is None or live.lease is None:
                return  # It was lost with its node meanwhile,
            cores = cores_of(live.lease)
            if cores is not None and cores.node not in self.manager.agents:
                return  # or is about to be.
            if isinstance(decision, Start):
                is_current = decision.lease.attempt == live.lease.attempt
            if is_current:  # Else it is about an attempt that was lost.
                self._perform(decision)

    def _perform(self, decision: Start | Resize | Stop) -> None:
        match decision:
            case Start(lease):
                self._start(self._body.ledger.actions[lease.action_id])
            case Resize(action_id, cores, pace):
                self.manager.resize(action_id, cores, pace=pace)
            case Stop(action_id):
                live = self._body.ledger.actions.get(action_id)
                if live is not None:  # Else its node was lost at the same instant.
                    self._stop(live)

    def result_of(self, live: LiveAction, record: ActionRecord) -> ActionResult:
        """An action was reported: the report and what its program left."""
        ended = self._ends.pop(record.action_id, None)
        self._watchers.pop(record.action_id, None)
        self.manager.ended(record.action_id)
        if self._ahead:
            self._drop_ahead(record.action_id)
        if ended is None:
            return ActionResult(record=record, core_s=live.core_s)
        return ActionResult(
            record=record, command=ended.result, answer=ended.answer, core_s=live.core_s
        )

    def let_go(self, trajectory: LiveTrajectory) -> None:
        """A closed trajectory has nothing left to run, as is written down: its sandbox goes."""
        self._background.start(self._let_go(trajectory))

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        """For agents: see `agent.Listener`."""
        if ended.run in self._ahead:
            self._ahead[ended.run] = (node, ended)
            return
        known = self._ends.get(ended.run.action_id)
        if known is not None and known.run == ended.run:
            return  # Told twice: once as it happened, once on attaching.
        self._on_end(ended, then=partial(self._acknowledge, node, ended.run))

    def _on_end(self, ended: RunResult, *, then: Callable[[], None] | None = None) -> None:
        action_id = ended.run.action_id
        live = self._body.ledger.actions.get(action_id)
        if live is None or live.lease is None or live.lease.attempt != ended.run.attempt:
            self._body.note(then=then)  # Late: it was given up, or nobody knows it.
            return
        self._ends[action_id] = ended
        began_at = ended.began_at
        if began_at is not None and began_at < live.started_at:
            began_at = live.started_at  # By the clock of a node, it began before it was told to.
        is_stopped = ended.outcome is Outcome.CANCELLED
        reason = live.stop_reason if is_stopped else ended.reason
        finished = Finished(
            action_id, ended.outcome, began_at, reason, ended.run.attempt, ended.turned_away
        )
        if self._is_attached:
            self._body.post_end(finished, then=then)
        else:  # More is to be told before anything can be decided.
            self._body.post(finished, then=then)

    def watch(self, action_id: ActionId, on_output: Callable[[Output], None]) -> None:
        """Call back with what an action prints, until its end; said before it starts."""
        self._watchers.setdefault(action_id, on_output)

    def on_output(self, run: RunId, output: Output) -> None:
        """For agents: see `agent.Listener`."""
        on_output = self._watchers.get(run.action_id)
        if on_output is not None:
            on_output(output)

    def on_lost(self, node: NodeId, reason: str) -> None:
        """For agents: see `agent.Listener`."""
        lost = self.manager.agents.pop(node, None)
        self._ahead = {run: found for run, found in self._ahead.items() if found[0] != node}
        for live in self._body.ledger.actions.values():
            cores = cores_of(live.lease) if live.lease is not None else None
            if live.submission.call is not None and cores is not None and cores.node == node:
                self._stop(live)  # It ran elsewhere, but its right to run is gone.
        self._body.post(NodeLost(_resource(node), node, f"{node} was lost: {reason}"))
        if lost is None or self._new_agent is None or node in self._replacing:
            return
        self._replacing.add(node)
        self._background.start(self._replace(node, lost, self._new_agent))

    async def _replace(self, node: NodeId, lost: NodeAgent, new_agent: NewAgent) -> None:
        await uncancelled(lost.aclose())  # Nobody else knows of it any more.
        pause_s = REPLACE_AFTER_S
        while (found := await self._found_on_new(node, new_agent)) is None:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, REPLACE_AFTER_MOST_S)
        self._replacing.discard(node)
        self._body.note(KeptRecord(id=_name(node, found), body=b""))
        self._body.post(NodeJoined(_resource(node), node))

    async def _found_on_new(self, node: NodeId, new_agent: NewAgent) -> NodeInventory | None:
        """What a new agent has; `None` if it could not be had or is lost already."""
        try:
            agent = self.manager.agents[node] = await new_agent(node)
        except (SandboxError, OSError) as error:
            self._on_error(error)
            return None
        try:
            found = await agent.attach(self)
            if self.manager.agents.get(node) is agent:
                return found
        except SandboxError as error:
            self._on_error(error)
        self.manager.agents.pop(node, None)
        await uncancelled(agent.aclose())
        return None

    def _acknowledge(self, node: NodeId, run: RunId) -> None:
        agent = self.manager.agents.get(node)
        if agent is not None:
            agent.acknowledge(run)

    def _start(self, live: LiveAction) -> None:
        lease, action = live.lease, live.action
        assert lease is not None, f"{action.id} has no lease"
        self._ends.pop(action.id, None)
        call = live.submission.call
        if call is not None:
            self._calls.start(lease, call, timeout_s=action.timeout_s)
            return
        trajectory = self._body.ledger.trajectory_of(live)
        if cores_of(lease) is None or trajectory is None:
            why = "nothing here runs an action without cores and a trajectory"
            self._body.post(Finished(action.id, Outcome.INFRA_FAILED, None, why, lease.attempt))
            return
        if self._ahead and self._is_ahead(lease):
            return
        self.manager.start(
            lease,
            action,
            place=trajectory.opening.place,
            command=live.submission.command,
            expects_files=trajectory.has_files and not action.repeatable,
            streams=action.id in self._watchers,
        )

    def _is_ahead(self, lease: Lease) -> bool:
        """Does or did it run already? Then this is its start, and its end is told."""
        run, cores = RunId(lease.action_id, lease.attempt), cores_of(lease)
        assert cores is not None, f"{lease} has no cores"
        node, ended = self._ahead.get(run, (None, None))
        if node is None or node != cores.node:
            return False
        del self._ahead[run]
        self.manager.adopt(lease)
        if ended is not None:
            self.on_ended(node, ended)
        elif isinstance(cores, Cores):
            self.manager.resize(lease.action_id, cores, pace=lease.pace)
        return True

    def _drop_ahead(self, action_id: ActionId) -> None:
        """Nobody wants any more what the last life started of it."""
        for run in [run for run in self._ahead if run.action_id == action_id]:
            node, ended = self._ahead.pop(run)
            if ended is not None:
                self._body.note(then=partial(self._acknowledge, node, run))
            elif node in self.manager.agents:
                self.manager.agents[node].stop(action_id)

    def _stop(self, live: LiveAction) -> None:
        if live.submission.call is None:
            self.manager.stop(live.action.id)
        elif live.lease is not None:
            self._calls.stop(RunId(live.action.id, live.lease.attempt))

    def _end_calls(self) -> None:
        """The calls of the life before ended with it; the core decides which are made again."""
        why = "the orchestrator was restarted during the call"
        for live in self._body.ledger.actions.values():
            if live.submission.call is not None and live.lease is not None:
                attempt = live.lease.attempt
                self._body.post(Finished(live.action.id, Outcome.INFRA_FAILED, None, why, attempt))

    def _now(self) -> float:
        return self._body.now()

    async def _let_go(self, trajectory: LiveTrajectory) -> None:
        name, node = trajectory.opening.trajectory, trajectory.node
        agent = self.manager.agents.get(node) if node is not None else None
        try:
            if agent is not None:
                await agent.close(name)
        except AgentGone:
            pass  # And the trajectory with it.
        finally:
            self._on_gone(name)

    def _take_up(self, node: NodeId, found: NodeInventory, past: Past | None) -> None:
        is_known = past is not None and _name(node, found) in past.kept
        if is_known and not self._body.scheduler.has_node(_resource(node), node):
            # What ran there was reported as lost, so it must not come back.
            self.on_lost(node, "it was given up before the orchestrator was restarted")
        else:
            self._reconcile(node, found, past)

    def _reconcile(self, node: NodeId, found: NodeInventory, past: Past | None) -> None:
        name = _name(node, found)
        is_known = past is not None and name in past.kept
        if is_known:
            self._body.lasting.add(name)
            self._reattach(node, found)
        else:
            self._body.note(KeptRecord(id=name, body=b""))
            if past is not None and not past.is_empty:
                why = "the orchestrator was restarted, and what ran on its node is gone"
                self._body.post(NodeLost(_resource(node), node, why))
                self._body.post(NodeJoined(_resource(node), node))
        self._look_ahead(node, found)
        for ended in found.ended:
            self.on_ended(node, ended)
        self._end_orphans(node, found)

    def _reattach(self, node: NodeId, found: NodeInventory) -> None:
        """The same agent as before: every lease there runs, has ended or never arrived."""
        there = {*found.running, *(ended.run for ended in found.ended)}
        for live in list(self._body.ledger.actions.values()):
            cores = cores_of(live.lease) if live.lease is not None else None
            if live.lease is None or cores is None or cores.node != node:
                continue
            if live.submission.call is not None:
                continue
            self.manager.adopt(live.lease)
            if RunId(live.action.id, live.lease.attempt) not in there:
                self._start(live)
            if live.stop_reason:  # It may have got lost on the way; twice is as good as once.
                self._stop(live)

    def _look_ahead(self, node: NodeId, found: NodeInventory) -> None:
        """Which of the runs found there were started, but not written down?"""
        for run in (*found.running, *(ended.run for ended in found.ended)):
            live = self._body.ledger.actions.get(run.action_id)
            if live is not None and (live.lease is None or live.lease.attempt < run.attempt):
                self._ahead[run] = (node, None)

    def _end_orphans(self, node: NodeId, found: NodeInventory) -> None:
        agent, ledger = self.manager.agents[node], self._body.ledger
        for run in found.running:
            if run.action_id not in ledger.actions:
                agent.stop(run.action_id)
        for trajectory in found.trajectories:
            live = ledger.trajectories.get(trajectory)
            if live is not None:
                live.node = live.node or node  # Its first start may not be written down.
            else:
                self.orphans.add(trajectory)
                self._background.start(self._end_orphan(agent, trajectory))

    async def _end_orphan(self, agent: NodeAgent, trajectory: TrajectoryId) -> None:
        try:
            await agent.close(trajectory)
        except AgentGone:
            pass  # And the trajectory with it.
        finally:
            self.orphans.discard(trajectory)

    def _on_error(self, error: BaseException) -> None:
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "a node is in trouble", "exception": error})


def _name(node: NodeId, found: NodeInventory) -> str:
    """Under which an agent is remembered, to know it again after a restart."""
    return f"agent:{node}:{found.incarnation}"


def _resource(node: NodeId) -> Resource:
    """The pool of a node: see `cluster.node_ids`."""
    return Resource(node.rpartition("-")[0])
