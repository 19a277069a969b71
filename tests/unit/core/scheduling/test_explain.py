"""Why is it waiting? In words, per resource."""

from time import process_time

import pytest
from builders import (
    a_cluster,
    a_cpu,
    a_gpu,
    a_scheduler,
    a_waiting_ticket,
    an_action,
    an_elastic,
    policy,
)

from artangram.core.ids import ActionId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import FunctionsSpec, QuotaSpec, ServiceSpec
from artangram.core.scheduling.events import (
    ClockTicked,
    Finished,
    NodeLost,
    Submitted,
    Throttled,
    TrajectoryOpened,
)
from artangram.core.scheduling.explain import Explanation, explanation
from artangram.core.scheduling.policies.base import WaitReason
from artangram.core.scheduling.scheduler import Scheduler

SEARCH = Resource("search")


def explained(scheduler: Scheduler, name: str) -> Explanation:
    return scheduler.explain(ActionId(name), 0.0)


def hindrance(scheduler: Scheduler, name: str) -> WaitReason:
    (only,) = explained(scheduler, name).hindrances
    return only


def submitted(scheduler: Scheduler, *actions: object) -> Scheduler:
    for action in actions:
        scheduler.handle(Submitted(action), 0.0)
    return scheduler


def test_a_running_action_does_not_wait():
    scheduler = submitted(a_scheduler("fcfs"), an_action("a", 2))
    said = explained(scheduler, "a")
    assert (said.state, said.hindrances) == ("running", ())
    assert said.summary == "runs on 2 units since 0.000 s"


def test_one_that_was_preempted_says_so():
    long, short = an_elastic("a", 6, 8, work_s=100.0), an_action("b", 4, work_s=0.1)
    said = explained(submitted(a_scheduler("elastic"), long, short), "a")
    assert (said.state, said.summary.partition(" for")[0]) == ("running", "was preempted")


def test_an_unknown_action_is_an_error():
    with pytest.raises(KeyError):
        explained(a_scheduler(), "a")


def test_before_it_was_looked_at_it_is_about_to_start():
    assert explanation(a_waiting_ticket(1), []).summary == "it can start and is about to"


@pytest.mark.parametrize("name", ["fcfs", "tangram"])
def test_a_line_says_how_many_came_before(name):
    scheduler = submitted(a_scheduler(name), an_action("a", 6), an_action("b", 4), an_action("c"))
    said = hindrance(scheduler, "c")
    assert (said.needed, said.free, said.ahead) == (1, 2, 1)
    assert said.because == "1 actions came before it and 2 cores are free"
    assert said.starts_when == "those have started and 1 cores of cpu-0 are free"
    assert explained(scheduler, "c").summary == f"cpu: {said.because}"


class TestElastic:
    def test_cores_of_those_that_are_expected_to_end_sooner(self):
        scheduler = submitted(
            a_scheduler("elastic"), an_action("a", 6, work_s=1.0), an_action("b", 4, work_s=10.0)
        )
        said = hindrance(scheduler, "b")
        assert said.because == (
            "waits for 4 cores on cpu-0; what runs there is expected to end sooner"
        )
        assert said.starts_when.startswith("2 more of the cores of cpu-0 come back; overdue in ")
        assert said.starts_when.endswith(" s: then nothing from its job can overtake it")

    def test_one_core(self):
        scheduler = submitted(
            a_scheduler("elastic"), an_action("a", 8, work_s=1.0), an_action("b", work_s=50.0)
        )
        assert hindrance(scheduler, "b").because.startswith("waits for 1 core on cpu-0; ")

    def test_candidates_that_go_first(self):
        big, small = an_action("b", 8, work_s=0.3), an_action("c", 8, work_s=100.0)
        scheduler = submitted(a_scheduler("elastic"), an_action("a", 8, work_s=0.2), big, small)
        said = hindrance(scheduler, "c")
        assert (
            said.because
            == "1 that are expected to end sooner, are overdue or have priority go first"
        )
        assert "those ahead of it (1) have started; overdue in " in said.starts_when

    def test_one_that_is_overdue(self):
        scheduler = submitted(
            a_scheduler("elastic"), an_action("a", 6, work_s=1.0), an_action("b", 4, work_s=2.0)
        )
        (said,) = scheduler.explain(ActionId("b"), 1000.0).hindrances
        assert said.starts_when.startswith("its cores are free: it is overdue")

    def test_running_actions_that_are_worth_more(self):
        curve = {"amdahl": 0.0}
        scheduler = a_scheduler("elastic", cpu=a_cpu(cores=8))
        submitted(scheduler, an_elastic("a", 1, 8, work_s=1.0, speedup=curve))
        submitted(scheduler, an_elastic("b", 1, 8, work_s=500.0, speedup={"amdahl": 0.5}))
        said = hindrance(scheduler, "b")
        assert said.because == (
            "running actions that are expected to end sooner are worth the cores more"
        )
        assert said.starts_when.startswith("others end; overdue in ")


