"""Which node a trajectory lives on, and who waits for one."""

import pytest
from builders import CPU, a_cpu, a_scheduler, an_action, leases, records, started

from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.events import (
    Cancelled,
    Finished,
    NodeJoined,
    NodeLost,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.lease import Cores
from artangram.core.scheduling.nodeindex import SAMPLE
from artangram.core.scheduling.scheduler import Scheduler


def opened(scheduler: Scheduler, **memory_mb: int) -> Scheduler:
    for name, mb in memory_mb.items():
        scheduler.handle(TrajectoryOpened(TrajectoryId(name), mb), 0.0)
    return scheduler


def node_of(scheduler: Scheduler, name: str, trajectory: str | None = None) -> str:
    decisions = scheduler.handle(Submitted(an_action(name, trajectory=trajectory)), 0.0)
    (lease,) = leases(decisions)
    assert isinstance(lease.allocations[0], Cores)
    return str(lease.allocations[0].node)


def test_trajectories_spread_over_nodes_by_the_memory_they_hold():
    scheduler = opened(a_scheduler(cpu=a_cpu(nodes=2)), t=600, u=500, v=400)
    nodes = [node_of(scheduler, name, name) for name in "tuv"]
    assert nodes == ["cpu-0", "cpu-1", "cpu-1"]


def test_actions_without_a_trajectory_go_where_cores_are_free():
    scheduler = a_scheduler(cpu=a_cpu(nodes=3, cores=1))
    assert sorted(node_of(scheduler, name) for name in "abc") == ["cpu-0", "cpu-1", "cpu-2"]


def test_a_node_without_memory_still_has_cores():
    scheduler = opened(a_scheduler(cpu=a_cpu(memory_mb=0)), t=0)
    assert node_of(scheduler, "a", "t") == "cpu-0"


def test_a_node_is_there_unless_it_was_lost_and_has_not_joined_again():
    scheduler, node = a_scheduler(), NodeId("cpu-0")
    assert scheduler.has_node(CPU, node)
    scheduler.handle(NodeLost(CPU, node), 0.0)
    assert not scheduler.has_node(CPU, node)
    scheduler.handle(NodeJoined(CPU, node), 1.0)
    assert scheduler.has_node(CPU, node)


@pytest.mark.parametrize("memory_mb", [10, 1000])
def test_a_trajectory_lives_in_one_pool(memory_mb):
    """Else two of them could wait for memory of each other, each in the pool of the other."""
    scheduler = opened(a_scheduler(cpu=a_cpu(), big=a_cpu()), other=10, t=memory_mb)
    scheduler.handle(Submitted(an_action("first", trajectory="other")), 0.0)
    scheduler.handle(Submitted(an_action("second", trajectory="t")), 0.0)  # It waits for memory.
    elsewhere = an_action("elsewhere", {"big": 1}, trajectory="t")
    (record,) = records(scheduler.handle(Submitted(elsewhere), 0.0))
    assert record.outcome is Outcome.REFUSED
    assert record.reason.startswith("needs: its trajectory lives on cpu; open another trajectory")
    alone = an_action("alone", {"big": 1})
    assert started(scheduler.handle(Submitted(alone), 0.0)) == ["alone"]


def test_a_trajectory_goes_on_in_its_pool_beside_others():
    scheduler = opened(a_scheduler(cpu=a_cpu(), big=a_cpu()), t=10)
    assert node_of(scheduler, "first", "t") == node_of(scheduler, "second", "t")


@pytest.mark.parametrize("nodes", [2, SAMPLE, SAMPLE + 4, 3 * SAMPLE])
def test_a_trajectory_is_housed_as_long_as_any_node_has_room(nodes):
    names = [f"t{n}" for n in range(nodes)]
    scheduler = opened(a_scheduler(cpu=a_cpu(nodes=nodes, memory_mb=10)), **dict.fromkeys(names, 6))
    assert len({node_of(scheduler, name, name) for name in names}) == nodes


def test_room_on_a_node_that_was_not_looked_at_first_is_found_too():
    nodes = 2 * SAMPLE
    scheduler = a_scheduler(cpu=a_cpu(nodes=nodes, memory_mb=10))
    for n in range(nodes):
        opened(scheduler, **{f"t{n}": 10})
        node_of(scheduler, f"a{n}", f"t{n}")
    node_of(scheduler, "elsewhere")  # so that the turn is not in step any more
    for n in range(nodes):
        scheduler.handle(TrajectoryClosed(TrajectoryId(f"t{n}")), 1.0)
        scheduler.handle(Finished(ActionId(f"a{n}")), 1.0)
        scheduler.handle(TrajectoryGone(TrajectoryId(f"t{n}")), 1.0)
        opened(scheduler, **{f"u{n}": 10})
        assert started(scheduler.handle(Submitted(an_action(f"b{n}", trajectory=f"u{n}")), 2.0))


class TestWaitingForMemory:
    def test_it_waits_until_a_trajectory_ends(self):
        scheduler = opened(a_scheduler(), t=700, u=400)
        node_of(scheduler, "a", "t")
        assert started(scheduler.handle(Submitted(an_action("b", trajectory="u")), 0.0)) == []
        scheduler.handle(Finished(ActionId("a")), 1.0)
        assert started(scheduler.handle(TrajectoryClosed(TrajectoryId("t")), 2.0)) == []
        assert started(scheduler.handle(TrajectoryGone(TrajectoryId("t")), 2.5)) == ["b"]

    def test_a_small_one_does_not_pass_a_large_one_for_ever(self):
        scheduler = opened(a_scheduler(), t=700, u=400, v=100)
        node_of(scheduler, "a", "t")
        for name, trajectory in (("b", "u"), ("c", "v")):
            decisions = scheduler.handle(Submitted(an_action(name, trajectory=trajectory)), 0.0)
            assert started(decisions) == []
        decisions = scheduler.handle(TrajectoryClosed(TrajectoryId("t")), 1.0)
        decisions += scheduler.handle(Finished(ActionId("a")), 2.0)
        assert started(decisions) == []
        assert started(scheduler.handle(TrajectoryGone(TrajectoryId("t")), 2.0)) == ["b", "c"]

    def test_who_needs_no_memory_waits_for_nobody(self):
        scheduler = opened(a_scheduler(), t=700, u=400)
        node_of(scheduler, "a", "t")
        scheduler.handle(Submitted(an_action("b", trajectory="u")), 0.0)
        assert node_of(scheduler, "c") == "cpu-0"

    def test_those_behind_move_up_when_the_first_is_cancelled(self):
        scheduler = opened(a_scheduler(), t=700, u=400, v=100)
        node_of(scheduler, "a", "t")
        for name, trajectory in (("b", "u"), ("c", "v")):
            scheduler.handle(Submitted(an_action(name, trajectory=trajectory)), 0.0)
        assert started(scheduler.handle(Cancelled(ActionId("b")), 1.0)) == ["c"]

    def test_actions_of_one_trajectory_move_in_together(self):
        """Else the second would wait behind others for memory its trajectory holds already."""
        scheduler = opened(a_scheduler(), t=1000, u=1000)
        scheduler.handle(NodeLost(CPU, NodeId("cpu-0")), 0.0)
        for name, trajectory in (("a", "t"), ("b", "u"), ("c", "t")):
            scheduler.handle(Submitted(an_action(name, trajectory=trajectory)), 0.0)
        scheduler.handle(Cancelled(ActionId("a")), 0.5)
        scheduler.handle(Submitted(an_action("d", trajectory="t")), 0.6)
        assert started(scheduler.handle(NodeJoined(CPU, NodeId("cpu-0")), 1.0)) == ["c", "d"]

    def test_a_trajectory_that_fits_no_node_is_refused(self):
        scheduler = opened(a_scheduler(), t=1001)
        (record,) = records(scheduler.handle(Submitted(an_action("a", trajectory="t")), 0.0))
        assert record.reason == (
            "memory_mb: 1001 can never fit: a node of cpu has 1000; "
            "open the trajectory with less memory"
        )


class TestPods:
    def test_a_node_is_full_when_its_cores_are_reserved(self):
        scheduler = opened(a_scheduler("pods:4", cpu=a_cpu(cores=8)), t=0, u=0, v=0)
        for name in "tuv":
            decisions = scheduler.handle(Submitted(an_action(name, trajectory=name)), 0.0)
            assert started(decisions) == ([name] if name != "v" else [])
        scheduler.handle(TrajectoryClosed(TrajectoryId("t")), 1.0)
        scheduler.handle(Finished(ActionId("t")), 1.0)
        assert started(scheduler.handle(TrajectoryGone(TrajectoryId("t")), 1.0)) == ["v"]

    def test_pods_are_created_at_the_rate_of_the_control_plane(self):
        cpu = a_cpu(cores=8, create_s=1.0, pods_per_s=2.0)
        scheduler = opened(a_scheduler("pods:1", cpu=cpu), t=0, u=0, v=0)
        costs = [
            leases(scheduler.handle(Submitted(an_action(name, trajectory=name)), 5.0))[0].prepare_s
            for name in "tuv"
        ]
        assert costs == [1.0, 1.5, 2.0]

    def test_a_request_that_fits_no_node_is_refused(self):
        scheduler = a_scheduler("pods:9", cpu=a_cpu(cores=8))
        (record,) = records(scheduler.handle(Submitted(an_action("a")), 0.0))
        assert record.reason == (
            "policy: no node of cpu has the cores that pods:9 reserves; reserve 8 or less"
        )


def test_who_needs_no_room_waits_for_nobody_who_does_once_there_is_a_node():
    """Or its later actions, which pass, would give its trajectory another node than its first."""
    scheduler = opened(a_scheduler(cpu=a_cpu(nodes=2)), t=600, u=600, light=0)
    nodes = [NodeId("cpu-0"), NodeId("cpu-1")]
    scheduler.handle_all([NodeLost(CPU, node) for node in nodes], 0.0)
    waiting = [an_action(name, trajectory=name) for name in ("t", "u", "light")]
    scheduler.handle_all([Submitted(action) for action in [*waiting, an_action("alone")]], 1.0)
    assert started(scheduler.handle(NodeJoined(CPU, nodes[0]), 2.0)) == ["t", "light", "alone"]
    assert started(scheduler.handle(NodeJoined(CPU, nodes[1]), 3.0)) == ["u"]
    assert node_of(scheduler, "later", "light") == nodes[0]
