"""Chances of durations, and the ranks that follow from them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.core.scheduling.distribution import (
    EDGES,
    NUM_BINS,
    Distribution,
    KnownDuration,
    bin_of,
)


def of_bins(weights: dict[int, float]) -> Distribution:
    return Distribution([weights.get(index, 0.0) for index in range(NUM_BINS)])


def by_search(belief: Distribution, age_at: int) -> float:
    """The rank at the beginning of a bin, by trying every stretch."""
    chances = dict(enumerate(belief.chances, belief.first))
    alive = sum(chance for index, chance in chances.items() if index >= age_at)
    best, ended, spent = math.inf, 0.0, 0.0
    for index in range(age_at, belief.first + len(belief.chances)):
        left = alive - ended
        ended += chances.get(index, 0.0)
        spent += (EDGES[index + 1] - EDGES[index]) * (left + alive - ended) / 2.0
        if ended > 0.0:
            best = min(best, spent / ended)
    return best


class TestBins:
    def test_a_duration_is_in_the_bin_that_begins_before_it(self):
        for duration_s in (0.002, 0.05, 1.0, 3.7, 600.0, 1e5):
            index = bin_of(duration_s)
            assert EDGES[index] <= duration_s * (1 + 1e-9) < EDGES[index + 1] * (1 + 1e-9)

    def test_extremes_are_in_the_first_and_the_last(self):
        assert (bin_of(0.0), bin_of(1e-9), bin_of(1e30)) == (0, 0, NUM_BINS - 1)


class TestRanks:
    def test_one_certain_duration_leaves_its_rest(self):
        belief = of_bins({bin_of(40.0): 1.0})
        assert belief.rank_s(0.0) == pytest.approx(40.0, rel=0.2)
        assert belief.rank_s(10.0) == pytest.approx(belief.rank_s(0.0) - 10.0)

    @given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=20), st.integers(0, NUM_BINS - 20))
    def test_ranks_are_the_best_of_all_stretches(self, weights, first):
        belief = of_bins(dict(enumerate(weights, first)))
        for index in range(belief.first, belief.first + len(belief.chances)):
            assert belief.rank_s(EDGES[index]) == pytest.approx(by_search(belief, index), rel=1e-6)

    def test_where_most_end_early_new_work_goes_first(self):
        belief = of_bins({bin_of(0.1): 0.9, bin_of(100.0): 0.1})
        assert belief.rank_s(0.0) < 1.0
        assert belief.rank_s(1.0) > 50.0

    def test_what_is_nearly_done_goes_before_new_work(self):
        belief = of_bins({bin_of(10.0): 0.5, bin_of(14.0): 0.5})
        assert belief.rank_s(9.0) < belief.rank_s(0.0)

    def test_what_outlives_all_that_is_believed_is_expected_to_take_as_long_again(self):
        assert of_bins({bin_of(1.0): 1.0}).rank_s(1000.0) == 1000.0


class TestSummaries:
    def test_the_mean_is_not_moved_far_by_one_that_lies_far_off(self):
        usual = of_bins({bin_of(0.05): 1.0})
        beside = of_bins({bin_of(0.05): 0.97, bin_of(3600.0): 0.03})
        assert beside.mean_s == pytest.approx(usual.mean_s, rel=0.1)
        assert beside.median_s == usual.median_s

    def test_the_spread_is_the_deviation_of_the_log(self):
        assert of_bins({bin_of(5.0): 1.0}).spread == 0.0
        two = of_bins({bin_of(1.0): 0.5, bin_of(4.0): 0.5})
        assert two.spread == pytest.approx(math.log(2.0))

    def test_bins_without_a_chance_are_left_out(self):
        belief = of_bins({3: 1e-9, 10: 1.0, 11: 1.0, 50: 1e-9})
        assert (belief.first, len(belief.chances)) == (10, 2)
        assert [belief.chance(index) for index in (9, 10, 12)] == [0.0, 0.5, 0.0]

    def test_beliefs_say_what_they_are(self):
        assert repr(of_bins({bin_of(1.0): 1.0})) == "<Distribution: about 1.09 s, spread 0.00>"
        assert repr(KnownDuration(2.0)) == "<KnownDuration: 2 s>"


class TestKnown:
    def test_the_rest_is_left(self):
        assert KnownDuration(10.0).rank_s(4.0) == 6.0

    def test_never_nothing(self):
        assert KnownDuration(10.0).rank_s(10.0) == 0.5
        assert KnownDuration(10.0).rank_s(30.0) == 20.0
