"""Priorities and deadlines order the actions of a job, and change nothing for other jobs.

Each property catches a bug that is planted at the end of this file.
"""

from itertools import count

import pytest
from builders import a_cluster, a_cpu, a_gpu, an_action
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples
from virtual_time import played

from artangram.core.ids import Resource
from artangram.core.scheduling.action import Action, ActionRecord
from artangram.core.scheduling.cluster import FunctionsSpec, QuotaSpec, ServiceSpec
from artangram.core.scheduling.policies import candidates, queue, ranking
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.policies.queue import LEVEL_S
from artangram.core.scheduling.scheduler import Scheduler

NEEDS: dict[str, dict[str, object]] = {
    "cores": {"needs": {"cpu": 1}},
    "elastic": {"needs": {"cpu": {"choices": [2, 4]}}, "elastic": "cpu"},
    "calls": {"needs": {"search": 1}},
    "slots": {"needs": {"functions": 1}},
    "devices": {"needs": {"gpu": 1}, "service": "judge"},
}
PRIORITIES = st.lists(st.integers(-2, 2), min_size=12, max_size=24)


def a_small_scheduler() -> Scheduler:
    """One of everything at a time."""
    cluster = a_cluster(
        cpu=a_cpu(cores=2),
        search=QuotaSpec(concurrency=1),
        functions=FunctionsSpec(ceiling=1, cold_s=0.0),
        gpu=a_gpu(devices=1),
        services={"judge": ServiceSpec(pool=Resource("gpu"), weights_mb=10)},
    )
    return Scheduler(cluster, policy("elastic"))


def a_line(lane: str, priorities: list[int], **fields: object) -> list[tuple[float, Action]]:
    """Actions of job "x" that come together, all alike but for their priorities."""
    numbers = count()
    return [
        (
            0.0,
            an_action(
                f"x{next(numbers)}", priority=p, job="x", work_s=2.0, **NEEDS[lane], **fields
            ),
        )
        for p in priorities
    ]


def ran(arrivals: list[tuple[float, Action]], run_s: float = 2.0) -> list[ActionRecord]:
    true_s = {str(action.id): run_s for _, action in arrivals}
    records = played(a_small_scheduler(), arrivals, run_s=true_s)
    assert len(records) == len(arrivals)
    assert not [record.reason for record in records if record.started_at is None]
    return sorted(records, key=lambda record: record.started_at)


@pytest.mark.parametrize("lane", NEEDS)
@examples(8)
@given(priorities=PRIORITIES)
def test_a_higher_priority_goes_first_in_its_job(lane, priorities):
    arrivals = a_line(lane, priorities)
    level = {action.id: action.priority for _, action in arrivals}
    began = [(record.started_at, level[record.action_id]) for record in ran(arrivals)]
    for at, one in began:
        passed = [other for later, other in began if later > at and other > one]
        assert at == 0.0 or not passed, f"priority {one} went before {passed}"


@pytest.mark.parametrize("lane", NEEDS)
@examples(6)
@given(priorities=PRIORITIES)
def test_another_job_does_not_notice(lane, priorities):
    """The times of job "y" are the same, whatever "x" calls urgent."""
    others = [(0.5 * n, an_action(f"y{n}", job="y", work_s=2.0, **NEEDS[lane])) for n in range(10)]

    def of_y(priorities: list[int]) -> list[float]:
        records = ran([*a_line(lane, priorities), *others])
        return sorted(record.started_at for record in records if record.job == "y")

    assert of_y(priorities) == of_y([0] * len(priorities))


@pytest.mark.parametrize("lane", ["cores", "calls"])
def test_a_lower_priority_waits_an_hour_longer_at_most(lane):
    """Urgent work fills the lane for ever; what is not urgent starts all the same."""
    step = 300.0
    urgent = [
        (n * step, an_action(f"u{n}", priority=1, work_s=step, job="x", **NEEDS[lane]))
        for n in range(60)
    ]
    if lane == "cores":
        more = [(at, an_action(f"v{a.id}", priority=1, work_s=step, job="x")) for at, a in urgent]
        urgent += more
    low = (1.0, an_action("low", work_s=step, job="x", **NEEDS[lane]))
    records = ran([*urgent, low], run_s=step)
    (at,) = [record.started_at for record in records if record.action_id == "low"]
    assert LEVEL_S / 2 < at <= 2 * LEVEL_S + 3 * step


@examples(8)
@given(slack_s=st.sampled_from([3.0, 10.0, 19.0]), place=st.integers(1, 9))
def test_what_can_still_end_in_time_does(slack_s, place):
    """One call at a time of two seconds: the one with a deadline goes when it has to."""
    arrivals = a_line("calls", [0] * 10)
    at, action = arrivals[place]
    deadline_at = 2.0 * (1 + slack_s // 2)
    arrivals[place] = (
        at,
        an_action(action.id, job="x", work_s=2.0, deadline_at=deadline_at, **NEEDS["calls"]),
    )
    (record,) = [record for record in ran(arrivals) if record.action_id == action.id]
    assert record.ended_at <= deadline_at


def without_levels(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "LEVEL_BITS", 0)
    patch.setattr(queue, "LEVEL_S", 0.0)


def before_shares(patch: pytest.MonkeyPatch) -> None:
    """The higher priority goes first, whatever its job was served."""
    right = candidates.goes_first

    def goes_first(served: object, one: object, other: object, now: float) -> bool:
        if one.action.priority != other.action.priority:
            return one.action.priority > other.action.priority
        return right(served, one, other, now)

    patch.setattr(candidates, "goes_first", goes_first)


@pytest.mark.parametrize("lane", NEEDS)
def test_the_order_catches_forgotten_levels(lane, monkeypatch):
    without_levels(monkeypatch)
    with pytest.raises(AssertionError, match="went before"):
        test_a_higher_priority_goes_first_in_its_job(lane=lane)


def test_the_other_job_catches_priorities_above_shares(monkeypatch):
    before_shares(monkeypatch)
    with pytest.raises(AssertionError):
        test_another_job_does_not_notice(lane="cores")


def test_the_hour_catches_levels_without_an_end(monkeypatch):
    monkeypatch.setattr(queue, "LEVEL_S", 1e9)
    with pytest.raises(AssertionError):
        test_a_lower_priority_waits_an_hour_longer_at_most(lane="calls")


def test_the_deadline_catches_an_order_that_ignores_it(monkeypatch):
    monkeypatch.setattr(
        queue, "set_due_in_line", lambda ticket: setattr(ticket, "due_at", ticket.key)
    )
    with pytest.raises(AssertionError):
        test_what_can_still_end_in_time_does()


def test_running_work_keeps_its_cores_from_a_lower_priority(monkeypatch):
    """A short action takes the cores of a long one of its job, but not of a more urgent one."""

    def starts_at(priority: int) -> float:
        long = an_action("long", 2, job="x", work_s=100.0, priority=priority)
        short = (1.0, an_action("short", 2, job="x", work_s=0.1))
        true_s = {"long": 100.0, "short": 0.1}
        records = played(a_small_scheduler(), [(0.0, long), short], run_s=true_s)
        return next(r.started_at for r in records if r.action_id == "short")

    assert starts_at(0) < 2.0
    assert starts_at(1) >= 100.0 or starts_at(1) > starts_at(0)
    monkeypatch.setattr(ranking, "may_preempt", lambda ticket, other: True)
    assert starts_at(1) < 2.0
