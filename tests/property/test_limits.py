"""Rewards do not depend on load: what ends in time on an idle node ends in time on a busy one."""

from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples
from sim_support import (
    a_cpu_cluster,
    a_trace,
    a_trajectory,
    a_turn,
    an_action,
    an_elastic_action,
    simulated,
)

from artangram.core.scheduling.speedup import Amdahl
from artangram.observe.trace import TraceAction

MOST = 8
SLACK = 1.01

works = st.tuples(
    st.sampled_from([0.5, 3.0, 20.0, 100.0]),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.booleans(),
    st.floats(0.0, 20.0),
)


def finishable(work_s: float, serial: float, is_elastic: bool) -> TraceAction:
    """An action whose limit is just enough for it on an idle node."""
    if not is_elastic:
        return an_action(work_s, timeout_s=SLACK * work_s)
    alone_s = work_s / Amdahl(serial).speed(MOST)
    return an_elastic_action(work_s, MOST, serial=serial, timeout_s=SLACK * alone_s)


@examples(25)
@given(
    works=st.lists(works, min_size=2, max_size=30),
    cores=st.sampled_from([MOST, MOST + 3]),
    penalty=st.sampled_from([0.0, 0.1]),
    told=st.sampled_from(["learned", "exact", "noisy:1.0"]),
)
def test_nothing_finishable_times_out_because_of_load(works, cores, penalty, told):
    trajectories = [
        a_trajectory(f"t{n}", a_turn(arrive_s, finishable(work_s, serial, is_elastic)))
        for n, (work_s, serial, is_elastic, arrive_s) in enumerate(works)
    ]
    cluster = a_cpu_cluster(cores, squeeze_penalty=penalty)
    simulation = simulated(a_trace(*trajectories), cluster, "elastic", estimates=told)
    assert (simulation.tally.failed, simulation.tally.num_actions()) == (0, len(works))


@examples(10)
@given(work_s=st.sampled_from([5.0, 50.0]), told=st.sampled_from(["learned", "exact"]))
def test_what_hangs_is_stopped(work_s, told):
    hung = a_trajectory(
        "h", a_turn(0.0, an_elastic_action(work_s, MOST, serial=0.0, timeout_s=0.5))
    )
    others = [a_trajectory(f"t{n}", a_turn(0.0, an_action(3.0))) for n in range(20)]
    simulation = simulated(a_trace(hung, *others), a_cpu_cluster(MOST), "elastic", estimates=told)
    assert simulation.tally.failed == 1
