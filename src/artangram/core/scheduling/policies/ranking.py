"""The order of actions on cores: rank, virtual deadline, and when running work gives way.

- The rank of an action is the core-seconds expected per chance to end, given what it has done.
- Its virtual deadline is when it will have gone without cores for as long as its slack. Slack grows
  with the work that is expected of it or that it has done, up to `SLACK_CAP_S`, and is never less
  than the time for which it had cores. Past it an action is overdue: no later work goes before it.
- Running work gives way to work whose rank is clearly smaller, and to overdue work, unless it is
  overdue itself.
"""

from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.queue import FairUsage, may_preempt
from artangram.core.scheduling.policies.width import fixed_widths
from artangram.core.scheduling.speedup import DEFAULT

ALPHA = 10.0
"""Seconds of slack per core-second of elastic work. Any value from 5 up gives the same mean ACT,
but with more the longest of a step start later, and so the step ends later."""

RIGID_ALPHA = 30.0
"""The same for rigid work. Commands of milliseconds are soon overdue in a burst, and then it does
not matter any more how short they are."""

SLACK_CAP_S = 3600.0
"""An action that has not run yet goes without cores no longer than this because of work that came
later. Ten minutes would already cost 3 % of mean ACT."""

CLEARLY = 0.9
"""Work gives way to what has less than this share of its rank: ranks are guesses, and work that
gives way too easily is never done."""

SWITCH_S = 0.02
"""What a switch costs both actions: cores are moved, caches are cold."""

FAIR_S = 10.0
"""A job that is ahead of its fair share by this many seconds of the whole node takes no cores from
running work of other jobs."""


def enter(ticket: Ticket) -> None:
    """`ticket` begins to want cores; it has done nothing yet."""
    amounts, curve = ticket.form.amounts, ticket.curve or DEFAULT
    if ticket.form.is_elastic:
        ticket.area = fixed_widths(amounts, curve).area
    else:
        is_curved = ticket.action.needs.elastic is not None
        ticket.pace = curve.speed(amounts[0]) if is_curved else 1.0
        ticket.area = amounts[0] / ticket.pace
    ticket.widths = None
    ticket.held = {}
    ticket.done_s = 0.0
    ticket.units = 0
    ticket.rank = ticket.area * ticket.belief.rank_s(0.0)
    ticket.slack_s = _slack_s(ticket, ticket.belief.mean_s)
    ticket.key = ticket.submitted_at + ticket.slack_s


def refresh(ticket: Ticket, now: float) -> None:
    """Rank and virtual deadline of `ticket`, which has started, after what it has done."""
    ticket.count_work(now)
    cell = ticket.cell
    if cell is not None and ticket.action.work_s is None:
        if ticket.action.problem and ticket.done_s > ticket.belief.median_s:
            cell.reach(ticket.action.id, ticket.done_s)
        ticket.belief = cell.belief()
    ticket.rank = ticket.area * ticket.belief.rank_s(ticket.done_s)
    had_s = ticket.had_s(now)
    ticket.slack_s = max(ticket.slack_s, _slack_s(ticket, ticket.done_s), had_s)
    ticket.key = ticket.submitted_at + had_s + ticket.slack_s


def _slack_s(ticket: Ticket, work_s: float) -> float:
    alpha = ALPHA if ticket.form.is_elastic else RIGID_ALPHA
    return min(alpha * ticket.area * work_s, SLACK_CAP_S)


def firm_rank(ticket: Ticket) -> float:
    """Running work with at most this rank does not give way to `ticket`."""
    return (ticket.rank + SWITCH_S * ticket.form.amounts[0]) / CLEARLY


def gives_way(other: Ticket, ticket: Ticket, served: FairUsage, *, cores: int, now: float) -> bool:
    """Does `other`, which has cores, give them up for `ticket`?

    Either `ticket` is overdue, or the rank of `other` is above `firm_rank(ticket)`.
    """
    if other.key <= now or other.stopping is not None or not other.units:
        return False
    if not may_preempt(ticket, other):
        return False
    if ticket.key <= now:
        return True
    is_fair = served.of(ticket.job) <= served.of(other.job) + FAIR_S * cores
    return ticket.job == other.job or is_fair
