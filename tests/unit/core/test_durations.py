"""Quantiles of the latest durations."""

from artangram.core.durations import Durations

LEAST, MOST = 16, 256


def test_quantiles_need_some_samples_and_follow_the_latest():
    durations = Durations(least=LEAST, most=MOST)
    for number in range(LEAST - 1):
        durations.add(float(number))
    assert durations.quantile(0.5) is None
    for number in range(MOST):
        durations.add(float(number % 100))
    assert durations.quantile(0.0) == 0.0
    assert durations.quantile(1.0) == 99.0
    for _ in range(MOST):
        durations.add(7.0)
    assert durations.quantile(0.01) == durations.quantile(0.99) == 7.0
    assert repr(durations) == "<Durations of 256, half of them within 7.0 s>"
