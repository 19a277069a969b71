"""Nodes of several shapes: joining with a spec, labels, images, draining."""

from builders import CPU, a_cpu, a_scheduler, an_action, an_elastic, leases, records, started

from artangram.core.ids import ActionId, JobId, NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import NODE_LABEL, NodeSpec
from artangram.core.scheduling.decisions import Release
from artangram.core.scheduling.events import (
    Cancelled,
    Finished,
    ImageArrived,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeSuspected,
    NodeTrusted,
    NodeUndrained,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.lease import Cores
from artangram.core.scheduling.nodeindex import SAMPLE
from artangram.core.scheduling.poolnodes import MOST_SELECTORS
from artangram.core.scheduling.scheduler import Scheduler
from artangram.core.scheduling.shapes import MOST_SHAPES, KnownShapes

FIRST, BIG = NodeId("cpu-0"), NodeId("big")
LARGE = NodeSpec(cores=16, memory_mb=4000, labels={"disk": "fast"}, images=("python",))


def joined(
    scheduler: Scheduler, node: NodeId = BIG, spec: NodeSpec | None = LARGE, at: float = 0.0
) -> list[str]:
    return started(scheduler.handle(NodeJoined(CPU, node, spec), at))


def opened(
    scheduler: Scheduler,
    name: str,
    memory_mb: int = 0,
    *,
    image: str = "",
    job: str = "default",
    **labels: str,
) -> None:
    event = TrajectoryOpened(TrajectoryId(name), memory_mb, JobId(job), labels, image)
    scheduler.handle(event, 0.0)


def submitted(scheduler: Scheduler, name: str, needs: int = 1, **fields: object) -> list[str]:
    return started(scheduler.handle(Submitted(an_action(name, needs, **fields)), 0.0))


def node_of(scheduler: Scheduler, name: str, needs: int = 1, **fields: object) -> str:
    decisions = scheduler.handle(Submitted(an_action(name, needs, **fields)), 0.0)
    (lease,) = leases(decisions)
    assert isinstance(lease.allocations[0], Cores)
    return str(lease.allocations[0].node)


def refusal(scheduler: Scheduler, name: str, needs: int = 1, **fields: object) -> str:
    (record,) = records(scheduler.handle(Submitted(an_action(name, needs, **fields)), 0.0))
    assert record.outcome is Outcome.REFUSED
    return record.reason


class TestShapes:
    def test_what_only_a_larger_node_holds_goes_there(self):
        scheduler = a_scheduler()
        assert "needs.cpu" in refusal(scheduler, "early", 12)
        joined(scheduler)
        assert [(n.resource, n.id) for n in scheduler.nodes()] == [(CPU, FIRST), (CPU, BIG)]
        opened(scheduler, "t", 2000)
        assert node_of(scheduler, "cores", 12) == "big"
        assert node_of(scheduler, "memory", trajectory="t") == "big"

    def test_no_node_has_both_the_cores_and_the_memory(self):
        scheduler = a_scheduler()
        joined(scheduler, spec=NodeSpec(cores=64, memory_mb=10))
        opened(scheduler, "t", 500)
        assert refusal(scheduler, "a", 32, trajectory="t") == (
            "memory_mb: 500 can never fit: a node of cpu that it could live on has 10; "
            "open the trajectory with less memory"
        )

    def test_an_elastic_action_on_a_small_node_is_as_wide_as_the_node(self):
        scheduler = a_scheduler()
        joined(scheduler, NodeId("small"), NodeSpec(cores=2, memory_mb=1000))
        scheduler.handle(NodeLost(CPU, FIRST), 0.0)
        for number in range(2):
            decisions = scheduler.handle(Submitted(an_elastic(f"a{number}", 1, 8)), float(number))
            (lease,) = leases(decisions)
            assert lease.workers <= 2
            scheduler.handle(Finished(ActionId(f"a{number}")), number + 0.5)

    def test_a_trajectory_never_moves_to_a_node_that_is_too_small_for_what_it_asked(self):
        """Its second action would find no cores there."""
        scheduler = a_scheduler()
        joined(scheduler)
        opened(scheduler, "t", 10)
        for name, needs in (("a", 12), ("b", 1)):
            action = an_action(name, needs, trajectory="t", repeatable=True)
            scheduler.handle(Submitted(action), 0.0)
        assert started(scheduler.handle(NodeLost(CPU, BIG), 1.0)) == []
        assert sorted(joined(scheduler, at=2.0)) == ["a", "b"]

    def test_a_trajectory_may_ask_its_node_for_more_than_before(self):
        scheduler = a_scheduler()
        opened(scheduler, "t")
        assert node_of(scheduler, "a", trajectory="t") == node_of(scheduler, "b", 3, trajectory="t")

    def test_a_trajectory_is_told_that_its_node_is_too_small_or_has_other_labels(self):
        scheduler = a_scheduler()
        opened(scheduler, "t")
        node_of(scheduler, "a", trajectory="t")
        joined(scheduler)
        assert refusal(scheduler, "b", 12, trajectory="t") == (
            "needs: its trajectory lives on cpu-0, which has 8 cores; "
            "ask for fewer cores, or in its first action"
        )
        assert refusal(scheduler, "c", trajectory="t", selector={"disk": "fast"}) == (
            "selector: its trajectory lives on cpu-0, which has other labels; "
            "name the labels when the trajectory is opened"
        )

    def test_one_that_asks_for_more_while_it_waits_gives_up_its_reservation(self):
        scheduler = a_scheduler()
        joined(scheduler)
        for name, mb in (("s", 950), ("l", 4000), ("t", 900)):
            opened(scheduler, name, mb)
        assert submitted(scheduler, "on-first", trajectory="s")
        assert submitted(scheduler, "on-big", trajectory="l")
        assert not submitted(scheduler, "a", trajectory="t")
        assert "cpu-0 is reserved" in scheduler.explain(ActionId("a"), 0.0).summary
        assert not submitted(scheduler, "b", 12, trajectory="t")
        assert "big is reserved" in scheduler.explain(ActionId("b"), 0.0).summary

    def test_old_shapes_are_forgotten_in_the_end(self):
        shapes = KnownShapes(CPU, a_cpu())
        for cores in range(MOST_SHAPES + 1):
            shapes.add(NodeSpec(cores=cores, memory_mb=1))
        assert len(shapes) == MOST_SHAPES


class TestLabels:
    def test_a_selector_finds_the_nodes_that_have_its_labels(self):
        scheduler = a_scheduler()
        joined(scheduler)
        opened(scheduler, "t", 10, disk="fast")
        assert node_of(scheduler, "a", trajectory="t") == "big"
        assert node_of(scheduler, "b", selector={"disk": "fast"}) == "big"
        assert node_of(scheduler, "c") == "cpu-0"

    def test_every_node_has_its_name_as_a_label(self):
        scheduler = a_scheduler()
        joined(scheduler)
        here, there = {NODE_LABEL: "big"}, {NODE_LABEL: "elsewhere"}
        assert node_of(scheduler, "a", selector=here) == "big"
        assert submitted(scheduler, "b", selector=there) == [], "it may come back"
        assert scheduler.num_waiting() == 1

    def test_labels_that_no_node_ever_had_are_refused(self):
        scheduler = a_scheduler()
        fix = "no node has labels; ask for none"
        assert refusal(scheduler, "a", selector={"disk": "slow"}) == (
            f"selector: no node of cpu has disk=slow; {fix}"
        )
        joined(scheduler)
        assert refusal(scheduler, "b", selector={"disk": "slow"}) == (
            "selector: no node of cpu has disk=slow; use labels that nodes have: disk=fast"
        )

    def test_where_no_node_was_ever_seen_labels_are_waited_for(self):
        scheduler = a_scheduler(cpu=a_cpu(nodes=0))
        assert not submitted(scheduler, "a", selector={"disk": "fast"})
        assert "all nodes are lost" in scheduler.explain(ActionId("a"), 0.0).summary
        assert joined(scheduler, FIRST, None) == []
        said = scheduler.explain(ActionId("a"), 0.0)
        assert (
            said.hindrances[0].because
            == "every node it could live on is lost or draining, or does not answer"
        )
        assert joined(scheduler) == ["a"]

    def test_a_node_without_the_label_may_be_lost(self):
        scheduler = a_scheduler()
        joined(scheduler)
        assert node_of(scheduler, "a", selector={"disk": "fast"}) == "big"
        scheduler.handle(NodeLost(CPU, FIRST), 0.0)
        assert node_of(scheduler, "b", selector={"disk": "fast"}) == "big"

    def test_the_nodes_of_a_lost_label_are_waited_for(self):
        scheduler = a_scheduler()
        joined(scheduler)
        scheduler.handle(NodeLost(CPU, BIG), 0.0)
        assert not submitted(scheduler, "a", selector={"disk": "fast"})
        assert joined(scheduler, at=1.0) == ["a"]

    def test_any_number_of_selectors_is_served(self):
        scheduler = a_scheduler()
        for number in range(MOST_SELECTORS + 2):
            spec = NodeSpec(cores=8, memory_mb=100, labels={"rack": str(number)})
            joined(scheduler, NodeId(f"n{number}"), spec)
        for number in range(MOST_SELECTORS + 2):
            selector = {"rack": str(number)}
            assert node_of(scheduler, f"a{number}", selector=selector) == f"n{number}"

    def test_a_free_node_with_the_label_is_found_among_many_without_room(self):
        scheduler = a_scheduler(cpu=a_cpu(nodes=3 * SAMPLE, memory_mb=10))
        for number in range(3 * SAMPLE):
            opened(scheduler, f"t{number}", 10)
            assert submitted(scheduler, f"a{number}", trajectory=f"t{number}")
        scheduler.handle(NodeDraining(CPU, FIRST), 0.0)
        assert submitted(scheduler, "alone")


class TestImages:
    def test_a_node_that_has_the_image_is_preferred(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=16, memory_mb=4000))
        joined(scheduler)
        opened(scheduler, "t", 10, image="python")
        opened(scheduler, "u", 10, image="rust")
        assert node_of(scheduler, "a", trajectory="t") == "big"
        assert node_of(scheduler, "b", trajectory="u") == "cpu-0"

    def test_it_is_found_among_many_nodes(self):
        scheduler = a_scheduler(cpu=a_cpu(nodes=3 * SAMPLE))
        spec = NodeSpec(cores=8, memory_mb=1000, images=("python",))
        for number in range(SAMPLE + 1):
            joined(scheduler, NodeId(f"with-{number}"), spec)
        opened(scheduler, "t", 10, image="python")
        assert node_of(scheduler, "a", trajectory="t").startswith("with-")
        for number in range(SAMPLE + 1):
            scheduler.handle(NodeLost(CPU, NodeId(f"with-{number}")), 0.0)
        opened(scheduler, "u", 10, image="python")
        assert node_of(scheduler, "b", trajectory="u").startswith("cpu-")

    def test_a_node_where_it_has_arrived_is_preferred(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=16, memory_mb=4000, nodes=2))
        for node in ("cpu-1", "cpu-1", "gone"):
            scheduler.handle(ImageArrived(CPU, NodeId(node), "snapshot"), 0.0)
        opened(scheduler, "t", 10, image="snapshot")
        assert node_of(scheduler, "a", trajectory="t") == "cpu-1"
        scheduler.handle(NodeLost(CPU, NodeId("cpu-1")), 0.0)
        opened(scheduler, "u", 10, image="snapshot")
        assert node_of(scheduler, "b", trajectory="u") == "cpu-0"


