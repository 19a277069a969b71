"""The Lagrangian bound: let actions buy units at a price instead of competing for them.

Every price per unit and second, none negative, gives a valid bound; a search looks for a high one.
Each part of the pool has a price of its own, constant on each cell of a grid and 0 behind it. An
action's cheapest start is then at its arrival, or where its start or its end meets a grid point, so
the minimum over starts is exact.
"""

from typing import NamedTuple

import numpy as np

from artangram.sim.moldable import Floats, Ints, Moldable

CELLS = 400
ROUNDS = 150
"""More of either gains less than half a percent on the lab traces."""
PATIENCE = 5
"""Rounds without a better bound until the steps become shorter."""


class _Choice(NamedTuple):
    """What every action would buy at a price."""

    cost: float
    """Of all of them."""
    row: Ints
    start_s: Floats


def lagrangian(actions: Moldable, *, cells: int = CELLS, rounds: int = ROUNDS) -> float:
    """The best bound found on the mean ACT of schedules that fix the units at the start."""
    if not (horizon_s := _horizon_s(actions)):
        return float(actions.fastest_s.mean())
    grid = _Grid(actions, cells, horizon_s / cells)
    price = best_price = np.zeros((len(actions.parts), cells))
    best, ahead, stalled = -np.inf, 0.2, 0
    for _ in range(rounds):
        choice = grid.cheapest(price)
        value = grid.value(choice, price)
        stalled += 1
        if value > best:
            best, best_price, stalled = value, price, 0
        elif stalled % PATIENCE == 0:
            price, ahead = best_price, ahead / 2
        excess = (grid.usage(choice) - actions.parts[:, None]) * grid.cell_s
        excess[(price <= 0) & (excess < 0)] = 0.0  # no price goes below 0
        length = float((excess * excess).sum())
        if length == 0:
            break
        # Polyak's step, towards a bound a little better than the best one so far.
        price = np.maximum(0.0, price + (best * (1 + ahead) - value) / length * excess)
    return best / len(actions)


def bound_at(actions: Moldable, price: Floats, *, cell_s: float) -> float:
    """The bound that one price gives: any will do, a row for each part, in cells of `cell_s`."""
    price = np.atleast_2d(price)
    grid = _Grid(actions, price.shape[1], cell_s)
    return grid.value(grid.cheapest(price), price) / len(actions)


class _Grid:
    """Equal cells from time 0 on."""

    def __init__(self, actions: Moldable, cells: int, cell_s: float) -> None:
        self._actions = actions
        self._cells = cells
        self.cell_s = cell_s

    def value(self, choice: _Choice, price: Floats) -> float:
        """What all actions pay in time and money, less what the pool can earn at most."""
        return choice.cost - float(self._actions.parts @ price.sum(axis=1)) * self.cell_s

    def cheapest(self, price: Floats) -> _Choice:
        """For every action the option and the start of least ACT plus payment."""
        actions = self._actions
        all_rows = np.arange(len(actions.action))
        arrive_s = actions.arrive_s[actions.action]
        at_once = self._cost(price, all_rows, arrive_s)
        # A start later than this is worse than the best option at once, whatever it pays.
        most = (actions.least(at_once)[actions.action] - actions.fee) / actions.weight[
            actions.action
        ]
        slack_s = most - actions.time_s
        rows, starts = [all_rows], [arrive_s]
        for offset_s in (np.zeros(len(all_rows)), actions.time_s):
            row, point_s = self._points(arrive_s + offset_s, slack_s)
            rows.append(row)
            starts.append(np.maximum(point_s - offset_s[row], arrive_s[row]))
        row, start_s = np.concatenate(rows), np.concatenate(starts)
        cost = self._cost(price, row, start_s)
        action = actions.action[row]
        least = np.full(len(actions), np.inf)
        np.minimum.at(least, action, cost)
        hits = np.flatnonzero(cost == least[action])
        chosen = np.zeros(len(actions), dtype=np.int64)
        chosen[action[hits]] = hits
        return _Choice(float(least.sum()), row[chosen], start_s[chosen])

    def usage(self, choice: _Choice) -> Floats:
        """Mean units of each part in use in each cell."""
        end_s = choice.start_s + self._actions.time_s[choice.row]
        return self._from(choice.start_s, choice.row) - self._from(end_s, choice.row)

    def _from(self, time_s: Floats, row: Ints) -> Floats:
        """Mean units in each cell if every action stayed from its `time_s` on."""
        cell, share = self._locate(time_s)
        size, shape = self._actions.size[row], (len(self._actions.parts), self._cells + 2)
        place = self._actions.part[row] * shape[1] + cell
        here = np.bincount(place, size * (1 - share), shape[0] * shape[1]).reshape(shape)
        later = np.bincount(place + 1, size, shape[0] * shape[1]).reshape(shape).cumsum(axis=1)
        return np.asarray((here + later)[:, : self._cells])

    def _cost(self, price: Floats, row: Ints, start_s: Floats) -> Floats:
        actions = self._actions
        action = actions.action[row]
        end_s = start_s + actions.time_s[row]
        paid = self._paid(price, row, end_s) - self._paid(price, row, start_s)
        counts = actions.weight[action] * (end_s - actions.arrive_s[action])
        return np.asarray(counts + actions.fee[row] + actions.size[row] * paid)

    def _paid(self, price: Floats, row: Ints, time_s: Floats) -> Floats:
        """The price of one unit of the part of each row from 0 to its `time_s`."""
        cell, share = self._locate(time_s)
        part = self._actions.part[row]
        before = np.pad(price.cumsum(axis=1), ((0, 0), (1, 0)))
        at = np.pad(price, ((0, 0), (0, 1)))
        return np.asarray((before[part, cell] + share * at[part, cell]) * self.cell_s)

    def _locate(self, time_s: Floats) -> tuple[Ints, Floats]:
        """The cell of each time and how far into it; times behind the grid are at its end."""
        position = np.clip(time_s / self.cell_s, 0, self._cells)
        cell = position.astype(np.int64)
        return cell, position - cell

    def _points(self, after_s: Floats, slack_s: Floats) -> tuple[Ints, Floats]:
        """All grid points within the slack after each time, with the row they belong to."""
        first = np.floor(after_s / self.cell_s).astype(np.int64) + 1
        # A high price lets a start be later than any whole number says.
        last = np.minimum(np.floor((after_s + slack_s) / self.cell_s), self._cells).astype(np.int64)
        counts = np.maximum(last - first + 1, 0)
        row = np.repeat(np.arange(len(after_s)), counts)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        return row, (first[row] + nth) * self.cell_s


def _horizon_s(actions: Moldable) -> float:
    """When a machine that wastes nothing is done, and a tenth more."""
    done_s = 0.0
    for arrive_s, area in zip(actions.arrive_s, actions.least_area, strict=True):
        done_s = max(done_s, float(arrive_s)) + float(area) / actions.units
    return 1.1 * done_s
