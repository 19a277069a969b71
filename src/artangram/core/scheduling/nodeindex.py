"""Which nodes of a pool may take a trajectory: those with some labels, by their free memory.

- One index for each selector that is asked for; nodes that take nothing are in none of the lists by
  memory.
- Looking for the largest free memory costs nothing; noting a change costs a binary search.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from artangram.core.scheduling.pools.cpu import CpuNode, Selector

SAMPLE = 8
"""Nodes compared for one trajectory, in turn: the best of a few is nearly as good as the best."""


class NodeIndex:
    """The nodes that match one selector."""

    __slots__ = ("_by_free", "_nodes", "_turn", "selector")

    def __init__(self, selector: Selector, nodes: Iterable[CpuNode] = ()) -> None:
        self.selector = selector
        #: In the order they joined.
        self._nodes: list[CpuNode] = []
        self._by_free: list[tuple[int, int, CpuNode]] = []
        self._turn = 0
        for node in nodes:
            self.add(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: CpuNode) -> None:
        """A node joined."""
        if self.selector <= node.labels:
            self._nodes.append(node)
            self.refile(node, None, node.filed_mb)

    def remove(self, node: CpuNode) -> None:
        """A node was lost."""
        if self.selector <= node.labels:
            self._nodes.remove(node)
            self.refile(node, node.filed_mb, None)

    def refile(self, node: CpuNode, before_mb: int | None, now_mb: int | None) -> None:
        """Its free memory was `before_mb` and is `now_mb`; `None` while it takes nothing."""
        if not self.selector <= node.labels:
            return
        if before_mb is not None:
            del self._by_free[bisect_left(self._by_free, (before_mb, node.seq))]
        if now_mb is not None:
            insort(self._by_free, (now_mb, node.seq, node))

    def some(self) -> list[CpuNode]:
        """A few nodes, others each time; all when there are few."""
        nodes, count = self._nodes, len(self._nodes)
        if count <= SAMPLE:
            return nodes
        first = self._turn = (self._turn + SAMPLE) % count
        last = first + SAMPLE
        return nodes[first:last] if last <= count else nodes[first:] + nodes[: last - count]

    def nodes(self) -> list[CpuNode]:
        """All of them, the oldest first."""
        return self._nodes

    def with_room(self, memory_mb: int) -> list[CpuNode]:
        """The nodes that take trajectories and have so much memory free, the oldest first."""
        at = bisect_left(self._by_free, (memory_mb,))
        return [node for _, _, node in sorted(self._by_free[at:], key=lambda entry: entry[1])]

    def freest(self) -> Iterator[CpuNode]:
        """The nodes that take trajectories, the most free memory first."""
        return (node for _, _, node in reversed(self._by_free))

    def has_room(self, memory_mb: int) -> bool:
        """Has any of them so much memory free?"""
        return bool(self._by_free) and self._by_free[-1][0] >= memory_mb
