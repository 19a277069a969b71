"""What is believed of an action before it runs: how long it takes and how it speeds up.

- Work is believed as a distribution (`evidence`), learned from everything that ended: per kind,
  then per job and task, then per problem, so that siblings inform each other.
- What the caller says is a measurement with an error. How large that is, and which way, is learned
  for each job and kind: a caller who is right is believed, one who is off by ten in either
  direction hardly changes what its kind showed.
- How a kind speeds up is learned from the sizes its actions ran with (`scaling`).
- Beliefs only rank and size; a wrong one costs time, never correctness.

`Learning` fills tickets in with that, and learns from their ends. An action that ended by itself,
well or not, says how long it took; one that was stopped (a time limit, a cancellation, a deadline)
says that it takes longer; a failure of infrastructure says nothing. What an action says is told at
once to the others on its problem that have no cores.
"""

import math
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Generic, TypeVar

from artangram.core.ids import ActionId, JobId
from artangram.core.scheduling.action import Action, Outcome
from artangram.core.scheduling.distribution import (
    LOG_STEP,
    LOGS,
    NUM_BINS,
    Belief,
    Distribution,
    KnownDuration,
    bin_of,
)
from artangram.core.scheduling.evidence import Cell, CellHabits
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.scaling import Scaling
from artangram.core.scheduling.speedup import DEFAULT, Speedup

MOST_TASKS, MOST_PROBLEMS = 2048, 8192
"""Kinds, tasks and callers, and problems, that are remembered. A caller who makes up a kind or a
problem for every action teaches nothing, and those not asked for longest are forgotten then. A
belief takes a few kilobytes."""

MEMORY = 32.0
"""How many ended actions a moving average covers, about."""

KIND_HABIT, TASK_HABIT, PROBLEM_HABIT = (1.0, 0.3), (4.0, 0.3), (1.0, 0.3)
"""What is assumed of a level before it was seen: what the level above is worth, in durations of its
own, and how far apart durations are."""

STATED_SPREAD = 0.25
"""How far off a caller is believed to be (deviation of the log) until its actions ended, and for
how many of them that counts."""
STATED_FOR = 2.0

CERTAIN = 0.15
"""A caller who is off by less than about this share is taken at its word."""

MOST_ERROR = 10.0
"""In log space. A caller who is further off has not told how long it takes."""

DOUBT_OF_KIND = 1e-4
"""The chance of any duration that a kind has not shown, should its caller state it."""

LEAST_WORK_S = 1e-6

STATED_STEP, SPREAD_STEP = LOG_STEP / 4.0, LOG_STEP
"""Statements of callers who are off count as alike within 4 %, and the errors of callers within
19 %: beliefs are shared then, and not made for every action."""

MOST_STATED = 512
"""Such beliefs that are remembered."""

