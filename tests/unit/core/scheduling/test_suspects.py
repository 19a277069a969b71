"""A node that does not answer gets nothing new, and loses nothing until it is given up."""

from builders import CPU, a_cpu, a_scheduler, an_action, records, started

from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import QuotaSpec
from artangram.core.scheduling.events import (
    Finished,
    NodeLost,
    NodeSuspected,
    NodeTrusted,
    Submitted,
    TrajectoryOpened,
)
from artangram.core.scheduling.scheduler import Scheduler

FIRST, OTHER = NodeId("cpu-0"), NodeId("cpu-1")


def submitted(scheduler: Scheduler, name: str, **fields: object) -> list[str]:
    return started(scheduler.handle(Submitted(an_action(name, 1, **fields)), 0.0))


def suspected(scheduler: Scheduler, node: NodeId = FIRST) -> None:
    assert scheduler.handle(NodeSuspected(CPU, node), 0.0) == []


def trusted(scheduler: Scheduler, node: NodeId = FIRST) -> list[str]:
    return started(scheduler.handle(NodeTrusted(CPU, node), 1.0))


def test_nothing_starts_on_a_suspect_node_until_it_is_trusted():
    scheduler = a_scheduler(cpu=a_cpu())
    suspected(scheduler)
    assert submitted(scheduler, "a") == []
    assert "does not answer" in scheduler.explain(ActionId("a"), 0.0).summary
    assert trusted(scheduler) == ["a"]


def test_a_trajectory_that_lives_there_waits():
    scheduler = a_scheduler(cpu=a_cpu())
    scheduler.handle(TrajectoryOpened(TrajectoryId("t"), 10), 0.0)
    assert submitted(scheduler, "a", trajectory="t") == ["a"]
    suspected(scheduler)
    scheduler.handle(Finished(ActionId("a"), Outcome.SUCCEEDED), 0.5)
    assert submitted(scheduler, "b", trajectory="t") == []
    summary = scheduler.explain(ActionId("b"), 0.5).summary
    assert summary == "cpu: cpu-0 does not answer at the moment"
    assert trusted(scheduler) == ["b"]


def test_new_work_goes_to_another_node():
    scheduler = a_scheduler(cpu=a_cpu(nodes=2))
    suspected(scheduler)
    assert submitted(scheduler, "a") == ["a"]
    assert submitted(scheduler, "b") == ["b"]
    scheduler.handle(NodeLost(CPU, OTHER, "the power went"), 0.0)
    assert submitted(scheduler, "c") == []


def test_what_runs_there_ends_as_it_ends():
    scheduler = a_scheduler(cpu=a_cpu())
    assert submitted(scheduler, "a") == ["a"]
    suspected(scheduler)
    (record,) = records(scheduler.handle(Finished(ActionId("a"), Outcome.SUCCEEDED), 2.0))
    assert record.outcome is Outcome.SUCCEEDED


def test_a_suspect_node_lends_nothing_on_the_side():
    spec = QuotaSpec(concurrency=2, limit=10, window_s=10.0)
    scheduler = a_scheduler(cpu=a_cpu(), search=spec)
    scheduler.handle(TrajectoryOpened(TrajectoryId("t"), 10), 0.0)
    assert submitted(scheduler, "a", trajectory="t") == ["a"]
    suspected(scheduler)
    both = an_action("b", {"search": 1, "cpu": 1}, trajectory="t")
    assert started(scheduler.handle(Submitted(both), 0.0)) == []
    assert trusted(scheduler) == ["b"]


def test_a_suspect_node_that_is_lost_is_forgotten():
    scheduler = a_scheduler(cpu=a_cpu(nodes=2))
    suspected(scheduler)
    scheduler.handle(NodeLost(CPU, FIRST, "it was silent"), 1.0)
    assert trusted(scheduler) == []
    suspected(scheduler)
