"""Closed loops in virtual time: who thinks, runs and trains when."""

from collections.abc import Iterator
from random import Random
from typing import ClassVar
from weakref import WeakSet

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_support import (
    CPU,
    a_cluster,
    a_cpu_cluster,
    a_trace,
    a_trajectory,
    a_turn,
    acts,
    all_times,
    an_action,
    an_elastic_action,
    simulated,
)

from artangram.core.ids import Resource, ServiceId
from artangram.core.scheduling.cluster import (
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    QuotaSpec,
    ServiceSpec,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.observe.trace import Trace, TraceTrajectory
from artangram.sim.beliefs import ExactBeliefs
from artangram.sim.bounds import lower_bound
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, generate
from artangram.sim.report import report

PLENTY = a_cpu_cluster(64)


class TestTrajectories:
    def test_a_turn_thinks_then_runs_its_actions_one_after_the_other(self):
        turns = [a_turn(1, an_action(2.0), an_action(3.0)), a_turn(0.5, an_action(1.0))]
        simulation = simulated(a_trace(a_trajectory("a", *turns)), PLENTY)
        assert simulation.now == pytest.approx(1 + 2 + 3 + 0.5 + 1)
        assert acts(simulation, "tool") == pytest.approx([2.0, 3.0, 1.0])

    def test_waiting_delays_what_comes_after_it(self):
        first = a_trajectory("a", a_turn(0, an_action(5.0)))
        second = a_trajectory("b", a_turn(1, an_action(1.0, kind="late")), a_turn(3))
        simulation = simulated(a_trace(first, second), a_cpu_cluster(1))
        assert acts(simulation, "late") == pytest.approx([5.0])
        assert simulation.now == pytest.approx(6.0 + 3.0)

    def test_a_trajectory_arrives_after_its_step_began(self):
        trace = a_trace(a_trajectory("a", a_turn(1, an_action(2.0)), arrive_s=4.0))
        assert simulated(trace, PLENTY).now == pytest.approx(7.0)

    def test_a_trajectory_that_never_acts_still_takes_its_time(self):
        assert simulated(a_trace(a_trajectory("a", a_turn(2.5))), PLENTY).now == 2.5

    def test_memory_is_held_between_actions(self):
        turn = a_turn(0, an_action(1.0, kind="a")), a_turn(8, an_action(1.0, kind="a"))
        holder = a_trajectory("a", *turn, memory_mb=100_000)
        waiter = a_trajectory("b", a_turn(2, an_action(1.0, kind="b")), memory_mb=1)
        simulation = simulated(a_trace(holder, waiter), PLENTY)
        assert acts(simulation, "b") == pytest.approx([(10 - 2) + 1.0])


class TestSteps:
    def test_a_step_begins_train_s_after_the_last_trajectory_of_the_one_before(self):
        trace = a_trace(
            a_trajectory("a", a_turn(0, an_action(2.0))),
            a_trajectory("b", a_turn(1, an_action(4.0))),
            a_trajectory("c", a_turn(0, an_action(3.0)), step=1, arrive_s=1.0),
            train_s=10.0,
        )
        simulation = simulated(trace, PLENTY)
        assert simulation.now == pytest.approx(5 + 10 + 1 + 3)
        assert simulation.tally.steps == [("j", 0, pytest.approx(5)), ("j", 1, pytest.approx(4))]

    def test_jobs_advance_each_for_itself(self):
        trace = a_trace(
            a_trajectory("a0", a_turn(0, an_action(1.0)), job="quick"),
            a_trajectory("b0", a_turn(0, an_action(50.0)), job="slow"),
            a_trajectory("a1", a_turn(0, an_action(1.0)), job="quick", step=1),
            a_trajectory("b1", a_turn(0, an_action(50.0)), job="slow", step=1),
            a_trajectory("a2", a_turn(0, an_action(1.0)), job="quick", step=2),
            train_s=10.0,
        )
        simulation = simulated(trace, PLENTY)
        assert [(job, step) for job, step, _ in simulation.tally.steps] == [
            ("quick", 0),
            ("quick", 1),
            ("quick", 2),
            ("slow", 0),
            ("slow", 1),
        ]
        assert simulation.now == pytest.approx(50 + 10 + 50)

    def test_a_job_may_leave_out_a_step(self):
        trace = a_trace(
            a_trajectory("a0", a_turn(0, an_action(1.0)), job="a"),
            a_trajectory("b1", a_turn(0, an_action(4.0)), job="b", step=1),
            a_trajectory("a2", a_turn(0, an_action(1.0)), job="a", step=2),
            train_s=10.0,
        )
        simulation = simulated(trace, PLENTY)
        # b joins when a is ready for step 1, a goes on when b is ready for step 2.
        assert simulation.tally.steps == [("a", 0, 1.0), ("b", 1, 4.0), ("a", 2, 1.0)]
        assert simulation.now == pytest.approx(1 + 10 + 4 + 10 + 1)

    def test_a_rested_job_does_not_train_less(self):
        trace = a_trace(
            a_trajectory("a0", a_turn(0, an_action(8.0)), job="a"),
            a_trajectory("b0", a_turn(0, an_action(1.0)), job="b"),
            a_trajectory("a1", a_turn(0, an_action(1.0)), job="a", step=1),
            a_trajectory("b2", a_turn(0, an_action(1.0)), job="b", step=2),
            train_s=10.0,
        )
        simulation = simulated(trace, PLENTY)
        assert simulation.tally.steps == [("b", 0, 1), ("a", 0, 8), ("a", 1, 1), ("b", 2, 1)]
        assert simulation.now == pytest.approx(8 + 10 + 1 + 10 + 1)


class TestFailures:
    def test_a_trajectory_goes_on_after_a_failure_a_timeout_and_a_refusal(self):
        turn = a_turn(
            0,
            an_action(9.0, fail_at_s=2.0),
            an_action(9.0, timeout_s=3.0),
            an_action(9.0, needs={"cpu": 100}),
            an_action(1.0),
        )
        simulation = simulated(a_trace(a_trajectory("a", turn)), PLENTY)
        assert acts(simulation, "tool") == pytest.approx([2.0, 3.0, 1.0])
        assert (simulation.tally.failed, simulation.tally.refused) == (3, 1)

    def test_waiting_does_not_eat_the_run_time_limit(self):
        first = a_trajectory("a", a_turn(0, an_action(10.0)))
        second = a_trajectory("b", a_turn(0, an_action(2.0, kind="late", timeout_s=3.0)))
        simulation = simulated(a_trace(first, second), a_cpu_cluster(1))
        assert simulation.tally.failed == 0
        assert acts(simulation, "late") == pytest.approx([12.0])


class TestPatience:
    """A client hangs up 600 s after its first try."""

    def test_a_call_that_waits_for_a_core_again_and_again_ends_once(self):
        cluster = a_cluster(
            cpu=CpuSpec(nodes=1, cores=1, memory_mb=1), search=QuotaSpec(concurrency=1)
        )
        call = an_action(1.0, kind="call", needs={"search": 1, "cpu": 1}, elastic="search")
        busy = [a_trajectory(f"busy-{n}", a_turn(0, an_action(200.0))) for n in range(4)]
        ended = simulated(a_trace(*busy, a_trajectory("b", a_turn(0, call))), cluster, "unmanaged")
        assert acts(ended, "call") == [600.0]

    def test_a_call_that_was_still_in_the_making_never_ran(self):
        cluster = a_cluster(search=QuotaSpec(concurrency=1, overhead_s=700.0))
        call = an_action(1.0, needs={"search": 1})
        ended = simulated(a_trace(a_trajectory("a", a_turn(0, call))), cluster, "unmanaged")
        times = ended.tally.by_kind["tool"]
        assert (times.act[0], times.overhead[0], times.run[0]) == (600.0, 600.0, 0.0)


class TestOtherPools:
    def test_a_service_is_restored_once_and_then_resident(self):
        judge = ServiceSpec(pool=Resource("gpu"), weights_mb=32_000)
        gpu = GpuSpec(nodes=1, devices=1, memory_mb=80_000, restore_mb_per_s=16_000)
        cluster = a_cluster({ServiceId("judge"): judge}, gpu=gpu)
        calls = [an_action(1.0, needs={"gpu": 1}, service="judge") for _ in range(3)]
        simulation = simulated(a_trace(a_trajectory("a", a_turn(0, *calls))), cluster)
        assert simulation.tally.restores == 1
        assert list(simulation.tally.by_kind["tool"].overhead) == pytest.approx([2.0, 0.0, 0.0])
        assert acts(simulation, "tool") == pytest.approx([3.0, 1.0, 1.0])

    def test_a_function_starts_cold_again_when_it_was_idle_for_long(self):
        cluster = a_cluster(score=FunctionsSpec(ceiling=1, cold_s=0.5, idle_s=10.0))
        call = an_action(1.0, needs={"score": 1})
        trajectory = a_trajectory("a", a_turn(0, call), a_turn(5, call), a_turn(20, call))
        simulation = simulated(a_trace(trajectory), cluster)
        assert list(simulation.tally.by_kind["tool"].overhead) == pytest.approx([0.5, 0.0, 0.5])

    def test_a_window_lets_calls_through_as_it_moves_on(self):
        cluster = a_cluster(search=QuotaSpec(limit=1, window_s=10.0))
        names = "abc"
        call = an_action(1.0, needs={"search": 1})
        trace = a_trace(*(a_trajectory(name, a_turn(0, call)) for name in names))
        assert acts(simulated(trace, cluster), "tool") == pytest.approx([1.0, 11.0, 21.0])

    def test_a_pod_is_created_before_the_first_action(self):
        cluster = a_cpu_cluster(4, create_s=2.0, pods_per_s=1.0, overhead_s=0.25)
        turns = [a_turn(0, an_action(1.0), an_action(1.0))]
        trace = a_trace(a_trajectory("a", *turns), a_trajectory("b", *turns))
        simulation = simulated(trace, cluster, "pods:1/1")
        overhead = sorted(simulation.tally.by_kind["tool"].overhead)
        assert overhead == pytest.approx([0.25, 0.25, 2.25, 3.25])


class _Tracked:
    """A trajectory that tells whether anybody still holds it."""

    alive: ClassVar[WeakSet["_Tracked"]] = WeakSet()

    def __init__(self, trajectory: TraceTrajectory) -> None:
        for name in trajectory.__struct_fields__:
            setattr(self, name, getattr(trajectory, name))
        self.alive.add(self)


class _Stream:
    """A trace made while it is read, that remembers when each trajectory was read."""

    name = "stream"
    train_s = 1.0

    def __init__(self, steps: int, batch: int, jobs: tuple[str, ...] = ("j",)) -> None:
        self.steps = steps
        self.batch = batch
        self.jobs = jobs
        self.simulation: Simulation | None = None
        self.read_at: list[tuple[int, float]] = []
        self.most_alive = 0

    @property
    def trajectories(self) -> Iterator[_Tracked]:
        """All jobs are in the first step, only the last one in those after it."""
        for step in range(self.steps):
            for job in self.jobs if step == 0 else self.jobs[-1:]:
                for index in range(self.batch):
                    now = self.simulation.now if self.simulation else 0.0
                    self.read_at.append((step, now))
                    self.most_alive = max(self.most_alive, len(_Tracked.alive))
                    turn = a_turn(1, an_action(1.0))
                    yield _Tracked(a_trajectory(f"{job}-{step}-{index}", turn, step=step, job=job))


def test_a_long_trace_is_read_step_by_step_and_forgotten():
    stream = _Stream(steps=50, batch=20)
    stream.simulation = Simulation(stream, PLENTY, policy("fcfs"), ExactBeliefs())
    stream.simulation.run()
    assert stream.simulation.tally.num_actions() == 1000
    # A step lasts 2 s and the trainer 1 s; a step is read when the one before it has ended, and
    # its end is known by the first trajectory of the next one.
    read_at = {}
    for step, now in stream.read_at:
        assert now >= 3.0 * (step - 2) + 2.0 - 1e-9
        read_at[step] = now
    assert read_at[49] == pytest.approx(3.0 * 48 + 2.0)
    assert stream.most_alive <= 2 * stream.batch + 1


def test_a_job_that_is_over_does_not_make_the_rest_be_read():
    stream = _Stream(steps=50, batch=20, jobs=("brief", "long"))
    stream.simulation = Simulation(stream, PLENTY, policy("fcfs"), ExactBeliefs())
    stream.simulation.run()
    assert stream.simulation.tally.num_actions() == 20 + 50 * 20
    assert stream.most_alive <= 3 * stream.batch + 1


@pytest.mark.parametrize("name", ["elastic", "tangram", "overcommit", "pods:0.5/4"])
def test_the_same_trace_twice_gives_the_same_report(name):
    trace = generate("coding", seed=2, batch=12, steps=2, fail_share=0.1)
    cluster = cluster_for("coding", cores=16, squeeze_penalty=0.1)

    def told() -> dict[str, object]:
        simulation = simulated(trace, cluster, name, estimates="noisy:1.0")
        found = msgspec.to_builtins(
            report(simulation, policy=name, trace=trace, cluster=cluster, estimates="noisy:1.0")
        )
        del found["decision_us"]
        return found | {"times": all_times(simulation)}

    assert told() == told()


def a_random_trace(seed: int, **fields: object) -> Trace:
    rng = Random(seed)
    trajectories = []
    for index in range(rng.randint(1, 12)):
        turns = []
        for _ in range(rng.randint(1, 4)):
            action = an_action(
                rng.lognormvariate(0, 1), needs={"cpu": rng.choice([1, 1, 2, 3])}, **fields
            )
            turns.append(a_turn(rng.choice([0.0, rng.uniform(0, 5)]), action))
        trajectories.append(a_trajectory(str(index), *turns, step=index // 6, job="j"))
    return a_trace(*trajectories, train_s=1.0)


@given(seed=st.integers(0, 1 << 30), name=st.sampled_from(["fcfs", "elastic", "overcommit"]))
@settings(max_examples=60, deadline=None)
def test_rigid_actions_use_as_many_core_seconds_as_they_have_work(seed, name):
    trace = a_random_trace(seed)
    simulation = simulated(trace, a_cpu_cluster(3), name)
    actions = [a for t in trace.trajectories for turn in t.turns for a in turn.actions]
    work = sum(action.work_s * action.needs.of(CPU)[0] for action in actions)
    assert simulation.tally.num_actions() == len(actions)
    assert simulation.machine.use[CPU].unit_s == pytest.approx(work, rel=1e-9)


@given(seed=st.integers(0, 1 << 30), name=st.sampled_from(["fcfs", "elastic", "pods:1/2"]))
@settings(max_examples=30, deadline=None)
def test_act_is_wait_overhead_and_run_and_never_beats_the_bound(seed, name):
    trace = a_random_trace(seed)
    cluster = a_cluster(cpu=CpuSpec(nodes=2, cores=3, memory_mb=1000, create_s=0.5, overhead_s=0.1))
    times = simulated(trace, cluster, name).tally.by_kind["tool"]
    parts = zip(times.wait, times.overhead, times.run, strict=True)
    assert list(times.act) == pytest.approx([sum(part) for part in parts])
    assert min(*times.wait, *times.overhead, *times.run, 0.0) >= -1e-9
    mean_s = sum(times.act) / len(times.act)
    assert mean_s >= lower_bound(trace, cluster).act_mean_s * (1 - 1e-9)


def test_resizing_follows_what_arrives_and_ends():
    wide = a_trajectory("a", a_turn(0, an_elastic_action(40.0, 4, serial=0.0, kind="wide")))
    short = a_trajectory("b", a_turn(2, an_action(3.0, kind="short")))
    simulation = simulated(a_trace(wide, short), a_cpu_cluster(4), "elastic")
    # 4 cores until 2, 3 until 5, then 4 again for what is left of 40.
    assert acts(simulation, "short") == pytest.approx([3.0])
    assert acts(simulation, "wide") == pytest.approx([5 + (40 - 8 - 9) / 4])
    assert simulation.tally.resizes == 2
