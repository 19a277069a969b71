"""The nodes of one CPU pool, and the best of them for a trajectory.

The best has for its size the fewest busy cores, trajectories and waiting actions, and the least of
its memory held; one sum weighs them. Trajectories that are closed count no longer, though their
memory is not free yet. Of many nodes a few are compared, others each time.
"""

from collections.abc import Iterable

from artangram.core.ids import NodeId
from artangram.core.scheduling.cluster import CpuSpec
from artangram.core.scheduling.nodeindex import SAMPLE, NodeIndex
from artangram.core.scheduling.policies.base import Lane
from artangram.core.scheduling.pools.cpu import NOTHING, CpuNode, Resident, Selector

QUEUE_WEIGHT = 4.0
"""How many resident trajectories, most of which are thinking, a waiting action counts for."""

IMAGE_WEIGHT = 0.5
"""An image that is there counts as much as half of a node's memory: fetching it takes seconds, and
a trajectory that lives on a crowded node loses more."""

MOST_SELECTORS = 64
"""Selectors whose nodes are remembered; beyond, they are looked up anew."""


class NodeImages:
    """Which nodes have which images."""

    __slots__ = ("_nodes", "_turn")

    def __init__(self) -> None:
        self._nodes: dict[str, list[CpuNode]] = {}
        #: Where to look next among nodes that have an image.
        self._turn = 0

    def add(self, node: CpuNode) -> None:
        """A node joins, with its images."""
        for image in node.images:
            self._nodes.setdefault(image, []).append(node)

    def remove(self, node: CpuNode) -> None:
        """A node is lost, with its images."""
        for image in node.images:
            self._nodes[image].remove(node)
            if not self._nodes[image]:
                del self._nodes[image]

    def arrived(self, node: CpuNode, image: str) -> None:
        """A node has an image from now on."""
        if image not in node.images:
            node.images.add(image)
            self._nodes.setdefault(image, []).append(node)

    def some(self, image: str) -> list[CpuNode]:
        """A few of the nodes that have it, others each time."""
        nodes = self._nodes.get(image, [])
        if len(nodes) > SAMPLE:
            first = self._turn = (self._turn + SAMPLE) % len(nodes)
            nodes = (nodes[first : first + SAMPLE] + nodes[:SAMPLE])[:SAMPLE]
        return nodes


class PoolNodes:
    """Nodes by name, by labels and free memory, and by image."""

    def __init__(self, request_milli: int) -> None:
        self._request_milli = request_milli
        self.by_id: dict[NodeId, CpuNode] = {}
        self._lanes: dict[NodeId, Lane] = {}
        self._all = NodeIndex(NOTHING)
        self._indexes: dict[Selector, NodeIndex] = {NOTHING: self._all}
        self.images = NodeImages()
        #: Free memory of the nodes that take trajectories.
        self.free_mb = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, node: CpuNode, lane: Lane) -> None:
        """A node joins."""
        self.by_id[node.id] = node
        self._lanes[node.id] = lane
        for index in self._indexes.values():
            index.add(node)
        self.images.add(node)
        self.refile(node)

    def remove(self, node: CpuNode) -> None:
        """A node is lost."""
        del self.by_id[node.id], self._lanes[node.id]
        self.free_mb -= node.filed_mb or 0
        for index in self._indexes.values():
            index.remove(node)
        self.images.remove(node)

    def refile(self, node: CpuNode) -> None:
        """Note what changed about the memory of a node, or whether it takes trajectories."""
        before, now = node.filed_mb, node.memory_free_mb if node.is_open() else None
        if before == now:
            return
        node.filed_mb = now
        self.free_mb += (now or 0) - (before or 0)
        for index in self._indexes.values():
            index.refile(node, before, now)

    def index(self, selector: Selector) -> NodeIndex:
        index = self._indexes.get(selector)
        if index is None:
            if len(self._indexes) >= MOST_SELECTORS:
                self._indexes = {NOTHING: self._all}
            index = self._indexes[selector] = NodeIndex(selector, self.by_id.values())
        return index

    def fits(self, resident: Resident, node: CpuNode) -> bool:
        """Has a node room for it now?"""
        return (
            resident.memory_mb <= node.memory_free_mb
            and resident.cores <= node.cores
            and node.reserved_milli + self._request_milli <= 1000 * node.cores
        )

    def to_reserve(self, resident: Resident) -> CpuNode | None:
        """The node with the most free memory that could hold it when empty."""
        for node in self.index(resident.selector).freest():
            if resident.memory_mb <= node.memory_mb and resident.cores <= node.cores:
                return node
        return None

    def best(self, resident: Resident, *, takes_room: bool) -> CpuNode | None:
        """The best node that has room for it, if any."""
        index = self.index(resident.selector)
        some = index.some()
        if resident.image:
            having = self.images.some(resident.image)
            some = [*some, *(node for node in having if resident.selector <= node.labels)]
        best = self._best_of(some, resident, takes_room=takes_room)
        if best is None and len(index) > SAMPLE:
            rest = index.with_room(resident.memory_mb) if takes_room else index.nodes()
            best = self._best_of(rest, resident, takes_room=takes_room)
        return best

    def _best_of(
        self, nodes: Iterable[CpuNode], resident: Resident, *, takes_room: bool
    ) -> CpuNode | None:
        best: CpuNode | None = None
        best_score = float("inf")
        memory_mb, least, image = resident.memory_mb, resident.cores, resident.image
        request = self._request_milli
        for node in nodes:
            cores, free_mb = node.cores, node.memory_free_mb
            if memory_mb > free_mb or node.reserved_milli + request > 1000 * cores:
                continue
            if node.is_draining or node.is_suspect or least > cores:
                continue
            if node.is_reserved and takes_room:
                continue
            waiting = self._lanes[node.id].num_waiting()
            living = len(node.trajectories) - node.num_leaving
            score = (living + cores - node.free + QUEUE_WEIGHT * waiting) / cores
            if node.memory_mb:
                score += 1.0 - (free_mb + node.leaving_mb) / node.memory_mb
            if image and image in node.images:
                score -= IMAGE_WEIGHT
            if score < best_score:
                best, best_score = node, score
        return best


class SandboxCreation:
    """What the first action of a trajectory pays for its sandbox."""

    __slots__ = ("_has_rate", "_next_at", "_spec")

    def __init__(self, spec: CpuSpec, *, has_rate: bool) -> None:
        self._spec = spec
        self._has_rate = has_rate
        self._next_at = 0.0

    def takes_s(self, now: float) -> float:
        """The time to make one that is asked for now."""
        if not self._has_rate:
            return self._spec.create_s
        slot = max(now, self._next_at)
        self._next_at = slot + 1.0 / self._spec.pods_per_s
        return slot - now + self._spec.create_s