K = TypeVar("K")
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """What was asked for last, up to some number."""

    __slots__ = ("_all", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._all.get(key)
        if found is not None:
            self._all.move_to_end(key)
        return found

    def add(self, key: K, value: V) -> V:
        if len(self._all) >= self._most:
            self._all.popitem(last=False)
        self._all[key] = value
        return value


class _Caller:
    """How wrong one job is about the work of one kind: the log of work over what it stated."""

    __slots__ = ("_bias", "_count", "_squares", "factor", "spread")

    def __init__(self) -> None:
        self._count = self._bias = self._squares = 0.0
        #: What its statements are to be multiplied with.
        self.factor = 1.0
        #: How far off they are then: the deviation of the log.
        self.spread = STATED_SPREAD

    def observe(self, log_error: float) -> None:
        error = max(-MOST_ERROR, min(MOST_ERROR, log_error))
        self._count += 1.0
        before = error - self._bias
        self._bias += before / (self._count + STATED_FOR)
        self._squares += before * (error - self._bias)
        if self._count >= 2.0 * MEMORY:
            self._count *= 0.5
            self._squares *= 0.5
        self.factor = math.exp(self._bias)
        prior = STATED_FOR * STATED_SPREAD * STATED_SPREAD
        self.spread = math.sqrt((prior + self._squares) / (STATED_FOR + self._count))


_UNKNOWN_CALLER = _Caller()


class Estimates:
    """Beliefs about actions, learned from ended ones."""

    def __init__(self) -> None:
        self._cells: _Recent[tuple[str, ...], Cell] = _Recent(MOST_TASKS)
        self._problems: _Recent[tuple[str, ...], Cell] = _Recent(MOST_PROBLEMS)
        self._habits: _Recent[tuple[str, int], CellHabits] = _Recent(MOST_TASKS)
        self._scaling: _Recent[str, Scaling] = _Recent(MOST_TASKS)
        self._callers: _Recent[tuple[JobId, str], _Caller] = _Recent(MOST_TASKS)
        self._stated: _Recent[tuple[Distribution, int, int], Distribution] = _Recent(MOST_STATED)

    def cell(self, action: Action) -> Cell:
        """Where what is seen of actions like this one is kept."""
        kind, key = action.kind, (action.kind, action.job, action.task)
        task = self._cells.get(key)
        if task is None:
            general = self._cells.get((kind,))
            if general is None:
                general = self._cells.add((kind,), Cell(None, self._habit((kind, 1), KIND_HABIT)))
            task = self._cells.add(key, Cell(general, self._habit((kind, 2), TASK_HABIT)))
        if not action.problem:
            return task
        own = self._problems.get((*key, action.problem))
        if own is None:
            habits = self._habit((kind, 3), PROBLEM_HABIT)
            own = self._problems.add((*key, action.problem), Cell(task, habits))
        return own

    def belief(self, action: Action, cell: Cell) -> Belief:
        """How long `action`, of `cell`, takes on one unit."""
        stated_s = action.work_s
        if stated_s is None:
            return cell.belief()
        caller = self._callers.get((action.job, action.kind)) or _UNKNOWN_CALLER
        spread = caller.spread
        expected_s = max(stated_s * caller.factor, LEAST_WORK_S)
        if spread < CERTAIN:
            return KnownDuration(expected_s)
        middle = max(LOGS[0], min(LOGS[-1], math.log(expected_s)))
        steps = round(middle / STATED_STEP), round(math.log(spread) / SPREAD_STEP)
        key = (cell.belief(), *steps)
        return self._stated.get(key) or self._stated.add(key, _stated_belief(*key))

    def work_s(self, action: Action) -> float:
        """The duration on one unit that is expected of `action`."""
        return self.belief(action, self.cell(action)).mean_s

    def curve(self, action: Action) -> Speedup:
        """Believed speed-up along the elastic resource."""
        if action.needs.speedup is not None:
            return action.needs.speedup
        scaling = self._scaling.get(action.kind)
        return DEFAULT if scaling is None else scaling.curve

    def speed(self, action: Action, units: float) -> float:
        """How much faster one with an elastic resource is believed to run on `units` of it."""
        return self.curve(action).speed(units)

    def observe(self, action: Action, cell: Cell, work_s: float) -> bool:
        """`action`, of `cell`, ended by itself after `work_s` on one unit.

        Does that change what is believed of the others in the cell?
        """
        work_s = max(work_s, LEAST_WORK_S)
        index = bin_of(work_s)
        is_news = cell.add(index)
        while cell.parent is not None:
            cell = cell.parent
            cell.add(index)
        if action.work_s:
            error = math.log(work_s) - math.log(action.work_s)
            key = (action.job, action.kind)
            (self._callers.get(key) or self._callers.add(key, _Caller())).observe(error)
        return is_news

    def observe_longer(self, cell: Cell, attained_s: float) -> bool:
        """An action of `cell` was stopped after `attained_s`; its end would have come later.

        Does that change what is believed of the others in the cell?
        """
        is_news = cell.add_longer(attained_s)
        while cell.parent is not None:
            cell = cell.parent
            cell.add_longer(attained_s)
        return is_news

    def observe_scaling(
        self, action: Action, belief: Belief, held: Mapping[float, float], last: float
    ) -> None:
        """`action`, of which `belief` was believed, ended on `last` units.

        Before, it `held` each number of units for some seconds.
        """
        if action.needs.speedup is not None or sum(held.values()) <= LEAST_WORK_S:
            return
        kind = action.kind
        scaling = self._scaling.get(kind) or self._scaling.add(kind, Scaling())
        scaling.observe(held, last, belief)

    def _habit(self, level: tuple[str, int], habit: tuple[float, float]) -> CellHabits:
        return self._habits.get(level) or self._habits.add(level, CellHabits(*habit))


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


def _stated_belief(known: Distribution, middle_steps: int, spread_steps: int) -> Distribution:
    """What is `known` of a kind, weighed with how near it is to what a caller states."""
    first, nearness = _near(middle_steps, spread_steps)
    before = known.first - first
    chances = [0.0] * before + known.chances if before > 0 else known.chances[-before:]
    chances += [0.0] * (len(nearness) - len(chances))
    pairs = zip(chances, nearness, strict=False)  # What is further away does not count.
    return Distribution([(chance + DOUBT_OF_KIND) * near for chance, near in pairs], first)


@lru_cache(maxsize=4 * MOST_STATED)
def _near(middle_steps: int, spread_steps: int) -> tuple[int, list[float]]:
    """How near the bins around a statement are to it, from which bin on."""
    middle, spread = middle_steps * STATED_STEP, math.exp(spread_steps * SPREAD_STEP)
    reach = 3.0 * spread
    first, last = bisect_left(LOGS, middle - reach), bisect_right(LOGS, middle + reach)
    first, last = min(first, NUM_BINS - 1), max(last, 1)
    return first, [math.exp(-0.5 * ((log - middle) / spread) ** 2) for log in LOGS[first:last]]
