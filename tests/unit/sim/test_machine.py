"""The physics of the simulated machine, worked out by hand."""

import pytest
from sim_support import CPU, a_cluster, a_cpu_cluster, an_action, an_elastic_action

from artangram.core.ids import ActionId, NodeId, Resource, ServiceId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.cluster import (
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    QuotaSpec,
    ServiceSpec,
)
from artangram.core.scheduling.lease import (
    Allocation,
    Calls,
    Cores,
    CoreShare,
    Devices,
    FunctionSlots,
    Lease,
)
from artangram.observe.trace import TraceAction
from artangram.sim.machine import Machine

GPU = Resource("gpu")
JUDGE = ServiceId("judge")


def cores(count: int, node: str = "cpu-0") -> Cores:
    return Cores(CPU, NodeId(node), tuple(range(count)))


def a_share(node: str = "cpu-0") -> CoreShare:
    return CoreShare(CPU, NodeId(node), 1000, 1 << 40)


def on_judge(degree: int = 1, first: int = 0) -> Devices:
    return Devices(GPU, NodeId("gpu-0"), first, degree, JUDGE)


def a_gpu_cluster(**fields: object):
    service = ServiceSpec(pool=GPU, weights_mb=1000, degrees=(1, 2), batch=8, **fields)
    return a_cluster({JUDGE: service}, gpu=GpuSpec(nodes=1, devices=4, memory_mb=80_000))


def start(
    machine: Machine,
    name: str,
    action: TraceAction,
    *allocations: Allocation,
    at: float = 0.0,
    workers: int = 1,
    prepare_s: float = 0.0,
) -> None:
    lease = Lease(
        action_id=ActionId(name), allocations=allocations, workers=workers, prepare_s=prepare_s
    )
    machine.start(action, lease, at)


def ends(machine: Machine) -> dict[str, tuple[float, Outcome]]:
    """When and how everything ends if nothing else happens."""
    found = {}
    while (at := machine.next_at()) is not None:
        found |= {end.run.action_id: (at, end.outcome) for end in machine.ended(at)}
    return found


def end_times(machine: Machine) -> dict[str, float]:
    return {name: at for name, (at, _) in ends(machine).items()}


class TestExclusiveCores:
    def test_a_rigid_action_takes_its_work(self):
        machine = Machine(a_cpu_cluster(4))
        start(machine, "a", an_action(3.0, needs={"cpu": 2}), cores(2), workers=2)
        assert end_times(machine) == {"a": 3.0}

    def test_an_elastic_one_is_as_fast_as_its_curve(self):
        machine = Machine(a_cpu_cluster(4))
        start(machine, "a", an_elastic_action(10.0, 4, serial=0.2), cores(4), workers=4)
        assert end_times(machine) == pytest.approx({"a": 10.0 * (0.2 + 0.8 / 4)})

    def test_it_begins_when_its_lease_is_real(self):
        machine = Machine(a_cpu_cluster(4))
        start(machine, "a", an_action(3.0), cores(1), at=1.0, prepare_s=0.5)
        assert end_times(machine) == {"a": 4.5}

    def test_a_squeezed_one_is_slower_by_the_missing_cores_and_the_penalty(self):
        machine = Machine(a_cpu_cluster(4, squeeze_penalty=0.1))
        start(machine, "a", an_elastic_action(8.0, 4, serial=0.0), cores(4), workers=4)
        machine.resize(ActionId("a"), cores(2), 1.0)
        # 4 of 8 are done at 1; two of four cores do 2 x 0.9 a second.
        assert end_times(machine) == pytest.approx({"a": 1.0 + 4.0 / 1.8})

    def test_one_that_stands_aside_makes_no_progress(self):
        machine = Machine(a_cpu_cluster(4))
        start(machine, "a", an_elastic_action(8.0, 4, serial=0.0), cores(4), workers=4)
        machine.resize(ActionId("a"), cores(0), 1.0)
        assert machine.next_at() is None
        machine.resize(ActionId("a"), cores(4), 5.0)
        assert end_times(machine) == {"a": 6.0}

    def test_the_penalty_ends_when_all_workers_have_a_core_again(self):
        machine = Machine(a_cpu_cluster(4, squeeze_penalty=0.1))
        start(machine, "a", an_elastic_action(8.0, 4, serial=0.0), cores(1), workers=4)
        machine.resize(ActionId("a"), cores(4), 2.0)
        assert end_times(machine) == pytest.approx({"a": 2.0 + (8.0 - 2 * 0.9) / 4})

    def test_a_resize_while_it_is_prepared_costs_and_gains_nothing_before_it_begins(self):
        machine = Machine(a_cpu_cluster(4))
        action = an_elastic_action(8.0, 4, serial=0.0)
        start(machine, "a", action, cores(4), workers=4, prepare_s=3.0)
        machine.resize(ActionId("a"), cores(2), 1.0)
        assert end_times(machine) == pytest.approx({"a": 3.0 + 4.0})

    def test_cores_are_in_use_from_the_lease_to_the_end(self):
        machine = Machine(a_cpu_cluster(4))
        action = an_elastic_action(8.0, 4, serial=0.0)
        start(machine, "a", action, cores(4), workers=4, prepare_s=1.0)
        machine.resize(ActionId("a"), cores(2), 2.0)
        assert end_times(machine) == {"a": 4.0}
        assert machine.use[CPU].unit_s == pytest.approx(4 * 2.0 + 2 * 2.0)
        assert machine.use[CPU].mean_share(8.0) == pytest.approx(12 / (4 * 8))


