"""Policies by name, and the words for names that are wrong."""

import pytest
from builders import a_scheduler, allocation, an_elastic, leases

from artangram.core.errors import BadInput
from artangram.core.scheduling.events import Submitted
from artangram.core.scheduling.lease import Cores, CoreShare
from artangram.core.scheduling.policies.catalog import policy

EVERY = ["elastic", "tangram", "tangram:elastic", "fcfs", "fixed", "fixed:2", "pods"]
EVERY += ["pods:1", "pods:0.5/4", "overcommit", "static", "static:2", "load-per-call", "unmanaged"]


@pytest.mark.parametrize("name", EVERY)
def test_every_policy_starts_an_action(name):
    scheduler = a_scheduler(name)
    assert scheduler.policy.name == name
    assert leases(scheduler.handle(Submitted(an_elastic("a")), 0.0))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("best", "policy: unknown policy 'best'; use one of: elastic, fcfs, fixed, load-per-call"),
        ("fcfs:3", "policy: fcfs takes no argument; write fcfs instead of fcfs:3"),
        ("elastic:x", "policy: 'elastic:x' has no valid weight of the tail; as in elastic:4"),
        ("tangram:x", "policy: 'tangram:x' does not say which candidates may be held back; write"),
        ("fixed:x", "policy: 'fixed:x' has no valid number of cores; as in fixed:4, pods:2"),
        ("elastic:", "policy: 'elastic:' has no valid weight of the tail; as in elastic:4"),
        ("fixed:", "policy: 'fixed:' has no valid number of cores; as in fixed:4, pods:2"),
        ("fixed:2.5", "policy: 'fixed:2.5' is not a whole number of units; as in fixed:4, sta"),
        ("static:0.5", "policy: 'static:0.5' is not a whole number of units; as in fixed:4"),
        ("pods:1/", "policy: 'pods:1/' has no valid number of cores; as in fixed:4, pods:2"),
        ("pods:0", "policy: 'pods:0' has no valid number of cores; as in fixed:4, pods:2"),
        ("pods:4/1", "policy: 'pods:4/1' limits a pod below its request; as in pods:0.5/4"),
        ("pods:1/nan", "policy: 'pods:1/nan' has no valid number of cores; as in fixed:4"),
    ],
)
def test_a_wrong_name_says_what_is_right(name, said):
    with pytest.raises(BadInput) as caught:
        policy(name)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("name", "units"), [("fcfs", 2), ("fixed:4", 4), ("fixed:1", 2)])
def test_one_size_fits_all(name, units):
    given = allocation(a_scheduler(name).handle(Submitted(an_elastic("a", 2, 8)), 0.0))
    assert isinstance(given, Cores)
    assert given.units == units


@pytest.mark.parametrize(
    ("name", "share", "workers"),
    [
        ("pods:2", (2000, 2000, 2), 2),
        ("pods:0.5/4", (500, 4000, 4), 4),
        ("pods:1/99", (1000, 8000, 8), 8),
        ("overcommit", (1000, 8000, 8), 8),
        ("pods:1", (1000, 1000, 1), 2),
    ],
)
def test_pods_get_a_share_and_as_many_workers_as_they_see_cores(name, share, workers):
    decisions = a_scheduler(name).handle(Submitted(an_elastic("a", 2, 8)), 0.0)
    given = allocation(decisions)
    assert isinstance(given, CoreShare)
    assert (given.weight_milli, given.limit_milli, given.units) == share
    assert leases(decisions)[0].workers == workers