class TestCalls:
    def a_scheduler(self, name: str = "elastic", **quota: object) -> Scheduler:
        return a_scheduler(name, cpu=a_cpu(cores=1), search=QuotaSpec(**quota))

    def test_a_call_under_way_has_to_end(self):
        scheduler = self.a_scheduler(concurrency=1)
        submitted(scheduler, *(an_action(name, {"search": 1}) for name in "abc"))
        said = hindrance(scheduler, "c")
        assert said.because == "0 of search can be had now and 1 actions go first"
        assert said.starts_when == "a call under way ends; 1 actions go first"

    def test_a_window_has_to_move_on(self):
        scheduler = self.a_scheduler(limit=1, window_s=60.0)
        submitted(scheduler, *(an_action(name, {"search": 1}) for name in "ab"))
        assert hindrance(scheduler, "b").starts_when == (
            "the window moves on in 60.000 s; 0 actions go first"
        )

    def test_a_refused_client_backs_off(self):
        scheduler = self.a_scheduler("unmanaged", concurrency=1)
        submitted(scheduler, *(an_action(name, {"search": 1}) for name in "ab"))
        said = hindrance(scheduler, "b")
        assert said.because == "the API refused it and it backs off"
        assert (said.free, said.starts_when) == (0, "its next try finds room in the window")

    def test_the_api_asked_for_a_pause(self):
        scheduler = self.a_scheduler(concurrency=1)
        scheduler.handle(Throttled(SEARCH, 9.0), 0.0)
        submitted(scheduler, an_action("a", {"search": 1}))
        assert hindrance(scheduler, "a").starts_when == (
            "the API takes calls again in 9.000 s; 0 actions go first"
        )

    def test_a_second_resource_is_missing(self):
        scheduler = self.a_scheduler(concurrency=1)
        scheduler.handle(Throttled(SEARCH, 9.0), 0.0)
        submitted(scheduler, an_action("a", {"cpu": 1, "search": 1}))
        said = hindrance(scheduler, "a")
        assert said.because == "1 of search are not free at the same time as the rest"
        assert (said.ahead, said.starts_when) == (0, "1 of search are given back")

    def test_what_is_free_of_a_large_quota_is_not_counted_one_by_one(self):
        most = 1_000_000
        scheduler = self.a_scheduler("fcfs", concurrency=most)
        submitted(scheduler, an_action("a", {"search": most - 3}))
        submitted(scheduler, an_action("b", {"cpu": 1, "search": most}))
        began = process_time()
        said = hindrance(scheduler, "b")
        assert (said.needed, said.free) == (most, 3)
        assert process_time() - began < 0.05

    def test_somebody_overdue_has_a_claim(self):
        scheduler = self.a_scheduler("fcfs", concurrency=1)
        scheduler.handle(Throttled(SEARCH, 9.0), 0.0)
        submitted(scheduler, an_action("a", {"cpu": 1, "search": 1}), an_action("b"))
        said = hindrance(scheduler, "b")
        assert said.because == "an overdue action has a claim on what it needs"
        assert said.starts_when == "that one has started"

    def test_slots_are_counted(self):
        scheduler = a_scheduler(functions=FunctionsSpec(ceiling=1))
        submitted(scheduler, *(an_action(name, {"functions": 1}) for name in "ab"))
        assert hindrance(scheduler, "b").starts_when == (
            "0 actions ahead of it have started and 1 are free"
        )