class TestLimits:
    @pytest.mark.parametrize("place", [cores(1), a_share()], ids=["cores", "share"])
    def test_failure_and_timeout_count_from_the_beginning_of_the_program(self, place):
        machine = Machine(a_cpu_cluster(8))
        start(machine, "a", an_action(9.0, fail_at_s=2.0), place, prepare_s=1.0)
        start(machine, "b", an_action(9.0, timeout_s=4.0), place, prepare_s=1.0)
        start(machine, "c", an_action(9.0, fail_at_s=3.0, timeout_s=2.5), place)
        assert ends(machine) == {
            "c": (2.5, Outcome.TIMED_OUT),
            "a": (3.0, Outcome.FAILED),
            "b": (5.0, Outcome.TIMED_OUT),
        }

    @pytest.mark.parametrize("place", [cores(1), a_share()], ids=["cores", "share"])
    def test_what_is_done_before_its_limit_succeeds(self, place):
        machine = Machine(a_cpu_cluster(8))
        start(machine, "a", an_action(2.0, fail_at_s=2.0), place)
        start(machine, "b", an_action(2.0, timeout_s=7.0), place)
        assert ends(machine) == dict.fromkeys("ab", (2.0, Outcome.SUCCEEDED))

    def test_a_squeezed_action_may_not_make_its_timeout(self):
        machine = Machine(a_cpu_cluster(1))
        start(machine, "a", an_action(2.0, timeout_s=3.0), a_share())
        start(machine, "b", an_action(2.0), a_share())
        assert ends(machine) == {"a": (3.0, Outcome.TIMED_OUT), "b": (3.5, Outcome.SUCCEEDED)}


class TestSharedNodes:
    def test_nodes_are_shared_each_for_itself(self):
        machine = Machine(a_cpu_cluster(1, nodes=2))
        start(machine, "a", an_action(1.0), a_share("cpu-0"))
        start(machine, "b", an_action(1.0), a_share("cpu-0"))
        start(machine, "c", an_action(1.0), a_share("cpu-1"))
        assert end_times(machine) == {"c": 1.0, "a": 2.0, "b": 2.0}
        assert machine.use[CPU].unit_s == pytest.approx(3.0)

    def test_a_pool_says_its_penalty_and_an_action_its_curve(self):
        machine = Machine(a_cpu_cluster(2, squeeze_penalty=0.2))
        start(machine, "a", an_elastic_action(4.0, 4, serial=0.5), a_share(), workers=4)
        assert end_times(machine) == pytest.approx({"a": 4.0 * 0.75 / 0.8})

    def test_one_that_is_stopped_leaves_its_cores_to_the_others(self):
        machine = Machine(a_cpu_cluster(1))
        start(machine, "a", an_action(2.0), a_share())
        start(machine, "b", an_action(2.0), a_share())
        assert machine.stop(ActionId("b"), 1.0).action_id == "b"
        assert end_times(machine) == {"a": 2.5}


