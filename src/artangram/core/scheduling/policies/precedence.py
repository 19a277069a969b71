"""The order inside a job: what callers say of their own actions.

- An action with a higher `priority` goes before those of its job with a lower one. A level is worth
  an hour of waiting: an action that wants to start an hour earlier goes first although its priority
  is one lower, so nothing starves.
- An action with a deadline wants to start while it is still expected to end in time. In a plain
  line, where no order is better for the mean, the earliest deadline goes first; an action without
  one counts as if it had an hour.
- Between jobs neither counts: shares decide there, and no job gains by calling its work urgent.

A lane calls `set_due` or `set_due_in_line` when it has set the key of a ticket, and `due_at` then
stays as it is while the ticket stands there. Without priority and deadline it is the key.
"""

from math import ldexp

from artangram.core.scheduling.policies.base import Ticket

LEVEL_S = 3600.0
"""What one level of priority is worth in seconds of waiting: as much as the longest slack of an
action, so that a higher level goes first unless it has come much later."""

LEVEL_BITS = 60
LEAST_RANK = 1e-6
"""Ranks are core-seconds, from microseconds on; no two differ by a factor of 2 ** 60."""


def set_due(ticket: Ticket) -> None:
    """Note where `ticket`, which has its key, stands among those of its job."""
    action = ticket.action
    if action.priority == 0 and action.deadline_at is None:
        ticket.due_at = ticket.key
    else:
        ticket.due_at = _wanted_at(ticket) - LEVEL_S * action.priority


def set_due_in_line(ticket: Ticket) -> None:
    """The same in a lane that is first come, first served."""
    action = ticket.action
    ticket.due_at = ticket.key - LEVEL_S * action.priority
    if action.deadline_at is not None:
        ticket.due_at = min(ticket.key, action.deadline_at - LEVEL_S) - LEVEL_S * action.priority


def is_due(ticket: Ticket, now: float) -> bool:
    """Should it have started by now? Then only what is due before it goes first in its job."""
    action = ticket.action
    if action.priority == 0 and action.deadline_at is None:
        return ticket.key <= now
    return ticket.due_at + LEVEL_S * action.priority <= now


def goes_before(one: Ticket, other: Ticket, now: float) -> bool:
    """Does `one` go before `other`, of the same job?"""
    is_one_first = (one.due_at, one.seq) < (other.due_at, other.seq)
    if is_due(one if is_one_first else other, now):
        return is_one_first
    return (leveled_rank(one), one.seq) < (leveled_rank(other), other.seq)


def leveled_rank(ticket: Ticket) -> float:
    """The order of those of a job that are not due: by priority, then by rank.

    One number, because a heap compares nothing faster; a power of two keeps every rank exact.
    """
    priority = ticket.action.priority
    return ldexp(max(ticket.rank, LEAST_RANK), -LEVEL_BITS * priority) if priority else ticket.rank


def may_preempt(ticket: Ticket, other: Ticket) -> bool:
    """May `ticket` take the cores of `other`, which runs, as far as its caller is concerned?"""
    return other.job != ticket.job or other.action.priority <= ticket.action.priority


def _wanted_at(ticket: Ticket) -> float:
    """When it should start, its priority aside."""
    deadline = ticket.action.deadline_at
    if deadline is None:
        return ticket.key
    takes_s = ticket.prepare_s + ticket.belief.mean_s / ticket.pace
    return min(ticket.key, max(ticket.submitted_at, deadline - takes_s))
