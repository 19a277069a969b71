"""Function slots that nodes bring along when they join."""

from collections import OrderedDict
from collections.abc import Mapping

from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.placement import Placement
from artangram.core.scheduling.policies.base import Lane
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.pools.quota import QuotaPool


class NodeSlots:
    """Tells function pools of nodes, and lets their lanes look again."""

    def __init__(
        self,
        pools: Mapping[Resource, QuotaPool | FunctionPool],
        lanes: Mapping[Resource, Lane],
        placement: Mapping[Resource, Placement],
        touched: "OrderedDict[Lane, None]",
    ) -> None:
        self._pools = pools
        self._lanes = lanes
        self._placement = placement
        self._touched = touched

    def join(self, resource: Resource, node: NodeId) -> None:
        """A node of a CPU pool has joined, or was there before: then nothing happens."""
        placement = self._placement[resource]
        books = placement.books[node]
        for name, count in books.spec.slots.items():
            pool = self._pools.get(name)
            if isinstance(pool, FunctionPool) and node not in pool.nodes:
                pool.join(books, count, placement.lone_ended)
        self.look_again()

    def lose(self, node: NodeId) -> None:
        """A node is gone; what ran there was told so."""
        for pool in self._pools.values():
            if isinstance(pool, FunctionPool):
                pool.lose(node)

    def look_again(self) -> None:
        """A node may take calls again that it did not take before."""
        for name, pool in self._pools.items():
            if isinstance(pool, FunctionPool) and pool.nodes:
                self._touched[self._lanes[name]] = None