class TestServices:
    def test_a_batch_slows_down_all_of_it(self):
        machine = Machine(a_gpu_cluster(batch_cost=0.1))
        start(machine, "a", an_action(2.0, needs={"gpu": 1}), on_judge())
        start(machine, "b", an_action(3.0, needs={"gpu": 1}), on_judge(), at=1.0)
        # Together they do 1 / 1.1 a second: a's last second takes 1.1, b does 1 of 3 meanwhile.
        assert end_times(machine) == pytest.approx({"a": 2.1, "b": 4.1})

    def test_a_batch_uses_its_devices_once(self):
        machine = Machine(a_gpu_cluster(batch_cost=0.0))
        for name, work_s in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
            start(machine, name, an_action(work_s, needs={"gpu": 2}), on_judge(2))
        assert end_times(machine) == {"a": 1.0, "c": 2.0, "b": 3.0}
        assert machine.use[GPU].unit_s == pytest.approx(2 * 3.0)

    def test_two_copies_do_not_slow_each_other(self):
        machine = Machine(a_gpu_cluster(batch_cost=0.5))
        start(machine, "a", an_action(2.0, needs={"gpu": 1}), on_judge(first=0))
        start(machine, "b", an_action(2.0, needs={"gpu": 1}), on_judge(first=1))
        assert end_times(machine) == {"a": 2.0, "b": 2.0}

    def test_an_elastic_action_is_faster_on_a_larger_degree(self):
        machine = Machine(a_gpu_cluster())
        action = an_action(
            6.0, needs={"gpu": {"choices": [1, 2]}}, elastic="gpu", speedup={"table": {"2": 1.5}}
        )
        start(machine, "a", action, on_judge(2))
        assert end_times(machine) == {"a": 4.0}


class TestOtherPools:
    def test_a_restore_or_a_cold_start_is_paid_before_the_run(self):
        machine = Machine(a_cluster(score=FunctionsSpec(ceiling=4)))
        slots = FunctionSlots(Resource("score"), 1, 1)
        start(machine, "a", an_action(1.0, needs={"score": 1}), slots, prepare_s=0.5)
        assert end_times(machine) == {"a": 1.5}

    def test_every_allocation_is_in_use_until_the_end(self):
        search = Resource("search")
        machine = Machine(
            a_cluster(
                cpu=CpuSpec(nodes=1, cores=8, memory_mb=1000),
                search=QuotaSpec(concurrency=4),
                free=QuotaSpec(limit=9),
            )
        )
        action = an_action(2.0, needs={"cpu": 1, "search": 3, "free": 1})
        secondary = (Calls(search, 3), Calls(Resource("free"), 1))
        start(machine, "a", action, cores(1), *secondary)
        assert end_times(machine) == {"a": 2.0}
        assert machine.use[search].mean_share(4.0) == pytest.approx(3 * 2 / (4 * 4))
        assert set(machine.use) == {CPU, search}

    def test_a_wide_share_on_the_side_uses_what_the_action_needs(self):
        machine = Machine(a_cluster(cpu=CpuSpec(nodes=1, cores=8, memory_mb=1000)))
        action = an_action(2.0, needs={"gpu": 1, "cpu": 3})
        start(machine, "a", action, Calls(GPU, 1), CoreShare(CPU, NodeId("cpu-0"), 1000, 8000))
        assert end_times(machine) == {"a": 2.0}
        assert machine.use[CPU].unit_s == pytest.approx(6.0)

    def test_a_share_on_the_side_contends_and_is_gone_with_its_action(self):
        machine = Machine(a_cpu_cluster(1))
        start(machine, "a", an_action(2.0, needs={"gpu": 1, "cpu": 1}), Calls(GPU, 1), a_share())
        start(machine, "b", an_action(2.0), a_share())
        # They share the core until 2, when b has done one of its two seconds.
        assert end_times(machine) == pytest.approx({"a": 2.0, "b": 3.0})
        assert machine.use[CPU].unit_s == pytest.approx(3.0)


def test_what_ends_together_is_told_together():
    machine = Machine(a_cpu_cluster(8))
    start(machine, "a", an_action(2.0), cores(1))
    start(machine, "b", an_action(2.0), a_share())
    start(machine, "c", an_action(3.0), cores(1))
    assert {end.run.action_id for end in machine.ended(2.0)} == {"a", "b"}
    assert machine.ended(2.5) == []


def test_an_empty_machine_has_nothing_coming():
    assert Machine(a_cpu_cluster(1)).next_at() is None
