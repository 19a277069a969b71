"""Brings snapshots to the nodes where their siblings start, and away from nodes that leave.

- The nodes say which snapshots they have. To the scheduler one is an image, which it prefers the
  nodes for where it was taken or has arrived; it may have gone from there since.
- A start on a node that lacks its snapshot waits here; one transfer serves all that wait for it.
- A drained node leaves when each snapshot that is still needed is on another node, too. It is
  needed while a trajectory of its group (job, task and problem) is open, or one that started from
  it. Of snapshots from before a restart the group is not known: all of them are needed. One with a
  name is brought elsewhere if that can be: it stays on the disk of its node in any case.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from artangram.aio import Background, fail
from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.decisions import Start
from artangram.core.scheduling.events import Finished, ImageArrived
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.scheduler import Scheduler
from artangram.managers.agent import AgentGone, NodeAgent
from artangram.managers.archives import travel
from artangram.orchestrator.keptsnapshots import kept
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.live import ExecutorVerbs, LiveAction, Promise
from artangram.orchestrator.posting import PostEvent
from artangram.orchestrator.records import Opening, image_of
from artangram.sandbox.errors import SandboxError, SandboxGone
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotInfo

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 4
"""Transfers; each takes the disks of two nodes and a share of the head's network."""
RETRY_S = 5.0
"""Until a node that could not leave tries again."""


class SnapshotGroup(NamedTuple):
    """Whose siblings may still start from a snapshot."""

    job: str
    task: str
    problem: str

    @classmethod
    def of(cls, opening: Opening) -> "SnapshotGroup":
        return cls(opening.job, opening.task, opening.problem)


