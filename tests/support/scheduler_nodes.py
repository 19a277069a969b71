"""Rules about the cluster for the scheduler machine: nodes join with specs, are lost, drain and
return; shares, quotas and ceilings change.
"""

from typing import Any

from builders import CPU
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from scheduler_world import FUNCTIONS, SEARCH

from artangram.core.ids import JobId, NodeId
from artangram.core.scheduling.cluster import FunctionsSpec, NodeSpec, QuotaSpec
from artangram.core.scheduling.events import (
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeUndrained,
    Reconfigured,
    TrajectoryGone,
)
from artangram.core.scheduling.reconfigure import applied

ZONES = [{}, {"zone": "a"}, {"zone": "b", "disk": "fast"}]
SELECTORS = [{}, {}, {}, {"zone": "a"}, {"disk": "fast"}]
SPECS = st.none() | st.builds(
    NodeSpec,
    cores=st.sampled_from([2, 4, 8, 16]),
    memory_mb=st.sampled_from([40, 100, 200]),
    numa=st.sampled_from([1, 2]),
    labels=st.sampled_from(ZONES),
    images=st.sampled_from([(), ("python",)]),
)
MOST_NODES = 4
LARGE = NodeSpec(cores=16, memory_mb=200, labels={"zone": "a", "disk": "fast"}, images=("all",))
"""A node that holds whatever any other can."""


class NodeRules(RuleBasedStateMachine):
    """What happens to nodes and sandboxes; `SchedulerMachine` has the rest."""

    books: Any
    lost: list[Any]
    count: int

    def _nodes(self) -> list[tuple[Any, NodeId]]:
        return [(resource, node) for node, resource in self.books.nodes.items()]

    def _cpu_nodes(self) -> list[NodeId]:
        return [node for resource, node in self._nodes() if resource == CPU]

    def _without_a_node(self) -> list[Any]:
        said = {life.action.id: self.explain(life).hindrances for life in self.books.waiting()}
        return [
            life
            for life in self.books.waiting()
            if any(h.resource.endswith("memory_mb") for h in said[life.action.id])
        ]

    @rule(
        concurrency=st.sampled_from([1, 2, 4, None]),
        limit=st.sampled_from([1, 3, 5]),
        ceiling=st.sampled_from([1, 2, 4]),
        share=st.sampled_from([0.5, 3.0]),
    )
    def reconfigure(self, concurrency: int | None, limit: int, ceiling: int, share: float) -> None:
        event = Reconfigured(
            shares={JobId("y"): share},
            pools={
                SEARCH: QuotaSpec(concurrency=concurrency, limit=limit, window_s=10.0),
                FUNCTIONS: FunctionsSpec(ceiling=ceiling, cold_s=0.5, idle_s=5.0),
            },
        )
        self.books.cluster = applied(event, self.books.cluster)
        self.tell(event)

    @precondition(lambda self: self.books.nodes)
    @rule(index=st.integers(0, 100))
    def lose_a_node(self, index: int) -> None:
        resource, node = self._nodes()[index % len(self.books.nodes)]
        self.lost.append((resource, node))
        self.books.lose(node)
        self.tell(NodeLost(resource, node))

    @precondition(lambda self: self.lost)
    @rule(is_twice=st.booleans(), spec=SPECS)
    def join_a_node(self, is_twice: bool, spec: NodeSpec | None = None) -> None:
        resource, node = self.lost.pop()
        spec = spec if resource == CPU else None
        self.books.join(resource, node, spec)
        self.tell(*[NodeJoined(resource, node, spec)] * (1 + is_twice))

    @precondition(lambda self: len(self._cpu_nodes()) < MOST_NODES)
    @rule(spec=SPECS)
    def join_a_new_node(self, spec: NodeSpec | None) -> None:
        self.count += 1
        node = NodeId(f"new-{self.count}")
        self.books.join(CPU, node, spec)
        self.tell(NodeJoined(CPU, node, spec))

    @precondition(lambda self: self.books.nodes)
    @rule(index=st.integers(0, 100), spec=SPECS)
    def join_a_node_that_is_here(self, index: int, spec: NodeSpec | None) -> None:
        self.tell(NodeJoined(*self._nodes()[index % len(self.books.nodes)], spec))

    @precondition(lambda self: self.lost)
    @rule()
    def lose_a_node_again(self) -> None:
        self.tell(NodeLost(*self.lost[-1]))

    @precondition(lambda self: self._cpu_nodes())
    @rule(index=st.integers(0, 100))
    def drain_a_node(self, index: int) -> None:
        node = self._cpu_nodes()[index % len(self._cpu_nodes())]
        self.books.drain(node, {life.action.trajectory for life in self._without_a_node()})
        self.tell(NodeDraining(CPU, node))

    @precondition(lambda self: self.books.draining)
    @rule(index=st.integers(0, 100))
    def undrain_a_node(self, index: int) -> None:
        node = sorted(self.books.draining)[index % len(self.books.draining)]
        self.books.undrain(node)
        self.tell(NodeUndrained(CPU, node))

    @precondition(lambda self: self.books.leaving)
    @rule(index=st.integers(0, 100))
    def sandbox_goes(self, index: int) -> None:
        trajectory = list(self.books.leaving)[index % len(self.books.leaving)]
        self.books.leave(trajectory)
        self.tell(TrajectoryGone(trajectory))
