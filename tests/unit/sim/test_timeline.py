"""Units in use over time, in bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.sim.timeline import BINS, Timeline


def test_the_mean_is_the_integral_over_the_time():
    use = Timeline(4)
    use.add(2, 1.0)
    use.add(1, 3.0)
    use.add(-3, 5.0)
    assert use.unit_s == pytest.approx(2 * 2 + 3 * 2)
    assert use.mean_share(10.0) == pytest.approx(10 / (4 * 10))


def test_bins_tell_what_was_in_use_when():
    use = Timeline(2)
    use.add(1, 0.5)
    use.add(1, 2.0)
    use.add(-2, 2.25)
    shares = use.shares(4.0)
    assert shares[:4] == [(0.5, 0.25), (1.5, 0.5), (2.5, 0.25), (3.5, 0.0)]


def test_the_last_bin_ends_when_time_does():
    use = Timeline(1)
    use.add(1, 0.0)
    assert use.shares(1.25) == [(0.5, 1.0), (1.125, 1.0)]
    assert use.shares(2.0) == [(0.5, 1.0), (1.5, 1.0)]


def test_nothing_happened_before_the_beginning():
    assert Timeline(1).mean_share(0.0) == 0.0


def test_bins_widen_when_time_runs_past_them():
    use = Timeline(1)
    use.add(1, 0.0)
    shares = use.shares(10.0 * BINS)
    assert use.bin_s == 16.0
    assert len(shares) <= BINS
    assert shares[0] == (8.0, pytest.approx(1.0))


def test_a_pool_that_is_idle_at_the_end_is_shown_up_to_the_end():
    use = Timeline(1)
    use.add(1, 0.0)
    use.add(-1, 1.0)
    last_s, last_share = use.shares(7.0 * BINS)[-1]
    assert last_s == pytest.approx(7.0 * BINS, abs=use.bin_s)
    assert last_share == 0.0


@given(changes=st.lists(st.tuples(st.floats(0, 400), st.integers(0, 8)), min_size=1, max_size=20))
def test_bins_hold_the_same_integral_whatever_happened(changes):
    use, now, units, total = Timeline(8), 0.0, 0, 0.0
    for wait_s, wanted in changes:
        total += units * wait_s
        now += wait_s
        use.add(wanted - units, now)
        units = wanted
    shares = use.shares(now)
    assert use.unit_s == pytest.approx(total)
    widths = [min(use.bin_s, now - index * use.bin_s) for index in range(len(shares))]
    held = sum(share * width for (_, share), width in zip(shares, widths, strict=True))
    assert held * 8 == pytest.approx(total)
    assert all(-1e-9 <= share <= 1 + 1e-9 for _, share in shares)
