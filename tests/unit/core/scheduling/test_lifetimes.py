"""Trajectories that rest too long, or live too long, are to be closed."""

from builders import a_scheduler, an_action

from artangram.core.ids import ActionId, TrajectoryId
from artangram.core.scheduling.deadlines import AGAIN_S, FEWEST, Lifetimes
from artangram.core.scheduling.decisions import Close, Decision, WakeAt
from artangram.core.scheduling.events import (
    ClockTicked,
    Finished,
    Submitted,
    TrajectoryClosed,
    TrajectoryOpened,
)

T = TrajectoryId("t")
RESTED, OVER = "it rested for longer than it may", "its lifetime is over"


def closes(decisions: list[Decision]) -> list[str]:
    return [one.reason for one in decisions if isinstance(one, Close)]


def wakes(decisions: list[Decision]) -> list[float]:
    return [one.at for one in decisions if isinstance(one, WakeAt)]


def test_one_that_rests_too_long_is_closed():
    scheduler = a_scheduler()
    assert wakes(scheduler.handle(TrajectoryOpened(T, idle_s=10.0), 0.0)) == [10.0]
    scheduler.handle(Submitted(an_action("a", trajectory="t")), 5.0)
    assert closes(scheduler.handle(ClockTicked(), 15.0)) == []  # It runs.
    assert wakes(scheduler.handle(Finished(ActionId("a")), 20.0)) == [30.0]
    assert closes(scheduler.handle(ClockTicked(), 29.0)) == []
    assert closes(scheduler.handle(ClockTicked(), 30.0)) == [RESTED]


def test_one_that_lives_too_long_is_closed_whatever_it_does():
    scheduler = a_scheduler()
    scheduler.handle(TrajectoryOpened(T, lifetime_s=10.0), 0.0)
    scheduler.handle(Submitted(an_action("a", trajectory="t")), 5.0)
    assert closes(scheduler.handle(ClockTicked(), 10.0)) == [OVER]


def test_it_is_said_again_until_it_is_done():
    scheduler = a_scheduler()
    scheduler.handle(TrajectoryOpened(T, lifetime_s=10.0), 0.0)
    decisions = scheduler.handle(ClockTicked(), 10.0)
    assert (closes(decisions), wakes(decisions)) == ([OVER], [10.0 + AGAIN_S])
    assert closes(scheduler.handle(ClockTicked(), 10.0 + AGAIN_S)) == [OVER]
    decisions = scheduler.handle(TrajectoryClosed(T), 80.0)
    assert wakes(decisions + scheduler.handle(ClockTicked(), 500.0)) == []


def test_those_without_limits_are_never_closed():
    scheduler = a_scheduler()
    decisions = scheduler.handle(TrajectoryOpened(T), 0.0)
    decisions += scheduler.handle(Submitted(an_action("a", trajectory="t")), 1.0)
    decisions += scheduler.handle(Finished(ActionId("a")), 1e6)
    assert closes(decisions) == wakes(decisions) == []


def test_a_limit_of_one_is_none_of_another():
    scheduler = a_scheduler()
    scheduler.handle(TrajectoryOpened(T, idle_s=10.0), 0.0)
    scheduler.handle(TrajectoryOpened(TrajectoryId("free")), 0.0)
    scheduler.handle(Submitted(an_action("a", trajectory="free")), 5.0)
    scheduler.handle(Finished(ActionId("a")), 6.0)
    assert closes(scheduler.handle(ClockTicked(), 99.0)) == [RESTED]


def test_many_short_rests_are_forgotten():
    lifetimes = Lifetimes()
    lifetimes.open(TrajectoryOpened(T, idle_s=1e6), 0.0)
    for now in range(10 * FEWEST):
        lifetimes.goes_on(T)
        lifetimes.rests(T, float(now))
    assert len(lifetimes) <= FEWEST
    assert lifetimes.next_at() == 1e6 + 10 * FEWEST - 1
