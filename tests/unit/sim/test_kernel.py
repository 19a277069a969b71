"""Shares by level are weighted max-min fair, whatever came and went before."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_support import fair_shares

from artangram.sim.kernel import CoreDemand

CONTENDERS = st.lists(
    st.tuples(st.integers(1, 4000), st.sampled_from([1, 250, 1000, 1500, 8000, 32_000])),
    min_size=1,
    max_size=12,
)
CAPACITIES = st.integers(1, 64).map(lambda cores: 1000 * cores)


def demand_of(contenders: list[tuple[int, int]]) -> CoreDemand:
    demand = CoreDemand()
    for weight, wants in contenders:
        demand.add(weight, wants)
    return demand


def shares_of(contenders: list[tuple[int, int]], capacity: int) -> list[float]:
    level = demand_of(contenders).level(capacity)
    return [min(wants, level * weight) for weight, wants in contenders]


def by_bisection(contenders: list[tuple[int, int]], capacity: int) -> list[float]:
    """Raise the level until the cores are given away: max-min fairness by its definition."""
    low, high = 0.0, 1e9
    for _ in range(200):
        level = (low + high) / 2
        given = sum(min(wants, level * weight) for weight, wants in contenders)
        low, high = (level, high) if given < capacity else (low, level)
    return [min(wants, high * weight) for weight, wants in contenders]


def test_equal_weights_share_equally():
    assert shares_of([(1000, 4000), (1000, 4000)], 4000) == [2000, 2000]


def test_what_one_does_not_want_goes_to_the_others():
    assert shares_of([(1000, 500), (1000, 4000), (1000, 4000)], 4000) == [500, 1750, 1750]


def test_shares_are_in_proportion_to_weights():
    assert shares_of([(1000, 9000), (3000, 9000)], 4000) == [1000, 3000]


def test_nobody_is_held_back_where_there_is_enough():
    assert demand_of([(1, 3000), (1000, 1000)]).level(4000) == inf


def test_nobody_contends_on_an_empty_node():
    assert CoreDemand().level(1000) == inf


@given(contenders=CONTENDERS, capacity=CAPACITIES)
def test_all_cores_are_used_while_anybody_wants_more(contenders, capacity):
    wanted = sum(wants for _, wants in contenders)
    assert sum(shares_of(contenders, capacity)) == pytest.approx(min(wanted, capacity), rel=1e-12)


@given(contenders=CONTENDERS, capacity=CAPACITIES)
def test_nobody_who_wants_more_has_less_per_weight_than_another(contenders, capacity):
    shares = shares_of(contenders, capacity)
    per_weight = [share / weight for share, (weight, _) in zip(shares, contenders, strict=True)]
    for share, each, (_, wants) in zip(shares, per_weight, contenders, strict=True):
        assert share == wants or each >= max(per_weight) * (1 - 1e-12)


@given(contenders=CONTENDERS, capacity=CAPACITIES)
def test_shares_equal_those_found_one_by_one_and_by_bisection(contenders, capacity):
    shares = shares_of(contenders, capacity)
    assert shares == pytest.approx(fair_shares(contenders, capacity), rel=1e-9)
    assert shares == pytest.approx(by_bisection(contenders, capacity), rel=1e-9)


@given(stay=CONTENDERS, go=CONTENDERS, capacity=CAPACITIES)
def test_who_has_gone_leaves_no_trace(stay, go, capacity):
    demand = demand_of([*go, *stay])
    for weight, wants in go:
        demand.remove(weight, wants)
    assert demand.level(capacity) == demand_of(stay).level(capacity)
    assert demand.wants == sum(wants for _, wants in stay)
