"""From ended actions to beliefs about those that are still to run.

- An action that ended by itself, well or not, says how long it took; one that was stopped (a time
  limit, a cancellation, a deadline) says that it takes longer. A failure of infrastructure says
  nothing.
- What an action says is told at once to the others on its problem that have no cores.
"""

from artangram.core.ids import ActionId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.estimates import Estimates
from artangram.core.scheduling.evidence import Cell
from artangram.core.scheduling.policies.base import Ticket


class Learning:
    """What is believed of live tickets, and what ended ones teach."""

    def __init__(self) -> None:
        self.estimates = Estimates()
        #: Live tickets on the same problem, where their actions name one.
        self._siblings: dict[Cell, dict[ActionId, Ticket]] = {}

    def expect(self, ticket: Ticket) -> None:
        """`ticket` is about to wait: fill in what is believed of it."""
        action, estimates = ticket.action, self.estimates
        if ticket.cell is not None:
            self.forget(ticket)
        cell = ticket.cell = estimates.cell(action)
        ticket.place = None
        ticket.belief = estimates.belief(action, cell)
        ticket.work_s = ticket.belief.mean_s
        if action.needs.elastic is not None:
            ticket.curve = estimates.curve(action)
            if not ticket.form.is_elastic:
                ticket.work_s /= ticket.curve.speed(ticket.form.amounts[0])
        if action.problem:
            self._siblings.setdefault(cell, {})[action.id] = ticket

    def forget(self, ticket: Ticket) -> None:
        """`ticket` has ended, or will be expected anew."""
        cell, action_id = ticket.cell, ticket.action.id
        assert cell is not None, f"{ticket} was never expected"
        cell.leave(action_id)
        siblings = self._siblings.get(cell, {})
        siblings.pop(action_id, None)
        if not siblings:
            self._siblings.pop(cell, None)

    def learn(
        self, ticket: Ticket, outcome: Outcome, *, began_at: float, now: float
    ) -> list[Ticket]:
        """The run of `ticket` is over. Returns the candidates whose rank has changed."""
        action, cell = ticket.action, ticket.cell
        assert cell is not None, f"{ticket} ran and was never expected"
        run_s, units, work_s = self._measured(ticket, began_at, now)
        cell.leave(action.id)
        ends_itself = outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
        if ends_itself and (ticket.stopping is None or outcome is Outcome.SUCCEEDED):
            is_news = self.estimates.observe(action, cell, work_s)
            if action.needs.elastic is not None:
                held, last = ticket.held or {units: run_s}, ticket.units or units
                self.estimates.observe_scaling(action, ticket.belief, held, last)
        elif outcome is not Outcome.INFRA_FAILED and work_s > 0.0:
            is_news = self.estimates.observe_longer(cell, work_s)
        else:
            return []
        return self._reranked(cell) if is_news else []

    def _measured(self, ticket: Ticket, began_at: float, now: float) -> tuple[float, float, float]:
        """How long `ticket` ran, on how many units on average, and its work on one unit."""
        ticket.count_units(now)
        run_s, had_s = now - began_at - ticket.idle_s, now - ticket.started_at - ticket.idle_s
        if ticket.action.needs.elastic is None:
            return run_s, 1.0, run_s
        if not ticket.form.is_elastic:
            units = float(ticket.form.amounts[0])
            return run_s, units, run_s * self.estimates.speed(ticket.action, units)
        units = max(1.0, ticket.unit_s / max(1e-9, had_s))
        if ticket.widths is None:
            return run_s, units, run_s * self.estimates.speed(ticket.action, units)
        ticket.count_work(now)
        return run_s, units, ticket.done_s

    def _reranked(self, cell: Cell) -> list[Ticket]:
        """Tell the candidates of `cell` what is believed now."""
        told = []
        for ticket in self._siblings.get(cell, {}).values():
            if ticket.place is not None and ticket.action.work_s is None:
                ticket.belief = cell.belief()
                ticket.place.rerank(ticket)
                told.append(ticket)
        return told
