"""Which action of a job goes first, by what its caller says of it."""

import pytest
from builders import CPU, a_cpu, a_scheduler, an_action, started

from artangram.core.errors import BadInput
from artangram.core.scheduling.action import checked
from artangram.core.scheduling.distribution import KnownDuration
from artangram.core.scheduling.events import Finished, Submitted
from artangram.core.scheduling.policies.base import Form, Ticket
from artangram.core.scheduling.policies.candidates import goes_first
from artangram.core.scheduling.policies.queue import (
    LEVEL_S,
    may_preempt,
    set_due,
    set_due_in_line,
)
from artangram.core.scheduling.policies.ranking import CoreUse


def a_ticket(name: str, *, key: float = 0.0, rank: float = 1.0, seq: int = 1, **fields) -> Ticket:
    ticket = Ticket(an_action(name, **fields), Form(resource=CPU, amounts=(1,)), seq=seq, now=0.0)
    ticket.key, ticket.rank = key, rank
    ticket.belief = KnownDuration(4.0)
    set_due(ticket)
    return ticket


def goes_before(one: Ticket, other: Ticket, now: float) -> bool:
    return goes_first(CoreUse({}), one, other, now)


def test_without_priority_and_deadline_the_key_is_what_counts():
    ticket = a_ticket("a", key=7.0)
    assert ticket.due_at == 7.0
    set_due_in_line(ticket)
    assert ticket.due_at == 7.0
    assert ticket.due_from == 7.0


def test_the_higher_priority_goes_first_whatever_the_ranks():
    urgent = a_ticket("u", key=100.0, rank=1e6, priority=1)
    cheap = a_ticket("c", key=100.0, rank=1e-9, seq=2)
    assert goes_before(urgent, cheap, now=1.0)
    assert not goes_before(cheap, urgent, now=1.0)
    assert urgent.due_from == 100.0


def test_an_hour_of_waiting_is_worth_a_level():
    old = a_ticket("o", key=10.0)
    urgent = a_ticket("u", key=10.0 + LEVEL_S + 1.0, priority=1, seq=2)
    assert goes_before(old, urgent, now=20.0)
    assert not goes_before(urgent, old, now=20.0)


def test_equal_ranks_go_in_order_of_submission():
    first, second = a_ticket("a", key=9.0, priority=2), a_ticket("b", key=9.0, priority=2, seq=2)
    assert goes_before(first, second, now=0.0)
    assert not goes_before(second, first, now=0.0)


def test_a_deadline_makes_an_action_due_while_it_can_still_end_in_time():
    ticket = a_ticket("a", key=100.0, deadline_at=50.0)
    assert ticket.due_at == 46.0
    assert ticket.due_from == 46.0
    late = a_ticket("b", key=100.0, deadline_at=1.0)
    assert late.due_at == 0.0  # Not before it was submitted.


def test_in_a_line_the_earliest_deadline_goes_first():
    ticket = a_ticket("a", key=0.0, deadline_at=50.0, priority=-1)
    set_due_in_line(ticket)
    assert ticket.due_at == 50.0


def test_only_its_own_job_may_not_preempt_a_higher_priority():
    high = a_ticket("h", priority=1)
    assert not may_preempt(a_ticket("l"), high)
    assert may_preempt(a_ticket("e", priority=1), high)
    assert may_preempt(a_ticket("o", job="other"), high)


@pytest.mark.parametrize("priority", [-11, 11])
def test_a_priority_out_of_range_is_refused(priority):
    with pytest.raises(BadInput, match=r"priority: -?11 is out of range; give a whole number from"):
        checked(an_action("a", priority=priority))


def test_a_short_action_does_not_preempt_one_of_a_higher_priority():
    scheduler = a_scheduler(cpu=a_cpu(cores=1))
    scheduler.handle(Submitted(an_action("long", work_s=60.0, priority=1)), 0.0)
    assert started(scheduler.handle(Submitted(an_action("short", work_s=0.1)), 1.0)) == []
    assert started(scheduler.handle(Submitted(an_action("s", work_s=0.1, priority=1)), 1.0)) == [
        "s"
    ]
    assert started(scheduler.handle(Finished("s"), 1.1)) == []
