"""What nodes of a pool have looked like so far, to refuse at once what none could ever hold.

A node that was lost may come back, so its shape stays known. Where no node was ever seen, nothing
is known of labels, and an action that asks for them waits.
"""

from collections.abc import Iterable

from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import NODE_LABEL, CpuSpec, NodeSpec
from artangram.core.scheduling.policies.policy import SchedulingPolicy
from artangram.core.scheduling.pools.cpu import Selector

MOST_SHAPES = 4096
"""Shapes to remember; the oldest are forgotten first."""

_Shape = tuple[int, int, frozenset[tuple[str, str]]]


class KnownShapes:
    """Cores, memory and labels of every kind of node that was there."""

    def __init__(self, resource: Resource, pool: CpuSpec) -> None:
        self._resource = resource
        self._pool = pool
        self._known: dict[_Shape, None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, spec: NodeSpec) -> None:
        """Such a node joined."""
        shape = (spec.cores, spec.memory_mb, frozenset(spec.labels.items()))
        self._known.pop(shape, None)
        self._known[shape] = None
        if len(self._known) > MOST_SHAPES:
            del self._known[next(iter(self._known))]

    def check(
        self, cores: int, memory_mb: int, selector: Selector, policy: SchedulingPolicy
    ) -> None:
        """`BadInput` if no node that was ever here, or that the pool describes, has all that."""
        pool, request_milli = self._pool, policy.request_milli
        # A node that is not there may come back: what asks for it by its name waits.
        if selector:
            selector = frozenset(asked for asked in selector if asked[0] != NODE_LABEL)
        is_usual = cores <= pool.cores and memory_mb <= pool.memory_mb and not selector
        if is_usual and request_milli <= 1000 * pool.cores:
            return
        described = (pool.cores, pool.memory_mb, frozenset(pool.labels.items()))
        shapes: Iterable[_Shape] = [described, *self._known]
        if self._known:
            shapes = [shape for shape in shapes if selector <= shape[2]]
            if not shapes:
                raise self._unknown(selector)
        most_cores = max(shape[0] for shape in shapes)
        if request_milli > 1000 * most_cores:
            raise BadInput(
                "policy",
                f"no node of {self._resource} has the cores that {policy.name} reserves",
                f"reserve {most_cores} or less",
            )
        fitting = [mb for shape_cores, mb, _ in shapes if shape_cores >= cores]
        most_mb = max(fitting, default=0)
        if memory_mb > most_mb or not fitting:
            of = f"a node of {self._resource}"
            which = of if cores <= pool.cores and not selector else f"{of} that it could live on"
            raise BadInput(
                "memory_mb",
                f"{memory_mb} can never fit: {which} has {most_mb}",
                "open the trajectory with less memory",
            )

    def _unknown(self, selector: Selector) -> BadInput:
        asked = ", ".join(f"{label}={value}" for label, value in sorted(selector))
        labels = sorted({f"{k}={v}" for shape in self._known for k, v in shape[2]})
        known = ", ".join(labels[:20])
        fix = (
            f"use labels that nodes have: {known}" if known else "no node has labels; ask for none"
        )
        return BadInput("selector", f"no node of {self._resource} has {asked}", fix)
