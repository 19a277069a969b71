"""The books of one CPU node: concrete cores in NUMA domains, and memory.

- A core belongs to at most one holder; `free + held` is always every core of the node.
- Cores of one holder come from one domain when one domain has enough: the fullest that fits, so
  that the others stay whole for wider actions.
- Memory is held by trajectories (`Resident`), not by actions, until their sandboxes are gone.
"""

from collections.abc import Sequence

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import NODE_LABEL, CpuSpec, NodeSpec

Selector = frozenset[tuple[str, str]]
"""Labels, with their values."""

NOTHING: Selector = frozenset()


class Resident:
    """A trajectory that lives on a node or will, or an action that has no trajectory."""

    __slots__ = (
        "cores",
        "has_sandbox",
        "image",
        "is_leaving",
        "is_lone",
        "job",
        "memory_mb",
        "node",
        "parent",
        "selector",
    )

    def __init__(
        self,
        job: JobId,
        *,
        memory_mb: int = 0,
        selector: Selector = NOTHING,
        image: str = "",
        is_lone: bool = False,
    ) -> None:
        self.job = job
        self.memory_mb = memory_mb
        self.selector = selector
        self.image = image
        #: The trajectory that waits for it.
        self.parent: TrajectoryId | None = None
        #: An action without a trajectory: it counts against no limit on trajectories.
        self.is_lone = is_lone
        #: The most that an action of it asked for at least.
        self.cores = 0
        self.node: NodeId | None = None
        self.has_sandbox = False
        #: It is closed, and its sandbox is not gone.
        self.is_leaving = False


class CpuNode:
    """Which cores and how much memory of one node are free."""

    __slots__ = (
        "_domain_of",
        "_domains",
        "cores",
        "filed_mb",
        "free",
        "id",
        "images",
        "is_draining",
        "is_reserved",
        "is_suspect",
        "labels",
        "leaving_mb",
        "memory_free_mb",
        "memory_mb",
        "num_leaving",
        "num_lone",
        "reserved_milli",
        "resource",
        "seq",
        "spec",
        "squeeze_penalty",
        "trajectories",
    )

    def __init__(
        self,
        resource: Resource,
        node: NodeId,
        pool: CpuSpec,
        spec: NodeSpec | None = None,
        *,
        seq: int = 0,
    ) -> None:
        spec = spec or pool.node()
        cores, memory_mb = spec.cores, spec.memory_mb
        self.spec = spec
        self.labels = frozenset((spec.labels | {NODE_LABEL: str(node)}).items())
        self.images = set(spec.images)
        #: In which order nodes joined.
        self.seq = seq
        #: It gets no new trajectories, for good or until the one it is reserved for has come.
        self.is_draining = False
        self.is_reserved = False
        #: It does not answer, and gets nothing new until it does.
        self.is_suspect = False
        #: The free memory it is found under; see `nodeindex`.
        self.filed_mb: int | None = None
        #: Held by trajectories that are closed, until their sandboxes are gone.
        self.leaving_mb = 0
        self.num_leaving = 0
        #: Actions without a trajectory that wait or run here.
        self.num_lone = 0
        self.resource = resource
        self.id = node
        self.cores = cores
        self.free = cores
        self.memory_mb = memory_mb
        self.memory_free_mb = memory_mb
        self.squeeze_penalty = pool.squeeze_penalty
        self.reserved_milli = 0
        self.trajectories: dict[TrajectoryId, int] = {}
        per_domain = -(-cores // spec.numa)
        self._domain_of = [core // per_domain for core in range(cores)]
        # Stacks with the lowest core on top; the last core given back is warmest and goes first.
        self._domains: list[list[int]] = [
            list(range(min(first + per_domain, cores) - 1, first - 1, -1))
            for first in range(0, cores, per_domain)
        ]

    def __repr__(self) -> str:
        return f"<CpuNode {self.id}: {self.free} of {self.cores} cores free>"

    def check(self, cores: int, selector: frozenset[tuple[str, str]]) -> None:
        """`BadInput` if it cannot serve an action of a trajectory that lives here."""
        if cores > self.cores:
            problem = f"its trajectory lives on {self.id}, which has {self.cores} cores"
            raise BadInput("needs", problem, "ask for fewer cores, or in its first action")
        if not selector <= self.labels:
            problem = f"its trajectory lives on {self.id}, which has other labels"
            raise BadInput("selector", problem, "name the labels when the trajectory is opened")

    def take(self, count: int, *, near: int | None = None) -> tuple[int, ...]:
        """`count` free cores; from the domain of core `near` first, when one is given."""
        assert count <= self.free, f"{self} cannot give {count}"
        self.free -= count
        if len(self._domains) == 1:
            return (self._domains[0].pop(),) if count == 1 else _pop(self._domains[0], count)
        stack = self._best_domain(count, near)
        if len(stack) >= count:
            return _pop(stack, count)
        taken = list(_pop(stack, len(stack)))
        for other in sorted(self._domains, key=len, reverse=True):
            taken += _pop(other, min(len(other), count - len(taken)))
        return tuple(taken)

    def give_back(self, cores: Sequence[int]) -> None:
        """`cores` are free again."""
        self.free += len(cores)
        assert self.free <= self.cores, f"{self} got back more than it has"
        if len(self._domains) == 1:
            self._domains[0].extend(cores)
            return
        for core in cores:
            self._domains[self._domain_of[core]].append(core)

    def free_cores(self) -> list[int]:
        """Every free core, ascending."""
        return sorted(core for stack in self._domains for core in stack)

    def hold_memory(self, trajectory: TrajectoryId, memory_mb: int) -> None:
        """`trajectory` lives here now."""
        assert memory_mb <= self.memory_free_mb, f"{self} is short of memory"
        self.memory_free_mb -= memory_mb
        self.trajectories[trajectory] = memory_mb

    def give_back_memory(self, trajectory: TrajectoryId) -> None:
        """`trajectory` is gone from here."""
        self.memory_free_mb += self.trajectories.pop(trajectory)

    def is_drained(self) -> bool:
        """Does it drain, and is it empty?"""
        return self.is_draining and not (self.trajectories or self.num_lone)

    def is_open(self) -> bool:
        """May any trajectory come that fits?"""
        return not (self.is_draining or self.is_reserved or self.is_suspect)

    def _best_domain(self, count: int, near: int | None) -> list[int]:
        if near is not None and self._domains[self._domain_of[near]]:
            return self._domains[self._domain_of[near]]
        fitting = [stack for stack in self._domains if len(stack) >= count]
        return min(fitting, key=len) if fitting else max(self._domains, key=len)


def _pop(stack: list[int], count: int) -> tuple[int, ...]:
    if count == 0:
        return ()
    taken = tuple(stack[: -count - 1 : -1])
    del stack[-count:]
    return taken