def drained(scheduler: Scheduler, node: NodeId = FIRST, at: float = 0.0) -> list[str]:
    return released(scheduler.handle(NodeDraining(CPU, node), at))


def released(decisions: list[object]) -> list[str]:
    return [str(one.node) for one in decisions if isinstance(one, Release)]


class TestDraining:
    def test_it_is_let_go_again_when_it_comes_back_empty(self):
        scheduler = a_scheduler()
        assert drained(scheduler) == ["cpu-0"]
        assert released(scheduler.handle(NodeSuspected(CPU, FIRST), 1.0)) == []
        assert released(scheduler.handle(NodeTrusted(CPU, FIRST), 2.0)) == ["cpu-0"]

    def test_it_gets_no_new_trajectories_and_is_let_go_when_the_last_has_gone(self):
        scheduler = a_scheduler()
        for name in "tu":
            opened(scheduler, name, 10)
        submitted(scheduler, "a", trajectory="t")
        submitted(scheduler, "alone")
        assert drained(scheduler) == []
        assert submitted(scheduler, "b", trajectory="t") == ["b"]  # It lives there.
        assert not submitted(scheduler, "c", trajectory="u")
        said = scheduler.explain(ActionId("c"), 0.0).hindrances[0]
        assert said.because == "every node it could live on is lost or draining, or does not answer"
        assert said.starts_when == "such a node joins or answers; 0 go first"
        for name in ("a", "b"):
            scheduler.handle(Finished(ActionId(name)), 1.0)
        scheduler.handle(TrajectoryClosed(TrajectoryId("t")), 1.0)
        assert released(scheduler.handle(TrajectoryGone(TrajectoryId("t")), 2.0)) == []
        assert released(scheduler.handle(Finished(ActionId("alone")), 3.0)) == ["cpu-0"]
        assert joined(scheduler, at=4.0) == ["c"]

    def test_an_empty_node_is_let_go_at_once_and_only_once(self):
        scheduler = a_scheduler()
        assert drained(scheduler) == ["cpu-0"]
        assert drained(scheduler) == []

    def test_undrained_it_takes_trajectories_again(self):
        scheduler = a_scheduler()
        happened = [NodeDraining(CPU, FIRST), NodeUndrained(CPU, FIRST)]
        assert released(scheduler.handle_all(happened, 0.0)) == []
        assert submitted(scheduler, "a") == ["a"]
        scheduler.handle(NodeUndrained(CPU, FIRST), 1.0)

    def test_one_that_waits_for_it_is_given_another(self):
        scheduler = a_scheduler(cpu=a_cpu(nodes=2))
        for name, mb in (("t", 900), ("u", 800), ("v", 1000), ("w", 1000)):
            opened(scheduler, name, mb)
            submitted(scheduler, name, trajectory=name)
        assert "cpu-1 is reserved" in scheduler.explain(ActionId("v"), 0.0).summary
        drained(scheduler, NodeId("cpu-1"))
        assert "cpu-0 is reserved" in scheduler.explain(ActionId("v"), 0.0).summary
        scheduler.handle(NodeLost(CPU, FIRST), 1.0)
        assert scheduler.explain(ActionId("v"), 1.0).hindrances[0].ahead == 0
        assert scheduler.explain(ActionId("w"), 1.0).hindrances[0].ahead == 1
        assert joined(scheduler, FIRST, None, at=2.0) == ["v"]

    def test_draining_what_is_not_there_changes_nothing(self):
        scheduler = a_scheduler()
        assert drained(scheduler, NodeId("cpu-9")) == []

    def test_a_lone_action_that_waits_keeps_it(self):
        scheduler = a_scheduler(cpu=a_cpu(cores=1))
        for name in "ab":
            submitted(scheduler, name)
        drained(scheduler)
        assert released(scheduler.handle(Cancelled(ActionId("b")), 1.0)) == []
        assert released(scheduler.handle(Finished(ActionId("a")), 1.0)) == ["cpu-0"]


def test_closed_trajectories_are_told_until_their_sandboxes_are_gone():
    scheduler = a_scheduler()
    opened(scheduler, "t", 900)
    submitted(scheduler, "a", trajectory="t")
    scheduler.handle(Finished(ActionId("a")), 1.0)
    assert scheduler.leaving(CPU, FIRST) == []
    scheduler.handle(TrajectoryClosed(TrajectoryId("t")), 1.0)
    assert scheduler.leaving(CPU, FIRST) == ["t"]
    assert scheduler.leaving(CPU, NodeId("cpu-9")) == []
    scheduler.handle(NodeLost(CPU, FIRST), 2.0)
    scheduler.handle(TrajectoryGone(TrajectoryId("t")), 3.0)
    scheduler.handle(TrajectoryOpened(TrajectoryId("t")), 4.0)
