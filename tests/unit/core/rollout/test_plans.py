"""Plans for pools: where tasks are read and written, and how long a turn takes then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from artangram.core.rollout.costs import Rates
from artangram.core.rollout.plans import Flow, Planner, Pool, TaskDemand
from artangram.gateway.hardware import Roofline, hardware, model_shape

READS = Rates(prefill_per_s=10_000, decode_per_s=50, alone_per_s=50)
WRITES = Rates(prefill_per_s=1000, decode_per_s=100, alone_per_s=100)
POOLS = {"compute": Pool(replicas=2, rates=READS), "bandwidth": Pool(replicas=2, rates=WRITES)}
HALVED = (Flow("compute", "bandwidth"),)


def a_demand(
    prefill: float, decode: float, *, share: float = 1.0, move_s: float = 0.0
) -> TaskDemand:
    return TaskDemand(share=share, prefill=prefill, decode=decode, move_s=move_s)


def a_planner(*demands: TaskDemand, turns: float, pools: dict[str, Pool] = POOLS) -> Planner:
    return Planner(pools, {str(n): one for n, one in enumerate(demands)}, turns=turns)


def test_few_turns_are_in_nobodys_way():
    planner = a_planner(a_demand(1000, 100, move_s=0.2), turns=0.001)
    assert planner.turn_s({"0": HALVED}) == pytest.approx(0.1 + 0.2 + 1.0, rel=0.001)
    assert planner.turn_s({"0": (Flow("compute", "compute"),)}) == pytest.approx(2.1, rel=0.001)


def test_an_answer_stands_still_while_the_others_are_read():
    # Of 20 turns, each of 10 on a replica is held up by the prompts of ten: 10 x 0.1 s.
    planner = a_planner(a_demand(1000, 100), turns=20)
    turn_s = planner.turn_s({"0": (Flow("compute", "compute"),)})
    assert turn_s == pytest.approx(2.0 + 10 * 0.1, rel=0.03)


def test_who_reads_for_too_many_decides():
    planner = a_planner(a_demand(1000, 100), turns=1000)
    assert planner.turn_s({"0": HALVED}) == pytest.approx(1000 * 0.1 / 2, rel=0.02)


def test_company_makes_writing_slower():
    crowded = Rates(prefill_per_s=1e9, decode_per_s=50, alone_per_s=100, lanes=10)
    pools = {"b": Pool(replicas=1, rates=crowded)}
    planner = a_planner(a_demand(1, 100), turns=10, pools=pools)
    assert planner.turn_s({"0": (Flow("b", "b"),)}) == pytest.approx(2.0, rel=0.01)


def test_long_contexts_make_company_slower_still():
    crowded = Rates(prefill_per_s=1e9, decode_per_s=50, alone_per_s=100, lanes=10, context=1000)
    crowded = structs.replace(crowded, context_token_s=1e-6)
    pools = {"b": Pool(replicas=1, rates=crowded)}
    for context, turn_s in ((500, 2.0), (4000, 5.0)):
        demand = TaskDemand(share=1.0, prefill=1, decode=100, context=context)
        planner = a_planner(demand, turns=10, pools=pools)
        assert planner.turn_s({"0": (Flow("b", "b"),)}) == pytest.approx(turn_s, rel=0.01)


def test_one_writer_for_three_readers_is_no_gain_with_long_contexts():
    shape = model_shape("qwen3-32b")
    rates, writes = (
        Roofline(hardware=hardware(kind), model=shape, tp=4).rates() for kind in ("H800", "H20")
    )
    pools = {"compute": Pool(replicas=6, rates=rates), "bandwidth": Pool(replicas=2, rates=writes)}
    gains = {}
    for context in (2000, 16_000):
        demand = TaskDemand(share=1.0, prefill=900, decode=150, move_s=0.01, context=context)
        planner = a_planner(demand, turns=100, pools=pools)
        gains[context] = planner.best(splits=False)[0] / planner.best(splits=True)[0]
    assert gains[16_000] < 1.1 < gains[2000]


def test_what_many_read_and_write_is_split():
    planner = a_planner(a_demand(2000, 100, move_s=0.05), turns=20)
    whole_s, whole = planner.best(splits=False)
    halved_s, plan = planner.best(splits=True)
    assert plan["0"] == HALVED
    assert halved_s < 0.8 * whole_s
    assert not any(flow.is_split for flow in whole["0"])


def test_nothing_is_split_where_reading_is_the_bottleneck():
    pools = {**POOLS, "compute": Pool(replicas=1, rates=READS)}
    pools["bandwidth"] = Pool(replicas=8, rates=WRITES)
    planner = a_planner(a_demand(10_000, 100), turns=20, pools=pools)
    assert planner.best(splits=True) == planner.best(splits=False)


def test_nothing_is_split_over_a_slow_link():
    planner = a_planner(a_demand(2000, 100, move_s=3.0), turns=20)
    assert planner.best(splits=True) == planner.best(splits=False)


def test_tasks_that_keep_out_of_each_others_way_need_no_split():
    planner = a_planner(a_demand(5000, 1, share=0.5), a_demand(1, 500, share=0.5), turns=4)
    whole_s, whole = planner.best(splits=False)
    assert whole == {
        "0": (Flow("compute", "compute"),),
        "1": (Flow("bandwidth", "bandwidth"),),
    }
    assert planner.best(splits=True)[0] > 0.98 * whole_s


amounts = st.floats(1.0, 20_000.0)
pools = st.builds(
    Pool,
    replicas=st.integers(1, 8),
    rates=st.builds(
        Rates,
        prefill_per_s=st.floats(100.0, 1e5),
        decode_per_s=st.floats(10.0, 100.0),
        alone_per_s=st.floats(100.0, 200.0),
    ),
)


@given(
    st.fixed_dictionaries({"compute": pools, "bandwidth": pools}),
    st.builds(a_demand, amounts, amounts, move_s=st.floats(0.0, 1.0)),
    st.floats(0.1, 500.0),
)
def test_no_simple_plan_is_better_than_the_best(pools, demand, turns):
    planner = a_planner(demand, turns=turns, pools=pools)
    best_s, plan = planner.best(splits=True)
    assert planner.turn_s(plan) == best_s
    for reads in pools:
        for writes in pools:
            assert best_s <= planner.turn_s({"0": (Flow(reads, writes),)})
    assert best_s <= planner.best(splits=False)[0]
