"""Services that come while the scheduler runs, and calls that were turned away."""

import pytest
from builders import an_action

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, Resource, ServiceId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, GpuSpec, QuotaSpec, ServiceSpec
from artangram.core.scheduling.decisions import Report, Start
from artangram.core.scheduling.events import Cancelled, Finished, ServiceDeployed, Submitted
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler

GPU = Resource("gpu")
LATE = ServiceId("late")
SPEC = ServiceSpec(pool=GPU, weights_mb=1000, batch=2, restore_s=3.0)


def a_scheduler(name: str = "elastic") -> Scheduler:
    cluster = ClusterSpec(
        pools={
            Resource("cpu"): CpuSpec(nodes=1, cores=1, memory_mb=100),
            GPU: GpuSpec(nodes=1, devices=1, memory_mb=2000),
            Resource("search"): QuotaSpec(concurrency=1),
        }
    )
    return Scheduler(cluster, policy(name))


@pytest.mark.parametrize("name", ["elastic", "tangram", "fcfs", "load-per-call"])
def test_a_service_can_be_called_once_it_is_deployed(name: str) -> None:
    scheduler = a_scheduler(name)
    early = Submitted(an_action("early", {"gpu": 1}, service="late"))
    (report,) = scheduler.handle(early, 0.0)
    assert isinstance(report, Report)
    assert report.record.outcome is Outcome.REFUSED
    scheduler.handle(ServiceDeployed(LATE, SPEC), 1.0)
    decisions = scheduler.handle(Submitted(an_action("a", {"gpu": 1}, service="late")), 2.0)
    (start,) = [d for d in decisions if isinstance(d, Start)]
    assert start.lease.prepare_s == 3.0, "as long as a restore was measured to take"


def test_devices_that_were_split_have_none_for_a_later_service() -> None:
    scheduler = a_scheduler("static")
    scheduler.handle(ServiceDeployed(LATE, SPEC), 1.0)
    decisions = scheduler.handle(Submitted(an_action("a", {"gpu": 1}, service="late")), 2.0)
    (report,) = [d for d in decisions if isinstance(d, Report)]
    assert "no static deployment" in report.record.reason


def test_calls_of_a_later_service_share_its_copy() -> None:
    scheduler = a_scheduler()
    scheduler.handle(ServiceDeployed(LATE, SPEC), 0.0)
    started = [
        decision
        for name in "ab"
        for decision in scheduler.handle(
            Submitted(an_action(name, {"gpu": 1}, service="late")), 0.0
        )
        if isinstance(decision, Start)
    ]
    assert len(started) == 2, "it serves two at a time"


def test_a_name_is_given_once_and_to_devices() -> None:
    scheduler = a_scheduler()
    scheduler.handle(ServiceDeployed(LATE, SPEC), 0.0)
    with pytest.raises(BadInput, match="already deployed"):
        scheduler.handle(ServiceDeployed(LATE, SPEC), 0.0)
    elsewhere = ServiceSpec(pool=Resource("cpu"), weights_mb=1)
    with pytest.raises(BadInput, match="has no devices"):
        scheduler.handle(ServiceDeployed(ServiceId("other"), elsewhere), 0.0)


def turned_away(attempt: int) -> Finished:
    return Finished(
        ActionId("a"), Outcome.INFRA_FAILED, 0.0, "429", attempt=attempt, turned_away=True
    )


def test_who_was_turned_away_starts_again_as_often_as_it_takes() -> None:
    scheduler = a_scheduler()
    scheduler.handle(Submitted(an_action("a", {"search": 1}, deadline_at=50.0)), 0.0)
    for attempt in range(1, 20):
        decisions = scheduler.handle(turned_away(attempt), float(attempt))
        (start,) = [d for d in decisions if isinstance(d, Start)]
        assert start.lease.attempt == attempt + 1
    decisions = scheduler.handle(turned_away(20), 50.0)
    (report,) = [d for d in decisions if isinstance(d, Report)]
    assert report.record.outcome is Outcome.INFRA_FAILED, "its time is up"


def test_who_was_cancelled_does_not_start_again() -> None:
    scheduler = a_scheduler()
    scheduler.handle(Submitted(an_action("a", {"search": 1})), 0.0)
    scheduler.handle(Cancelled(ActionId("a")), 1.0)
    (report,) = scheduler.handle(turned_away(1), 2.0)
    assert isinstance(report, Report)
    assert report.record.outcome is Outcome.CANCELLED


def test_being_turned_away_uses_up_no_attempt() -> None:
    scheduler = a_scheduler()
    scheduler.handle(Submitted(an_action("a", {"search": 1}, repeatable=True)), 0.0)
    for attempt in range(1, 6):
        scheduler.handle(turned_away(attempt), float(attempt))
    for attempt in (6, 7):
        failed = Finished(ActionId("a"), Outcome.INFRA_FAILED, 0.0, "it died", attempt=attempt)
        assert [type(d) for d in scheduler.handle(failed, float(attempt))] == [Start]
    failed = Finished(ActionId("a"), Outcome.INFRA_FAILED, 0.0, "it died", attempt=8)
    (report,) = scheduler.handle(failed, 8.0)
    assert isinstance(report, Report)
