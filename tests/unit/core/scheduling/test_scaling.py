"""How a kind scales, seen from runs whose cores depend on how long they take."""

from random import Random

import pytest

from artangram.core.scheduling.distribution import Distribution, KnownDuration
from artangram.core.scheduling.evidence import lognormal
from artangram.core.scheduling.scaling import CURVES, Scaling
from artangram.core.scheduling.speedup import DEFAULT, Amdahl


def a_run(work_s: float, truth: Amdahl, crowd_s: float) -> dict[float, float]:
    """One core while there is a crowd, sixteen from then on."""
    if work_s <= crowd_s:
        return {1: work_s}
    return {1: crowd_s, 16: (work_s - crowd_s) / truth.speed(16)}


@pytest.mark.parametrize("serial", [0.05, 0.1, 0.2])
def test_long_runs_that_get_the_cores_of_others_do_not_look_like_a_slow_kind(serial):
    rng, truth, scaling = Random(1), Amdahl(serial), Scaling()
    belief = Distribution(lognormal(20.0, 0.9))
    for _ in range(400):
        held = a_run(rng.lognormvariate(3.0, 0.9), truth, rng.uniform(10.0, 40.0))
        scaling.observe(held, max(held), belief)
    assert scaling.curve.serial <= 2.5 * serial


def test_what_is_known_of_a_run_tells_more_than_what_is_guessed():
    truth, scaling = Amdahl(0.35), Scaling()
    for _ in range(20):
        held = a_run(60.0, truth, 10.0)
        scaling.observe(held, 16, KnownDuration(60.0))
    assert scaling.curve == truth


def test_runs_on_one_core_say_nothing():
    scaling = Scaling()
    for _ in range(20):
        scaling.observe({1: 30.0}, 1, Distribution(lognormal(20.0, 0.9)))
    assert scaling.curve == DEFAULT


def test_another_core_always_helps():
    assert all(curve.speed(64) > curve.speed(32) for curve in CURVES)
