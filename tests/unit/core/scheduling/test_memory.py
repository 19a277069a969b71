"""Who goes first of those that wait for memory: shares, limits, reservations."""

from builders import CPU, a_cluster, a_cpu, an_action, started

from artangram.core.ids import ActionId, JobId, NodeId, TrajectoryId
from artangram.core.scheduling.cluster import JobLimits
from artangram.core.scheduling.events import (
    Cancelled,
    Finished,
    NodeDraining,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.placement import MOST_RESERVED, NODES_PER_RESERVED
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler


def a_scheduler(nodes: int = 1, memory_mb: int = 100, **fields: object) -> Scheduler:
    limits = {JobId(job): limit for job, limit in fields.pop("limits", {}).items()}
    cpu = a_cpu(nodes, 64, memory_mb)
    cluster = a_cluster(cpu=cpu, shares=fields.pop("shares", {}))
    cluster.limits.update(limits)
    return Scheduler(cluster, policy("elastic"))


def comes(scheduler: Scheduler, name: str, memory_mb: int, job: str = "default") -> list[str]:
    scheduler.handle(TrajectoryOpened(TrajectoryId(name), memory_mb, JobId(job)), 0.0)
    return started(scheduler.handle(Submitted(an_action(name, trajectory=name)), 0.0))


def goes(scheduler: Scheduler, name: str) -> list[str]:
    trajectory = TrajectoryId(name)
    happened = [Finished(ActionId(name)), TrajectoryClosed(trajectory), TrajectoryGone(trajectory)]
    return started(scheduler.handle_all(happened, 1.0))


def because(scheduler: Scheduler, name: str) -> str:
    (said,) = scheduler.explain(ActionId(name), 0.0).hindrances
    return said.because


def test_a_large_trajectory_stops_one_node_and_not_the_pool():
    scheduler = a_scheduler(nodes=2)
    for name in ("a", "b"):
        assert comes(scheduler, name, 40)
    assert not comes(scheduler, "large", 100)
    assert because(scheduler, "large").endswith("; cpu-1 is reserved for it")
    assert comes(scheduler, "small", 40)  # On the other node.
    assert not comes(scheduler, "next", 40)
    assert goes(scheduler, "b") == ["large"]
    assert goes(scheduler, "a") == ["next"]


def test_it_goes_elsewhere_when_another_node_is_free_first():
    scheduler = a_scheduler(nodes=2)
    for name in ("a", "b"):
        comes(scheduler, name, 40)
    comes(scheduler, "large", 100)
    assert goes(scheduler, "a") == ["large"]
    assert comes(scheduler, "small", 40) == ["small"]  # Where it had a reservation.


def test_a_reservation_ends_with_the_last_action_that_waits():
    scheduler = a_scheduler()
    comes(scheduler, "a", 40)
    comes(scheduler, "large", 100)
    assert not comes(scheduler, "small", 40)
    assert started(scheduler.handle(Cancelled(ActionId("large")), 1.0)) == ["small"]


def test_one_that_never_started_gives_its_memory_back_when_it_is_closed():
    scheduler = a_scheduler()
    assert comes(scheduler, "a", 40)
    wide = an_action("wide", 64, trajectory="b")
    scheduler.handle(TrajectoryOpened(TrajectoryId("b"), 60), 0.0)
    assert not started(scheduler.handle(Submitted(wide), 0.0))  # It has memory and no cores.
    assert not comes(scheduler, "c", 60)
    assert started(scheduler.handle(TrajectoryClosed(TrajectoryId("b")), 1.0)) == ["c"]


def test_a_few_nodes_are_reserved_where_there_are_many():
    nodes = NODES_PER_RESERVED * (MOST_RESERVED + 2)
    scheduler = a_scheduler(nodes=nodes)
    for number in range(nodes):
        comes(scheduler, f"a{number}", 40)
    for number in range(MOST_RESERVED + 2):
        comes(scheduler, f"large{number}", 100)
    said = [because(scheduler, f"large{number}") for number in range(MOST_RESERVED + 2)]
    assert sum("is reserved for it" in one for one in said) == MOST_RESERVED
    assert said[-1] == "no node has 100 MB (or room for a pod)"
    second = because(scheduler, "large1").split("; ")[1].split(" ")[0]
    scheduler.handle(NodeDraining(CPU, NodeId(second)), 1.0)
    assert not because(scheduler, "large1").endswith(f"; {second} is reserved for it")


def test_the_job_that_holds_least_for_its_share_goes_first():
    scheduler = a_scheduler(shares={"rich": 3.0})
    for number in range(20):
        comes(scheduler, f"a{number}", 10, "poor")
    for number in range(5):
        comes(scheduler, f"b{number}", 10, "rich")
    placed = [name for number in range(6) for name in goes(scheduler, f"a{number}")]
    # The first of the line has its reservation.
    assert placed == ["a10", "b0", "b1", "b2", "b3", "b4"]


class TestLimits:
    def test_a_job_never_has_more_trajectories_than_it_may(self):
        scheduler = a_scheduler(limits={"x": JobLimits(max_trajectories=1)})
        assert comes(scheduler, "a", 10, "x")
        assert not comes(scheduler, "b", 10, "x")
        assert because(scheduler, "b") == "job x has all the trajectories or memory it may have"
        assert comes(scheduler, "c", 10, "y")
        assert goes(scheduler, "a") == ["b"]

    def test_a_job_never_has_more_memory_than_it_may_and_its_own_do_not_pass(self):
        scheduler = a_scheduler(limits={"x": JobLimits(max_memory_mb=50)})
        assert comes(scheduler, "a", 30, "x")
        assert not comes(scheduler, "b", 30, "x")
        assert not comes(scheduler, "c", 10, "x")  # Else such ones could pass it for ever.
        assert comes(scheduler, "d", 60, "y")
        assert goes(scheduler, "a") == ["b", "c"]

    def test_what_is_promised_to_a_job_is_kept_free(self):
        scheduler = a_scheduler(limits={"sure": JobLimits(min_memory_mb=40)})
        assert comes(scheduler, "a", 60, "x")
        assert not comes(scheduler, "b", 20, "x")
        assert comes(scheduler, "c", 40, "sure")
        assert goes(scheduler, "c") == []
        assert goes(scheduler, "a") == ["b"]

    def test_a_job_below_its_minimum_goes_first(self):
        scheduler = a_scheduler(limits={"sure": JobLimits(min_trajectories=2)})
        assert comes(scheduler, "s", 90, "sure")
        assert comes(scheduler, "x", 10, "x")
        for name, job in (("b", "x"), ("c", "x"), ("d", "sure")):
            assert not comes(scheduler, name, 10, job)
        assert goes(scheduler, "x") == ["b"]  # It had its reservation.
        assert goes(scheduler, "b") == ["d"]

    def test_one_that_takes_no_room_is_not_kept_by_the_minimum_of_others(self):
        scheduler = a_scheduler(limits={"sure": JobLimits(min_memory_mb=100)})
        assert not comes(scheduler, "b", 20, "x")
        assert comes(scheduler, "c", 0, "x")

    def test_nothing_is_reserved_that_no_open_node_could_hold(self):
        scheduler = a_scheduler(nodes=2, limits={"x": JobLimits(max_trajectories=5)})
        comes(scheduler, "a", 60, "x")
        comes(scheduler, "b", 60, "x")
        for node in ("cpu-0", "cpu-1"):
            scheduler.handle(NodeDraining(CPU, NodeId(node)), 0.0)
        assert not comes(scheduler, "c", 60, "x")
        assert (
            because(scheduler, "c")
            == "every node it could live on is lost or draining, or does not answer"
        )
