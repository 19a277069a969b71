"""`bench services`: the same calls for every policy, as heavy as it says, and how sure it is."""

import os
from random import Random

import pytest

from artangram.core.ids import ServiceId
from artangram.services import Service
from artangram_bench.services import spread_of
from artangram_bench.services_plan import CALLS, LOAD, Arrival, a_plan, one_queue_s

CALL_S = 0.1
JUDGES = [Service(id=ServiceId(f"judge-{n}"), loader="m:f") for n in range(10)]


def test_the_same_seed_makes_the_same_calls():
    one, other = (a_plan(Random(3), JUDGES, 5, call_s=CALL_S) for _ in range(2))
    assert one == other
    assert one != a_plan(Random(4), JUDGES, 5, call_s=CALL_S)


def test_fewer_bursts_are_the_first_of_more():
    few, more = (a_plan(Random(3), JUDGES, bursts, call_s=CALL_S) for bursts in (2, 5))
    assert {(call.at_s, call.service) for call in few} <= {(c.at_s, c.service) for c in more}


def test_calls_come_in_order_and_make_up_the_load():
    bursts = 400
    plan = a_plan(Random(3), JUDGES, bursts, call_s=CALL_S)
    assert plan == sorted(plan, key=lambda call: call.at_s)
    assert CALLS[0] * bursts <= len(plan) <= CALLS[1] * bursts
    cores = len(os.sched_getaffinity(0))
    assert len(plan) * CALL_S / (cores * plan[-1].at_s) == pytest.approx(LOAD, rel=0.2)


def test_a_ratio_is_as_sure_as_its_rounds_agree():
    """By hand: logs 0 and log 4, mean log 2, deviation of the mean log 2; t is 12.71."""
    spread = spread_of([1.0, 4.0])
    assert spread.ratio == pytest.approx(2.0)
    assert spread.low == pytest.approx(2.0 ** (1 - 12.71))
    assert spread.high == pytest.approx(2.0 ** (1 + 12.71))
    assert spread_of([3.0]).low is None
    agreed = spread_of([2.0] * 4)
    assert (agreed.low, agreed.high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_no_schedule_is_better_than_one_queue_before_all_cores(monkeypatch: pytest.MonkeyPatch):
    """By hand, on two cores: the third call waits 0.6 s for the first, the fourth for nobody."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    plan = [Arrival(at_s, ServiceId("judge"), b"") for at_s in (0.0, 0.2, 0.4, 5.0)]
    assert one_queue_s([plan], call_s=1.0) == pytest.approx((1.0 + 1.0 + 1.6 + 1.0) / 4)
