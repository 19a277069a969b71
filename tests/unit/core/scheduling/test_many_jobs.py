"""Callers make up names of jobs: what is remembered of them has a bound, and is no way ahead."""

from collections.abc import Iterator
from weakref import WeakSet

import pytest
from builders import a_cluster, a_cpu, a_gpu, a_waiting_ticket, an_action, policy, started

from artangram.core.ids import ActionId, JobId, Resource
from artangram.core.scheduling.cluster import FunctionsSpec, QuotaSpec, ServiceSpec
from artangram.core.scheduling.events import Cancelled, Finished, Submitted
from artangram.core.scheduling.policies.queue import MOST_JOBS, FairUsage
from artangram.core.scheduling.scheduler import Scheduler

CLUSTER = a_cluster(
    cpu=a_cpu(cores=1),
    gpu=a_gpu(devices=1),
    search=QuotaSpec(concurrency=1),
    functions=FunctionsSpec(ceiling=1),
    services={"judge": ServiceSpec(pool=Resource("gpu"), weights_mb=100)},
)
EVERY_POOL = ["cpu", "gpu", "search", "functions"]
MANY = 2 * MOST_JOBS


class Name(str):
    """A text whose end can be seen."""


def names(alive: WeakSet[Name]) -> Iterator[Name]:
    for number in range(MANY):
        name = Name(f"job-{number}")
        alive.add(name)
        yield name


def one_of(job: str, resource: str) -> Submitted:
    service = "judge" if resource == "gpu" else None
    return Submitted(an_action("a", {resource: 1}, service=service, job=job, work_s=1.0))


@pytest.mark.parametrize("resource", EVERY_POOL)
def test_jobs_of_one_action_each_are_forgotten(resource):
    scheduler, alive = Scheduler(CLUSTER, policy("elastic")), WeakSet()
    for now, name in enumerate(names(alive)):
        assert started(scheduler.handle(one_of(name, resource), now)) == ["a"]
        scheduler.handle(Finished(ActionId("a")), now + 0.5)
    assert len(alive) <= MOST_JOBS + 1


@pytest.mark.parametrize("resource", EVERY_POOL)
def test_jobs_that_left_the_queue_are_forgotten(resource):
    scheduler, alive = Scheduler(CLUSTER, policy("elastic")), WeakSet()
    for name in names(alive):
        scheduler.take_in([one_of(name, resource), Cancelled(ActionId("a"))], 0.0)
    scheduler.handle_all([], 0.0)
    assert len(alive) <= MOST_JOBS + 1


def test_who_is_forgotten_gains_nothing():
    served, jobs = FairUsage({}), [JobId(f"job-{number}") for number in range(MOST_JOBS)]
    for number, job in enumerate(jobs):
        served.charge(a_waiting_ticket(number, job=job), float(number % 100))
    before = {job: served.of(job) for job in jobs}
    served.wait(JobId("one more"))
    after = {job: served.of(job) for job in jobs}
    assert all(after[job] >= before[job] for job in jobs)
    ranked = sorted(jobs, key=before.__getitem__)
    assert [after[job] for job in ranked] == sorted(after.values())
    assert len(set(after.values())) > 10  # Who got much is still told apart.


def test_who_got_most_is_still_behind_when_it_comes_back():
    served, greedy = FairUsage({}), JobId("greedy")
    served.charge(a_waiting_ticket(0, job=greedy), 1000.0)
    for number in range(MANY):
        served.charge(a_waiting_ticket(number, job=f"job-{number}"), 1.0)
    served.wait(greedy)
    served.wait(JobId("new"))
    assert served.of(greedy) == 1000.0
    old, new = (a_waiting_ticket(seq, job=job) for seq, job in enumerate(("greedy", "new")))
    assert served.goes_first(new, old)
