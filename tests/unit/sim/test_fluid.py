"""The best that a fluid could do, compared with all divisions of the tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.gateway.hardware import Roofline, hardware, model_shape
from artangram.sim.fluid import alone_s, divided_s, mapped_s, need_s, needs_on
from artangram_bench.simulated.workload import SHAPES

MEANS = {name: shape.mean for name, shape in SHAPES.items()}

seconds = st.integers(1, 100)
needs = st.lists(st.tuples(seconds, seconds), min_size=2, max_size=3).map(
    lambda rows: {
        kind: {f"task {n}": float(row[at]) for n, row in enumerate(rows)}
        for at, kind in enumerate(("one", "two"))
    }
)


def finished_s(needs, devices, parts) -> float:
    """When each task is on the first kind with a part of it, given in eighths."""
    first, second = devices
    one = sum(part / 8 * needs[first][task] for task, part in parts.items())
    two = sum((1 - part / 8) * needs[second][task] for task, part in parts.items())
    return max(one / devices[first], two / devices[second])


@given(needs, st.integers(1, 20), st.integers(1, 20), st.data())
def test_no_division_of_the_tasks_is_faster(needs, one, two, data):
    devices = {"one": one, "two": two}
    parts = {task: data.draw(st.integers(0, 8)) for task in needs["one"]}
    assert divided_s(needs, devices) <= finished_s(needs, devices, parts) * (1 + 1e-9)


@given(needs, st.integers(1, 20), st.integers(1, 20), st.data())
def test_the_best_division_is_one_and_no_mapping_beats_it(needs, one, two, data):
    devices = {"one": one, "two": two}
    placement = {task: data.draw(st.sampled_from(["one", "two"])) for task in needs["one"]}
    parts = {task: 8 if kind == "one" else 0 for task, kind in placement.items()}
    mapped = mapped_s(needs, devices, placement)
    assert mapped == pytest.approx(finished_s(needs, devices, parts))
    least = sum(min(needs[kind][task] for kind in devices) for task in needs["one"])
    assert least / (one + two) * (1 - 1e-9) <= divided_s(needs, devices) <= mapped * (1 + 1e-9)


def test_what_no_kind_does_better_is_worth_nothing():
    alike = {"one": {"a": 2.0, "b": 6.0}, "two": {"a": 2.0, "b": 6.0}}
    assert divided_s(alike, {"one": 1, "two": 3}) == pytest.approx(alone_s(alike["one"], 4))


def test_each_task_is_cheaper_on_the_hardware_that_fits():
    on = {kind: needs_on(kind, MEANS, model="qwen3-8b", hit_rate=0.8) for kind in ("H800", "H20")}
    # By price: an H800 costs as much as 2.85 H20.
    for task, is_for_compute in {"lake": True, "shop": True, "math": False, "game": False}.items():
        assert (2.85 * on["H800"][task] < on["H20"][task]) is is_for_compute


def test_a_cache_that_hits_saves_reading():
    replica = Roofline(hardware=hardware("H20"), model=model_shape("qwen3-8b"))
    missing, hitting = (need_s(MEANS["lake"], replica, hit_rate=rate) for rate in (0.0, 1.0))
    assert hitting < 0.3 * missing
