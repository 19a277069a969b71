"""The books of stateless function slots: warm, busy, and how many may still be started.

- Slots scale from zero to `ceiling`. A call takes a warm slot when there is one, else it starts a
  cold one. A slot idle for `idle_s` is given up.
- The head has slots of its own; nodes that join bring others. A node that drains or does not answer
  gets no new call, and is not empty while one runs there.
"""

from collections import deque
from collections.abc import Callable, Iterator

from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.cluster import FunctionsSpec, PoolSpec
from artangram.core.scheduling.lease import HEAD, FunctionSlots
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.pools.slots import Slots


class SlotBooks:
    """The slots of the head, or of one node that joined."""

    __slots__ = ("busy", "ceiling", "idle_since", "node", "on_idle")

    def __init__(
        self,
        ceiling: int,
        node: CpuNode | None = None,
        on_idle: Callable[[NodeId], None] | None = None,
    ) -> None:
        self.ceiling = ceiling
        self.node = node
        self.on_idle = on_idle
        self.busy = 0
        # Ascending times; the last one became idle last and is reused first, so the rest can end.
        self.idle_since: deque[float] = deque()

    @property
    def free(self) -> int:
        """How many calls may start; below 0 it is after the ceiling was lowered."""
        is_shut = self.node is not None and (self.node.is_draining or self.node.is_suspect)
        return 0 if is_shut else max(0, self.ceiling - self.busy)


class FunctionPool:
    """Slots for stateless functions on demand."""

    __slots__ = ("_own", "cold_s", "idle_s", "nodes", "overhead_s", "resource")

    def __init__(self, resource: Resource, spec: FunctionsSpec) -> None:
        self.resource = resource
        self.overhead_s = spec.overhead_s
        self.cold_s = spec.cold_s
        self.idle_s = spec.idle_s
        self._own = SlotBooks(spec.ceiling)
        self.nodes: dict[NodeId, SlotBooks] = {}

    def __repr__(self) -> str:
        idle = sum(len(books.idle_since) for books in self._all())
        return f"<FunctionPool {self.resource}: {self.busy} busy, {idle} idle of {self.ceiling}>"

    @property
    def ceiling(self) -> int:
        return sum(books.ceiling for books in self._all())

    @property
    def busy(self) -> int:
        return sum(books.busy for books in self._all())

    def join(self, node: CpuNode, slots: int, on_idle: Callable[[NodeId], None]) -> None:
        """A node brings slots; `on_idle` hears of each call that no longer runs there."""
        self.nodes[node.id] = SlotBooks(slots, node, on_idle)

    def lose(self, node: NodeId) -> None:
        """A node is gone, with its slots and what ran there."""
        self.nodes.pop(node, None)

    def warm(self, now: float) -> int:
        """How many idle slots are still warm."""
        return sum(self._warm(books, now) for books in self._all())

    def fits(self, units: int, now: float) -> bool:
        """May `units` calls start now on one node, warm or cold?"""
        return any(books.free >= units for books in self._all())

    def available(self, now: float) -> int:
        """How many calls may start now."""
        return sum(books.free for books in self._all())

    def slots(self) -> Slots:
        """What `available` says, and of how many."""
        return Slots(self.available(0.0), self.ceiling)

    def reconfigure(self, spec: PoolSpec, now: float) -> None:
        """There are more or fewer slots from now on; those that are busy stay until they end."""
        assert isinstance(spec, FunctionsSpec), f"{self} has slots"
        self._own.ceiling = spec.ceiling

    def take(self, units: int, now: float) -> FunctionSlots:
        """`units` slots are busy now: warm ones first, then where most are free."""
        fitting = [books for books in self._all() if books.free >= units]
        best = max(fitting, key=lambda one: (min(units, self._warm(one, now)), one.free))
        reused = min(units, len(best.idle_since))
        for _ in range(reused):
            best.idle_since.pop()
        best.busy += units
        if best.node is None:
            return FunctionSlots(self.resource, units, units - reused)
        best.node.num_lone += 1
        return FunctionSlots(self.resource, units, units - reused, best.node.id)

    def give_back(self, units: int, now: float, *, node: NodeId = HEAD) -> None:
        """`units` slots are idle and warm."""
        books = self._own if node == HEAD else self.nodes[node]
        books.busy -= units
        assert books.busy >= 0, f"{self} got back more than it gave"
        books.idle_since.extend([now] * units)
        if books.on_idle is not None:
            books.on_idle(node)

    def _all(self) -> Iterator[SlotBooks]:
        yield self._own
        yield from self.nodes.values()

    def _warm(self, books: SlotBooks, now: float) -> int:
        idle = books.idle_since
        while idle and idle[0] + self.idle_s <= now:
            idle.popleft()
        return len(idle)