class TestDevices:
    def a_scheduler(self, name: str = "fcfs") -> Scheduler:
        gpu = Resource("gpu")
        services = {
            "a": ServiceSpec(pool=gpu, weights_mb=10, degrees=(1, 2)),
            "b": ServiceSpec(pool=gpu, weights_mb=10, degrees=(4,)),
        }
        return Scheduler(a_cluster(gpu=a_gpu(), services=services), policy(name))

    def test_devices_are_missing(self):
        scheduler = self.a_scheduler()
        submitted(scheduler, an_action("x", {"gpu": 1}, service="a"))
        submitted(scheduler, *(an_action(n, {"gpu": 4}, service="b") for n in "yz"))
        assert hindrance(scheduler, "y").because == "4 devices are needed, 3 are free"
        assert hindrance(scheduler, "z").because == "1 actions go first"

    def test_free_devices_are_kept_for_somebody(self):
        scheduler = self.a_scheduler("elastic")
        submitted(scheduler, an_action("x", {"gpu": 1}, service="a", work_s=1000.0))
        submitted(scheduler, an_action("wide", {"gpu": 4}, service="b", work_s=1.0))
        scheduler.handle(ClockTicked(), 100.0)
        scheduler.handle(Submitted(an_action("y", {"gpu": 1}, service="a")), 100.0)
        assert hindrance(scheduler, "wide").because == "4 devices are needed, 3 are free"
        said = hindrance(scheduler, "y")
        assert (said.needed, said.free) == (1, 3)
        assert said.because == "free devices are kept for an overdue action"
        assert said.starts_when == "that one has started"

    def test_a_copy_is_soon_free(self):
        gpu, slow = Resource("gpu"), a_gpu(restore_mb_per_s=1.0)
        services = {"a": ServiceSpec(pool=gpu, weights_mb=100)}
        scheduler = Scheduler(a_cluster(gpu=slow, services=services), policy("elastic"))
        calls = [Submitted(an_action(n, {"gpu": 1}, service="a", work_s=1.0)) for n in "xyz"]
        scheduler.handle(calls[0], 0.0)
        scheduler.handle_all([Finished(ActionId("x")), *calls[1:]], 101.0)
        assert scheduler.explain(ActionId("z"), 101.0).hindrances[0].because == (
            "a is busy and restoring another copy takes longer"
        )

    def test_more_devices_are_worth_the_wait(self):
        needs, fields = {"gpu": {"choices": [1, 2]}}, {"elastic": "gpu", "service": "a"}
        scheduler = self.a_scheduler("tangram")
        submitted(scheduler, *(an_action(n, {"gpu": 1}, service="a", work_s=0.1) for n in "xyz"))
        linear = {"speedup": {"power": 1.0}, "work_s": 100.0}
        submitted(scheduler, an_action("w", needs, **fields, **linear))
        assert hindrance(scheduler, "w").because == "it had better wait for devices that others use"

    def test_a_fixed_degree_is_needed_whole(self):
        needs, fields = {"gpu": {"choices": [1, 2]}}, {"elastic": "gpu", "service": "a"}
        scheduler = self.a_scheduler("fixed:2")
        submitted(scheduler, *(an_action(n, {"gpu": 1}, service="a") for n in "xyz"))
        submitted(scheduler, an_action("w", needs, **fields))
        assert hindrance(scheduler, "w").because == "2 devices are needed, 1 are free"

    def test_static_deployments_are_busy_or_lost(self):
        scheduler = self.a_scheduler("static:1")
        submitted(scheduler, *(an_action(n, {"gpu": 1}, service="a") for n in "xy"))
        said = hindrance(scheduler, "y")
        assert (said.because, said.starts_when) == (
            "every deployment of a is busy",
            "one of them is idle",
        )
        scheduler.handle(NodeLost(Resource("gpu"), NodeId("gpu-0")), 0.0)
        assert hindrance(scheduler, "y").because == "a has lost its devices"

    def test_free_devices_are_not_side_by_side(self):
        gpu = Resource("gpu")
        services = {
            "one": ServiceSpec(pool=gpu, weights_mb=10, degrees=(1,)),
            "two": ServiceSpec(pool=gpu, weights_mb=10, degrees=(2,)),
        }
        scheduler = Scheduler(a_cluster(gpu=a_gpu(), services=services), policy("fcfs"))
        submitted(scheduler, *(an_action(f"{n}", {"gpu": 1}, service="one") for n in range(4)))
        for name in ("1", "3"):
            scheduler.handle(Finished(ActionId(name)), 0.0)
        submitted(scheduler, an_action("wide", {"gpu": 2}, service="two"))
        assert (
            hindrance(scheduler, "wide").because == "2 devices are free, but no aligned 2 of them"
        )


def test_what_was_only_just_told_is_not_decided_yet():
    scheduler = a_scheduler("overcommit")
    scheduler.take_in([Submitted(an_action("a"))], 0.0)
    said = hindrance(scheduler, "a")
    assert (said.because, said.starts_when) == ("it was only just submitted", "at once")


def test_no_node_is_left():
    scheduler = a_scheduler()
    scheduler.handle(NodeLost(Resource("cpu"), NodeId("cpu-0")), 0.0)
    said = hindrance(submitted(scheduler, an_action("a")), "a")
    assert (said.because, said.starts_when) == (
        "all nodes are lost",
        "one is there again; 0 go first",
    )


def test_no_node_has_the_memory():
    scheduler = a_scheduler()
    for name, mb in (("t", 700), ("u", 400)):
        scheduler.handle(TrajectoryOpened(TrajectoryId(name), mb), 0.0)
    submitted(scheduler, *(an_action(name, trajectory=name) for name in "tu"))
    said = hindrance(scheduler, "u")
    assert (said.resource, said.needed, said.free) == ("cpu memory_mb", 400, 300)
    assert said.because == "no node has 400 MB (or room for a pod); cpu-0 is reserved for it"
    assert said.starts_when == "trajectories on cpu-0 end and free 400 MB"
