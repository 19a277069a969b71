"""What a run sees of its cluster: times by kind, and how much was at work."""

from contextlib import aclosing

import pytest

from artangram.core.ids import ActionId, JobId, Resource, ServiceId
from artangram.core.scheduling.action import ActionRecord, Outcome
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    QuotaSpec,
)
from artangram.managers.call import ApiCall, FunctionCall, ServiceCall
from artangram.orchestrator.records import ActionResult
from artangram.pipeline.meter import Meter, Metered, capacity_of


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def a_result(kind="k", *, at=0.0, wait_s=1.0, run_s=2.0, units=1, core_s=0.0):
    record = ActionRecord(
        action_id=ActionId("a"),
        job=JobId("j"),
        task="t",
        kind=kind,
        trajectory=None,
        outcome=Outcome.SUCCEEDED,
        reason="",
        submitted_at=at,
        started_at=at + wait_s,
        began_at=at + wait_s,
        ended_at=at + wait_s + run_s,
        attempts=1,
        units=units,
    )
    return ActionResult(record=record, core_s=core_s)


@pytest.fixture
def clock():
    return Clock()


def test_kinds_have_mean_times(clock):
    meter = Meter(clock, {})
    for wait_s in (1.0, 3.0):
        meter.add(a_result("x", wait_s=wait_s))
    meter.add(a_result("y", run_s=5.0))
    kinds = meter.take().kinds
    assert (kinds["x"].count, kinds["x"].act_s, kinds["x"].wait_s) == (2, 4.0, 2.0)
    assert (kinds["y"].run_s, kinds["y"].act_s) == (5.0, 6.0)


def test_busy_is_a_mean_over_the_time_since_the_last_look(clock):
    meter = Meter(clock, {"cpu": 4.0})
    meter.add(a_result(core_s=20.0))
    clock.now = 10.0
    usage = meter.take()
    assert (usage.busy["cpu"], usage.share("cpu")) == (2.0, 0.5)
    clock.now = 20.0
    assert meter.take().busy == {}


def test_calls_count_for_what_they_hold(clock):
    meter = Meter(clock, {})
    judge = ServiceCall(service=ServiceId("judge"), body=b"")
    # Two at once are one batch on two devices; the third comes when they are over.
    meter.add(a_result(at=0.0, units=2), judge)
    meter.add(a_result(at=0.5, units=2), judge)
    meter.add(a_result(at=6.0, units=2), judge)
    meter.add(a_result(), FunctionCall(function="f", body=b""))
    meter.add(a_result(), ApiCall(api=Resource("search")))
    clock.now = 10.0
    busy = meter.take().busy
    assert busy == {"devices": pytest.approx(0.9), "functions": 0.2, "search": 0.1}


def test_a_cluster_has_so_much_of_everything():
    pools = {
        "cpu": CpuSpec(nodes=2, cores=8, memory_mb=1),
        "gpu": GpuSpec(nodes=2, devices=4, memory_mb=1),
        "functions": FunctionsSpec(ceiling=5),
        "search": QuotaSpec(limit=120, window_s=60.0),
        "free": QuotaSpec(concurrency=3),
    }
    cluster = ClusterSpec(pools={Resource(name): spec for name, spec in pools.items()})
    assert capacity_of(cluster) == {"cpu": 16, "devices": 8, "functions": 5, "search": 2.0}


async def test_a_stream_that_its_reader_leaves_is_closed_at_once(clock):
    class Endless:
        is_closed = False

        async def stream(self, request):
            try:
                while True:
                    yield b"more"
            finally:
                self.is_closed = True

    backend = Endless()
    async with aclosing(Metered(backend, Meter(clock, {})).stream(None)) as pieces:
        async for _ in pieces:
            break
    assert backend.is_closed
