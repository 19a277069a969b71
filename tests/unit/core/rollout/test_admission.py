"""When groups are opened and trajectories start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artangram.core.errors import BadInput
from artangram.core.rollout.admission import (
    AdmissionLimits,
    GroupDemand,
    Held,
    Mix,
    Open,
    Pace,
    TrainerState,
    Wait,
    WaitCause,
    demand,
    in_the_way,
    may_add,
    may_start,
    next_group,
    patience_s,
)

shares_of_tasks = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1)


def limits(alpha: int = 1, **changed: int) -> AdmissionLimits:
    return AdmissionLimits(
        **{"environments": 16, "group_size": 4, "max_staleness": alpha} | changed
    )


def held(*, in_envs: int = 0, reserved: int = 0, **groups: int) -> Held:
    return Held(in_envs=in_envs, reserved=reserved, groups=groups)


def trainer(*, busy: bool = False, groups: int = 4) -> TrainerState:
    return TrainerState(batch_groups=groups, is_busy=busy)


def a_pace(*, trajectory_s: float, busy_s: float) -> Pace:
    pace = Pace()
    pace.on_trajectory("math", trajectory_s)
    pace.on_step(busy_s)
    return pace


def test_a_trajectory_waits_for_an_environment():
    assert may_start(limits(), held(in_envs=15), current=0, live=0) is None
    assert may_start(limits(), held(in_envs=16), current=0, live=0) == Wait(
        WaitCause.NO_ENVIRONMENT
    )


def test_a_trajectory_waits_for_weights_that_are_not_stale_from_the_start():
    assert may_start(limits(alpha=1), held(), current=3, live=2) is None
    assert may_start(limits(alpha=0), held(), current=3, live=2) == Wait(WaitCause.WEIGHTS_LATE)


def test_a_spare_needs_room_beyond_what_open_groups_need():
    assert may_add(limits(alpha=0), held(reserved=15))
    assert not may_add(limits(alpha=0), held(reserved=16))
    assert may_add(limits(alpha=1), held(reserved=16))


def test_synchronous_training_starts_nothing_while_the_trainer_is_busy():
    mix, pace = Mix({"math": 1}), Pace()
    nothing = GroupDemand(next_batch={}, ahead={})
    assert demand(limits(alpha=0), trainer(busy=True), mix, pace) == nothing
    assert demand(limits(alpha=0, extra_groups=2), trainer(busy=True), mix, pace) == nothing
    assert demand(limits(alpha=0), trainer(), mix, pace).ahead == {"math": 4}
    spare = demand(limits(alpha=0, extra_groups=2), trainer(), mix, pace)
    assert spare == GroupDemand(next_batch={"math": 4}, ahead={"math": 6})


def test_fast_environments_are_one_batch_ahead_however_wide_the_bound():
    pace = a_pace(trajectory_s=0.01, busy_s=10.0)
    assert demand(limits(alpha=6), trainer(busy=True), Mix({"math": 1}), pace).ahead == {"math": 4}


def test_slow_environments_fill_the_bound_and_no_more():
    pace = a_pace(trajectory_s=100.0, busy_s=1.0)
    mix = Mix({"math": 1})
    assert demand(limits(alpha=2), trainer(), mix, pace).ahead == {"math": 12}
    assert demand(limits(alpha=2), trainer(busy=True), mix, pace).ahead == {"math": 8}


def test_work_for_the_last_batch_waits_for_the_weights_on_their_way():
    pace = a_pace(trajectory_s=100.0, busy_s=1.0)
    mix = Mix({"math": 1})
    assert demand(limits(alpha=1), trainer(), mix, pace).ahead == {"math": 8}
    assert demand(limits(alpha=1), trainer(), mix, pace, lag=1).ahead == {"math": 4}
    assert demand(limits(alpha=1), trainer(busy=True), mix, pace, lag=1).ahead == {}


def test_a_step_that_takes_no_time_asks_for_all_the_bound_allows():
    pace = a_pace(trajectory_s=1.0, busy_s=0.0)
    assert demand(limits(alpha=3), trainer(), Mix({"math": 1}), pace).ahead == {"math": 16}


def test_pace_follows_what_happens():
    pace = a_pace(trajectory_s=10.0, busy_s=10.0)
    assert pace.batches_ahead("math") == 1.0
    assert pace.long_s("other") is None
    pace.on_trajectory("math", 30.0)
    assert pace.batches_ahead("math") > 2.0  # they spread, so the long ones are provided for
    for _ in range(50):
        pace.on_trajectory("math", 30.0)
        pace.on_step(20.0)
    assert pace.batches_ahead("math") == pytest.approx(1.5, rel=0.01)
    assert pace.busy_s == pytest.approx(20.0, rel=0.01)


def test_the_task_that_lacks_most_is_opened_first():
    want = GroupDemand(next_batch={}, ahead={"math": 4, "code": 4})
    found = next_group(limits(), held(math=3, code=2), want, current=0, live=0)
    assert found == Open("code")


def test_the_next_batch_comes_before_what_is_to_spare():
    want = GroupDemand(next_batch={"math": 1, "code": 1}, ahead={"math": 2, "code": 9})
    assert next_group(limits(), held(code=1), want, current=0, live=0) == Open("math")
    assert next_group(limits(), held(code=1, math=1), want, current=0, live=0) == Open("code")


def test_complete_groups_that_nobody_asked_for_do_not_keep_the_next_batch_away():
    want = {"math": 1, "code": 2}
    assert in_the_way(held(math=3, code=1), {"math": 3, "code": 1}, want) == "math"
    assert in_the_way(held(math=3, code=2), {"math": 3, "code": 0}, want) is None
    assert in_the_way(held(math=1), {"math": 1, "code": 0}, want) is None
    assert in_the_way(held(), {}, want) is None


@pytest.mark.parametrize(
    ("now_held", "why"),
    [
        (held(in_envs=16), WaitCause.NO_ENVIRONMENT),
        (held(math=4), WaitCause.NO_DEMAND),
        (held(reserved=29), WaitCause.BUFFER_FULL),
    ],
)
def test_opening_says_what_it_waits_for(now_held: Held, why: WaitCause):
    want = GroupDemand(next_batch={"math": 2}, ahead={"math": 4})
    assert next_group(limits(), now_held, want, current=0, live=0) == Wait(why)


def test_limits_that_cannot_work_say_what_would():
    with pytest.raises(BadInput, match="say 1 or more"):
        limits(environments=0)
    with pytest.raises(BadInput, match="say 0 or more"):
        limits(extra_siblings=-1)
    with pytest.raises(BadInput, match="say 8 or more"):
        limits(alpha=0, environments=4, group_size=8)
    with pytest.raises(BadInput, match="have 32 environments"):
        limits(alpha=0).check_batch(8)
    limits(alpha=1).check_batch(8)


def test_shares_that_say_nothing_are_refused():
    for shares in ({}, {"math": 0}, {"math": -1, "code": 2}):
        with pytest.raises(BadInput, match="whole number"):
            Mix(shares)


@given(shares_of_tasks, st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_the_mix_never_strays_a_group_from_the_shares(shares, batches):
    mix = Mix(shares)
    given_to = dict.fromkeys(shares, 0)
    for groups in batches:
        seats = mix.seats(groups)
        mix.deliver(groups, seats)
        for task, count in seats.items():
            given_to[task] += count
    total = sum(batches)
    for task, share in shares.items():
        assert abs(given_to[task] - total * share / sum(shares.values())) < len(shares)


@given(shares_of_tasks, st.integers(0, 40), st.integers(0, 40))
def test_more_batches_ahead_never_need_fewer_of_a_task(shares, few, more):
    few_seats = Mix(shares).seats(few)
    more_seats = Mix(shares).seats(few + more)
    assert all(few_seats[task] <= more_seats[task] for task in shares)
    assert sum(more_seats.values()) == few + more


def test_seats_that_stayed_empty_are_owed():
    mix = Mix({"a": 1, "b": 1})
    mix.deliver(4, {"a": 2})
    assert mix.seats(4) == {"a": 1, "b": 3}
    mix.deliver(4, {"a": 1, "b": 3})
    assert mix.seats(4) == {"a": 2, "b": 2}


def test_a_task_that_was_away_is_owed_one_batch_at_most():
    mix = Mix({"a": 1, "b": 1})
    for _ in range(20):
        mix.deliver(4, {"a": 4 - mix.seats(4)["b"]})
    assert mix.seats(40)["b"] <= 20 + 4


def test_a_saved_mix_continues_where_it_was():
    mix = Mix({"a": 2, "b": 1})
    mix.deliver(2, mix.seats(2))
    again = Mix({"a": 2, "b": 1})
    again.restore(mix.credit)
    assert again.seats(7) == mix.seats(7)
    again.restore({})
    assert again.seats(3) == {"a": 2, "b": 1}


def test_new_shares_take_tasks_in_and_out():
    mix = Mix({"a": 1, "b": 1})
    mix.set_shares({"b": 1, "c": 3, "a": 0})
    assert mix.seats(4) == {"b": 1, "c": 3}
    assert mix.shares == {"b": 1, "c": 3}


def test_patience_costs_no_more_than_leaving():
    assert patience_s(2, asked=8, busy_s=12.0) == 3.0
    assert patience_s(1, asked=8, busy_s=None) == float("inf")
