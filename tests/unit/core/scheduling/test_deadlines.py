"""Deadlines are found in order, and those of ended actions are forgotten."""

from builders import a_scheduler, a_waiting_ticket, an_action, wakes

from artangram.core.ids import ActionId
from artangram.core.scheduling.deadlines import FEWEST, Deadlines
from artangram.core.scheduling.events import Cancelled, Submitted
from artangram.core.scheduling.policies.base import State


def test_the_earliest_is_due_first_and_each_once():
    deadlines = Deadlines()
    late, early = a_waiting_ticket(0), a_waiting_ticket(1)
    deadlines.add(9.0, late)
    deadlines.add(3.0, early)
    assert deadlines.next_at() == 3.0
    assert deadlines.take_due(5.0) == [early]
    assert deadlines.take_due(10.0) == [late]
    assert deadlines.next_at() is None


def test_who_has_several_is_due_once():
    deadlines = Deadlines()
    ticket, other = a_waiting_ticket(0), a_waiting_ticket(1)
    for at in (3.0, 3.0, 4.0):
        deadlines.add(at, ticket)
    deadlines.add(3.5, other)
    assert deadlines.take_due(5.0) == [ticket, other]


def test_an_ended_ticket_is_never_due():
    deadlines = Deadlines()
    ticket = a_waiting_ticket(0)
    deadlines.add(3.0, ticket)
    ticket.state = State.ENDED
    assert deadlines.take_due(5.0) == []


def test_many_short_actions_with_far_deadlines_do_not_pile_up():
    deadlines = Deadlines()
    deadlines.add(1e9, a_waiting_ticket(0))
    for seq in range(1, 50 * FEWEST):
        ticket = a_waiting_ticket(seq)
        deadlines.add(1e9 + seq, ticket)
        ticket.state = State.ENDED
        assert len(deadlines.heap) <= 2 * FEWEST
    assert deadlines.next_at() == 1e9


def test_nobody_is_woken_for_the_deadline_of_an_action_that_ended():
    scheduler = a_scheduler()
    assert wakes(scheduler.handle(Submitted(an_action("a", deadline_at=50.0)), 0.0)) == [50.0]
    scheduler.handle(Cancelled(ActionId("a")), 1.0)
    assert wakes(scheduler.handle(Submitted(an_action("b")), 2.0)) == []
