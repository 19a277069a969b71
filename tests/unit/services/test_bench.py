"""The workload of `bench services`: the same for every policy, and as heavy as it says."""

import os
from random import Random

import pytest

from artangram.cli.bench.services import CALLS, LOAD, a_plan
from artangram.core.ids import ServiceId
from artangram.services import Service

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