class SnapshotTravels:
    """See the module."""

    def __init__(
        self,
        agents: dict[NodeId, NodeAgent],
        ledger: Ledger,
        *,
        pools: Mapping[NodeId, Resource],
        scheduler: Scheduler,
        post: PostEvent,
        background: Background,
    ) -> None:
        self._agents = agents
        self._ledger = ledger
        self._pools = pools
        self._scheduler = scheduler
        self._post = post
        self._background = background
        self._groups: dict[str, SnapshotGroup] = {}
        self._under_way: dict[tuple[str, NodeId], Promise] = {}
        #: What is started at this moment: its snapshot is there.
        self._through: set[LiveAction] = set()
        #: Drained nodes that wait for their snapshots to be elsewhere.
        self._leaving: set[NodeId] = set()
        self._permits = asyncio.Semaphore(MOST_AT_ONCE)

    def __repr__(self) -> str:
        return f"<SnapshotTravels: {len(self._under_way)} under way>"

    def taken(self, snapshot: Snapshot, opening: Opening) -> None:
        """A trajectory of this opening has made it."""
        self._groups[snapshot.name] = SnapshotGroup.of(opening)
        node = NodeId(snapshot.node)
        self._post(ImageArrived(self._pools[node], node, image_of(snapshot)))

    def holds_back(self, live: LiveAction, node: NodeId, executor: ExecutorVerbs) -> bool:
        """Must its start wait for a snapshot? Then `executor` starts it when that is there."""
        assert live.lease is not None, f"{live} has no lease"
        source = live.snapshot
        if live.expects_files or source is None or source.node == node or live in self._through:
            return False
        live.held = [Start(live.lease)]
        self._background.start(self._start_later(live, source, node, executor))
        return True

    async def _start_later(
        self, live: LiveAction, source: Snapshot, node: NodeId, executor: ExecutorVerbs
    ) -> None:
        assert live.lease is not None, f"{live} has no lease"
        attempt = live.lease.attempt
        try:
            await self.bring(source, node)
        except SandboxError as error:
            if live.lease is not None and live.lease.attempt == attempt:
                live.held = None
                why = f"{source.name} could not be brought to {node}: {error}"
                self._post(Finished(live.action.id, Outcome.INFRA_FAILED, None, why, attempt))
                return
        self._through.add(live)
        live.release(executor)
        self._through.discard(live)

    async def bring(self, snapshot: Snapshot, node: NodeId) -> None:
        """Return when `node` has it. Raises `SandboxError`."""
        arrival = self._under_way.get((snapshot.name, node))
        if arrival is None:
            arrival = self._under_way[snapshot.name, node] = asyncio.Future()
            self._background.start(self._carry(snapshot, node, arrival))
        await asyncio.shield(arrival)

    async def _carry(self, snapshot: Snapshot, node: NodeId, arrival: Promise) -> None:
        try:
            await self._brought(snapshot, node)
        except SandboxError as error:
            fail(arrival, error)
        else:
            arrival.set_result(None)
        finally:
            del self._under_way[snapshot.name, node]

    async def _brought(self, snapshot: Snapshot, node: NodeId) -> None:
        async with self._permits:
            original = await self._original(snapshot)
            home, target = self._agents.get(NodeId(original.node)), self._agents.get(node)
            if home is None or target is None:
                raise AgentGone(f"{node if target is None else original.node} was lost")
            if not _has(original, await target.snapshots()):
                await travel(
                    Snapshot(name=original.name, provider=original.provider),
                    source=home.archives,
                    target=target.archives,
                    provider=original.provider or (home.offers[0].kind if home.offers else ""),
                )
        await self._arrived(image_of(snapshot), node)

    async def _original(self, snapshot: Snapshot) -> SnapshotInfo:
        """The one on its node, or else the newest copy. Raises `SandboxGone`."""
        found: list[SnapshotInfo] = []
        home = self._agents.get(NodeId(snapshot.node))
        if home is not None:
            with suppress(AgentGone):  # A node that does not answer is waited for until then.
                found = [replace(one, node=home.node) for one in await home.snapshots()]
        for one in (*found, *await kept(self._agents)):
            if one.name == snapshot.name:
                return one
        raise SandboxGone("no node has it any more")

    async def _arrived(self, image: str, node: NodeId) -> None:
        """Return when the books have it."""
        written = asyncio.Event()
        self._post(ImageArrived(self._pools[node], node, image), then=written.set)
        await written.wait()

    async def may_leave(self, name: NodeId) -> bool:
        """Wait until a drained node has nothing that is needed. False if it is to stay, or gone."""
        if name in self._leaving:
            return False
        self._leaving.add(name)
        try:
            while (node := self._drained(name)) is not None:
                if await self.evacuate(node) and self._drained(name) is not None:
                    return True
                await asyncio.sleep(RETRY_S)
        finally:
            self._leaving.discard(name)
        return False

    def _drained(self, name: NodeId) -> CpuNode | None:
        for node in self._scheduler.nodes():
            if node.id == name and node.is_drained():
                return node
        return None

    async def evacuate(self, leaving: CpuNode) -> bool:
        """Bring what is needed of a node that leaves to others. False if that is not done yet."""
        is_done = True
        elsewhere = {node: agent for node, agent in self._agents.items() if node != leaving.id}
        here = {leaving.id: self._agents[leaving.id]} if leaving.id in self._agents else {}
        copies = await kept(elsewhere)
        for one in await kept(here):
            is_needed = self._is_needed(one.name)
            if (one.is_named or is_needed) and not _has(one, copies):
                is_moved = await self._moved(one, elsewhere)
                is_done = is_done and (is_moved or not is_needed)
        return is_done

    async def _moved(self, one: SnapshotInfo, elsewhere: Mapping[NodeId, NodeAgent]) -> bool:
        takers = [node for node in self._scheduler.nodes() if node.id in elsewhere]
        takers = [node for node in takers if node.is_open()]
        if not takers:
            return False
        taker = max(takers, key=lambda node: node.memory_free_mb)
        try:
            await self.bring(Snapshot(name=one.name, node=one.node), taker.id)
        except SandboxError as error:
            logger.warning("%s stays on %s: %s", one.name, one.node, error)
            return False
        return True

    def _is_needed(self, name: str) -> bool:
        group = self._groups.get(name)
        for live in self._ledger.trajectories.values():
            source = live.opening.place.source
            if isinstance(source, Snapshot) and source.name == name:
                return True
            if group is None or SnapshotGroup.of(live.opening) == group:
                return True
        return False


def _has(wanted: SnapshotInfo, infos: Iterable[SnapshotInfo]) -> bool:
    """Is the same one among them? Another one may have its name."""
    return any((one.name, one.layer) == (wanted.name, wanted.layer) for one in infos)
