"""Carries decisions out on nodes and in calls, and posts how runs end.

- Every lease that was started ends in one `Finished`, or with its node.
- Everything that happens here goes to the driver through one callback, `PostEvent`.
- After a restart the executor finds what still runs, collects what ended meanwhile, starts what
  never arrived, ends what the journal does not know, and gives up agents that were given up before;
  what is gone with its agent ends with the node. A run without an entry in the journal becomes its
  action's next start, or ends with the action; until then nothing new starts beside it (see
  `leftovers`). Calls live in this process: the scheduler hears that they failed, and makes those
  again that may be repeated.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from artangram.aio import Background, uncancelled
from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, Resource, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.events import (
    Finished,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeSuspected,
    NodeTrusted,
    NodeUndrained,
    TrajectoryGone,
)
from artangram.core.scheduling.lease import Cores, CoreShare, Lease
from artangram.core.scheduling.scheduler import Scheduler
from artangram.managers.agent import AgentGone, NodeAgent, NodeInventory, RunId, RunResult
from artangram.managers.calls import CallManager, Carrier
from artangram.managers.cpu import CpuManager
from artangram.managers.joined import JoinedAgent
from artangram.observe.journal import KeptRecord, Past
from artangram.orchestrator.joinednodes import JoinedNode
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.leftovers import Leftovers
from artangram.orchestrator.live import FoundRun, LiveAction, LiveTrajectory, Phase
from artangram.orchestrator.posting import PostEvent
from artangram.orchestrator.records import Opening
from artangram.orchestrator.replacing import NewAgent, replaced
from artangram.orchestrator.travels import SnapshotTravels
from artangram.sandbox.process import ProcessBegan
from artangram.sandbox.protocol import Output


class LiveExecutor:
    """See `driver.Executor`."""

    def __init__(
        self,
        manager: CpuManager,
        ledger: Ledger,
        *,
        pools: dict[NodeId, Resource],
        now: Callable[[], float],
        carriers: Mapping[type, Carrier] | None = None,
        new_agent: NewAgent | None = None,
    ) -> None:
        """`pools` names the pool of every node that has an agent."""
        self.manager = manager
        self._ledger = ledger
        self._pools = pools
        self._calls = CallManager(carriers or {}, now=now, on_ended=self._on_end)
        self._new_agent = new_agent
        #: Nodes that joined by themselves: they come back by themselves, too.
        self._joined: set[NodeId] = set()
        #: Nodes whose agents are gone and not there again.
        self._replacing: set[NodeId] = set()
        self._leftovers = Leftovers()
        self.awaits_nodes = False
        """May nodes that joined before a restart come back? Said before `attach`."""
        self._is_attached = False
        self._background = Background(self._on_error)

    async def attach(self, post: PostEvent, past: Past | None, scheduler: Scheduler) -> None:
        """Begin to hear the agents, and make true what the journal says."""
        self._post = post
        self.scheduler = scheduler
        self.travels = SnapshotTravels(
            self.manager.agents,
            self._ledger,
            pools=self._pools,
            scheduler=scheduler,
            post=post,
            background=self._background,
        )
        for node, agent in list(self.manager.agents.items()):
            try:
                found = await agent.attach(self)
            except AgentGone as error:
                self.on_lost(node, str(error))
                continue
            is_known = past is not None and agent_name(node, found) in past.kept
            if is_known and not scheduler.has_node(self._pools[node], node):
                # What ran there was reported as lost, so it must not come back.
                self.on_lost(node, "it was given up before the orchestrator was restarted")
            else:
                self._reconcile(node, found, is_known=is_known, past=past)
        for resource, node in [(known.resource, known.id) for known in scheduler.nodes()]:
            if node not in self._pools and self.awaits_nodes:
                self._post(NodeSuspected(resource, node))
            elif node not in self._pools:
                why = f"the orchestrator was restarted without {node}"
                self._post(NodeLost(resource, node, why))
        if past is not None:
            self._end_calls()
        self._is_attached = True

    def add(self, agent: NodeAgent, node: JoinedNode) -> None:
        """An agent of another machine is there, or may come back."""
        self.manager.add(agent, node.cores)
        self._pools[agent.node] = node.pool
        self._joined.add(agent.node)

    def joined(self, agent: NodeAgent, node: JoinedNode, found: NodeInventory) -> None:
        """It is a new, empty node."""
        if self.manager.agents.get(agent.node) is agent:
            self.keep(agent_name(agent.node, found), node.encoded())
            self._post(NodeJoined(node.pool, agent.node, node.spec))

    def returned(self, agent: NodeAgent, node: JoinedNode, found: NodeInventory) -> None:
        """It was here before the orchestrator was restarted."""
        if self.manager.agents.get(agent.node) is agent:
            self.keep(agent_name(agent.node, found), node.encoded())
            self._settle(agent.node, found)
            self._reattach(agent.node, found)
            self.trust(agent.node)

    def suspect(self, node: NodeId) -> None:
        self._post(NodeSuspected(self._pools[node], node))

    def trust(self, node: NodeId) -> None:
        self._post(NodeTrusted(self._pools[node], node))

    async def aclose(self) -> None:
        """Hear nothing more; calls end."""
        await self._calls.aclose()
        await self._background.close()

    def start(self, live: LiveAction) -> None:
        action, lease, cores = live.action, live.lease, live.cores
        assert lease is not None, f"{action.id} has no lease"
        live.end = None
        call = live.submission.call
        if call is not None:
            live.call = self._calls.start(lease, call, timeout_s=action.timeout_s)
            return
        trajectory = live.trajectory
        if cores is None or trajectory is None:
            why = "a command needs cores and a trajectory; this cluster gave it none"
            self._post(Finished(action.id, Outcome.INFRA_FAILED, None, why, lease.attempt))
            return
        if live.found and self._is_found(live, lease, cores):
            return
        if cores.node in self._leftovers.runs:
            self._leftovers.wait(cores.node, live)
            return
        if live.snapshot is not None and self.travels.holds_back(live, cores.node, self):
            return
        self.manager.start(
            lease,
            action,
            place=trajectory.opening.place,
            command=live.submission.command,
            expects_files=live.expects_files,
            streams=live.on_output is not None,
        )

    def resize(self, live: LiveAction, cores: Cores, pace: float) -> None:
        self.manager.resize(live.action.id, cores, pace=pace)

    def stop(self, live: LiveAction) -> None:
        if live.call is not None:
            live.call.cancel()
        elif live.cores is not None:
            self.manager.stop(live.action.id, live.cores.node)

    def drop(self, live: LiveAction) -> None:
        for found in live.found:
            if found.ended is not None:
                self._post(None, then=partial(self._acknowledge, found.node, found.id))
            else:
                self.manager.stop(live.action.id, found.node)
        live.found = []

    def close(self, trajectory: LiveTrajectory) -> None:
        self._background.start(self._close(trajectory))

    async def _close(self, trajectory: LiveTrajectory) -> None:
        try:
            await self._close_sandbox(trajectory.id, trajectory.node)
        finally:
            self._post(TrajectoryGone(trajectory.id))
            self._ledger.gone(trajectory)

    async def _close_sandbox(self, name: TrajectoryId, node: NodeId | None) -> None:
        agent = self.manager.agents.get(node) if node is not None else None
        if agent is not None:
            with suppress(AgentGone):  # And the sandbox with it.
                await agent.close(name)

    def drain(self, node: NodeId, *, is_on: bool) -> None:
        """A node gets no new trajectories, or gets them again. `BadInput` if it is unknown."""
        there = {known.id for known in self.scheduler.nodes()}
        if node not in there & set(self._pools):
            known = ", ".join(sorted(there)) or "no node is left"
            raise BadInput("node", f"this cluster has no {node!r}", f"name one of: {known}")
        changed = NodeDraining if is_on else NodeUndrained
        self._post(changed(self._pools[node], node))

    def release(self, node: NodeId) -> None:
        self._background.start(self._released(node))

    async def _released(self, node: NodeId) -> None:
        if not await self.travels.may_leave(node):
            return  # It is not to leave any more, or gone.
        agent = self.manager.agents.pop(node, None)
        self._post(NodeLost(self._pools[node], node, f"{node} was drained"))
        if isinstance(agent, JoinedAgent):
            self._background.start(agent.dismiss())
        elif agent is not None:
            self._background.start(agent.aclose())

    def on_ended(self, node: NodeId, ended: RunResult) -> None:
        """For agents: see `agent.Listener`."""
        self._take_end(node, ended)
        if self._leftovers.runs:
            self._leftovers.settle(node, ended.run, self)

    def _take_end(self, node: NodeId, ended: RunResult) -> None:
        live = self._ledger.actions.get(ended.run.action_id)
        if live is not None:
            for found in live.found:
                if found.id == ended.run and found.node == node:
                    found.ended = ended
                    return
            if live.end is not None and live.end.run == ended.run:
                return  # Told twice: once as it happened, once on attaching.
        then = partial(self._acknowledge, node, ended.run)
        if live is not None and live.cores is not None and live.cores.node != node:
            self._post(None, then=then)  # Its lease is elsewhere.
        else:
            self._on_end(ended, then=then)

    def _on_end(self, ended: RunResult, *, then: Callable[[], None] | None = None) -> None:
        run = ended.run
        live = self._ledger.actions.get(run.action_id)
        if live is None or live.lease is None or live.lease.attempt != run.attempt:
            self._post(None, then=then)  # Late: the attempt was given up.
            return
        live.end, live.call = ended, None
        began_at = ended.began_at
        if began_at is not None and began_at < live.started_at:
            began_at = live.started_at  # By the clock of a node, it began before it was told to.
        reason = live.stop_reason if ended.outcome is Outcome.CANCELLED else ended.reason
        end = (run.action_id, ended.outcome, began_at, reason, run.attempt, ended.turned_away)
        finished = Finished(*end, live.tokens_used())
        # While agents are being attached, more is to come before anything can be decided.
        self._post(finished, then=then, at_once=self._is_attached)

    def on_output(self, run: RunId, output: Output | ProcessBegan) -> None:
        """For agents: see `agent.Listener`."""
        live = self._ledger.actions.get(run.action_id)
        if live is not None and live.on_output is not None:
            live.on_output(output)

    def on_lost(self, node: NodeId, reason: str) -> None:
        """For agents: see `agent.Listener`."""
        lost = self.manager.agents.pop(node, None)
        self._leftovers.lost(node)
        for live in self._ledger.actions.values():
            live.found = [found for found in live.found if found.node != node]
            if live.call is not None and live.is_on(node):
                live.call.cancel()  # It ran elsewhere, but the lease that allowed it is gone.
        self._post(NodeLost(self._pools[node], node, f"{node} was lost: {reason}"))
        if lost is None or self._new_agent is None or node in self._replacing | self._joined:
            return
        self._replacing.add(node)
        self._background.start(self._replace(node, lost, self._new_agent))

    async def _replace(self, node: NodeId, lost: NodeAgent, new_agent: NewAgent) -> None:
        await uncancelled(lost.aclose())  # Nothing else closes it any more.
        found = await replaced(
            node, new_agent, manager=self.manager, listener=self, on_error=self._on_error
        )
        self._replacing.discard(node)
        self.keep(agent_name(node, found))
        self._post(NodeJoined(self._pools[node], node))

    def _acknowledge(self, node: NodeId, run: RunId) -> None:
        agent = self.manager.agents.get(node)
        if agent is not None:
            agent.acknowledge(run)

    def _is_found(self, live: LiveAction, lease: Lease, cores: Cores | CoreShare) -> bool:
        """Does or did it run there already? Then that is its start, and its end is posted."""
        run = RunId(lease.action_id, lease.attempt)
        for found in live.found:
            if found.id == run and found.node == cores.node:
                live.found.remove(found)
                if found.ended is not None:
                    self.on_ended(found.node, found.ended)
                elif isinstance(cores, Cores):
                    self.manager.resize(lease.action_id, cores, pace=lease.pace)
                    self._leftovers.settle(found.node, run, self)
                return True
        return False

    def _end_calls(self) -> None:
        """The calls of the process before ended with it."""
        why = "the orchestrator was restarted during the call"
        for live in self._ledger.alive():
            if live.submission.call is not None and live.lease is not None:
                attempt = live.lease.attempt
                self._post(Finished(live.action.id, Outcome.INFRA_FAILED, None, why, attempt))

    def _reconcile(
        self, node: NodeId, found: NodeInventory, *, is_known: bool, past: Past | None
    ) -> None:
        self.keep(agent_name(node, found))
        if not is_known and past is not None and not past.is_empty:
            why = "the orchestrator was restarted, and what ran on its node is gone"
            self._post(NodeLost(self._pools[node], node, why))
            self._post(NodeJoined(self._pools[node], node))
        self._settle(node, found)
        if is_known:
            self._reattach(node, found)

    def keep(self, name: str, body: bytes = b"") -> None:
        """The next process is to know this agent again."""
        self._post(None, kept=KeptRecord(id=name, body=body))

    def _settle(self, node: NodeId, found: NodeInventory) -> None:
        """Hear what ended there, and end what the journal does not know."""
        for run in (*found.running, *(ended.run for ended in found.ended)):
            live = self._ledger.actions.get(run.action_id)
            if live is not None and (live.lease is None or live.lease.attempt < run.attempt):
                live.found.append(FoundRun(run, node))
        for run in found.running:
            if not self._is_known(node, run):
                self._leftovers.add(node, run)
        for ended in found.ended:
            self.on_ended(node, ended)
        self._end_orphans(node, found)
        for name in self.scheduler.leaving(self._pools[node], node):
            if name not in found.trajectories:  # It went before that was written down.
                self._post(TrajectoryGone(name))

    def _is_known(self, node: NodeId, run: RunId) -> bool:
        """Does the journal have the start of this run?"""
        live = self._ledger.actions.get(run.action_id)
        if live is None or live.lease is None or live.cores is None:
            return False
        return live.lease.attempt == run.attempt and live.cores.node == node

    def _reattach(self, node: NodeId, found: NodeInventory) -> None:
        """The same agent as before: every lease there runs, has ended or never arrived."""
        there = {*found.running, *(ended.run for ended in found.ended)}
        for live in self._ledger.alive():
            if live.lease is None or live.cores is None or live.cores.node != node:
                continue
            if live.submission.call is not None:
                continue
            if RunId(live.action.id, live.lease.attempt) not in there:
                self.start(live)
            if live.stop_reason:  # It may have got lost on the way; twice is as good as once.
                self.stop(live)

    def _end_orphans(self, node: NodeId, found: NodeInventory) -> None:
        """End what the journal does not know; its names are taken until it is gone."""
        for run in found.running:
            left = self._ledger.actions.get(run.action_id)
            is_next = left is not None and any(one.id == run for one in left.found)
            if not is_next and not self._is_known(node, run):
                self.manager.stop(run.action_id, node)
        for name in found.trajectories:
            live = self._ledger.trajectories.get(name)
            if live is None:
                live = self._ledger.open(Opening(trajectory=name))
                live.phase, live.node = Phase.OVER, node
                self.close(live)
            elif live.node is None:
                live.node = node  # Its first start may not be in the journal.
            elif live.phase is Phase.OVER and live.node != node:
                self._background.start(self._close_sandbox(name, node))

    def _on_error(self, error: BaseException) -> None:
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "a node agent failed", "exception": error})


def agent_name(node: NodeId, found: NodeInventory) -> str:
    """The id by which the journal knows an agent again after a restart."""
    return f"agent:{node}:{found.incarnation}"
