"""Events that name what the cluster does not have are refused with a way out."""

import pytest
from builders import a_cluster, a_cpu, a_gpu, a_scheduler, an_action, leases

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.cluster import QuotaSpec, ServiceSpec
from artangram.core.scheduling.events import (
    Event,
    NodeJoined,
    NodeLost,
    ServiceLost,
    Submitted,
    Throttled,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler

NODE, NOWHERE, SEARCH = NodeId("disk-0"), Resource("disk"), Resource("search")


@pytest.mark.parametrize(
    ("event", "known"),
    [
        (NodeJoined(NOWHERE, NODE), "cpu, gpu"),
        (NodeLost(NOWHERE, NODE), "cpu, gpu"),
        (NodeLost(SEARCH, NODE), "cpu, gpu"),
        (ServiceLost(Resource("cpu"), NODE, 0, 1, ServiceId("a")), "gpu"),
        (Throttled(NOWHERE, 5.0), "search"),
    ],
)
def test_an_event_about_an_unknown_pool_is_bad_input(event: Event, known: str):
    scheduler = a_scheduler(cpu=a_cpu(), gpu=a_gpu(), search=QuotaSpec(concurrency=1))
    with pytest.raises(BadInput, match=f"no such pool.*name one of: {known}$"):
        scheduler.handle(event, 0.0)


def test_a_cluster_without_such_pools_says_so():
    with pytest.raises(BadInput, match="has none of its kind"):
        a_scheduler(cpu=a_cpu()).handle(Throttled(SEARCH, 5.0), 0.0)


def test_a_lost_service_nobody_knows_changes_nothing():
    scheduler = a_scheduler(gpu=a_gpu())
    event = ServiceLost(Resource("gpu"), NodeId("gpu-0"), 0, 1, ServiceId("a"))
    assert scheduler.handle(event, 0.0) == []


@pytest.mark.parametrize(("primary", "overhead_s"), [("gpu", 0.0), ("search", 0.0), ("gpu", 9.0)])
def test_a_sandbox_on_the_side_is_made_while_the_rest_is_prepared(primary: str, overhead_s: float):
    cluster = a_cluster(
        cpu=a_cpu(create_s=2.0, overhead_s=0.5),
        gpu=a_gpu(overhead_s=overhead_s),
        search=QuotaSpec(concurrency=4),
        services={"a": ServiceSpec(pool=Resource("gpu"), weights_mb=0, degrees=(1, 2))},
    )
    needs = {"cpu": 1, primary: {"min": 1, "max": 2}}
    service = "a" if primary == "gpu" else None
    action = an_action("a", needs, elastic=primary, service=service)
    (lease,) = leases(Scheduler(cluster, policy("elastic")).handle(Submitted(action), 0.0))
    assert lease.prepare_s == max(2.5, overhead_s)
