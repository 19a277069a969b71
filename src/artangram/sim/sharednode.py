"""A node whose kernel shares its cores: how fast each contender runs there, and which ends next.

- A contender gets its weighted fair share of the cores, never more than it wants; it contends from
  the moment its program begins, not while its sandbox is still being made.
- A share below one core is a share of one core's time. Below its workers a contender loses the
  node's squeeze penalty; a single process, which shares its core with no other worker, does not. A
  rigid one runs at full speed on all the cores it needs, and in proportion below.
- When a contender comes or goes, all speeds may change, so contenders are rows of one table and a
  change is a few operations on whole columns.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from artangram.core.ids import ActionId
from artangram.core.scheduling.speedup import Amdahl, Power, Speedup, Table
from artangram.sim.kernel import CoreDemand
from artangram.sim.timeline import Timeline

Floats = NDArray[np.float64]


class Contender(NamedTuple):
    """An action that contends for the cores of a node."""

    action_id: ActionId
    weight_milli: int
    limit_milli: int
    workers: int
    curve: Speedup | None
    """`None` if it is rigid: it needs a core for each worker."""
    work_s: float
    begins_at: float
    cut_at: float
    """It ends then although its work is not done."""

    @property
    def wants_milli(self) -> int:
        """What it can use: its workers, up to its limit."""
        return min(self.limit_milli, 1000 * self.workers)


_ROW = np.dtype(
    [
        ("left_s", "f8"),  # work, as of the last change
        ("rate", "f8"),
        ("ends_at", "f8"),
        ("cut_at", "f8"),
        ("weight", "f8"),
        ("wants", "f8"),
        ("workers", "f8"),
        ("whole", "f8"),  # cores on which a rigid one runs at full speed; 1 for others
        ("serial", "f8"),  # of Amdahl's law; 0 for others
        ("bend", "i8"),  # which other curve; 0 for none
        ("seq", "i8"),
    ]
)


class SharedNode:
    """The contenders of one node."""

    def __init__(self, cores: int, penalty: float, use: Timeline) -> None:
        #: Counts changes, for callers that remember `next_at`.
        self.version = 0
        self._capacity = 1000 * cores
        self._penalty = penalty
        self._use = use
        self._used = 0.0
        self._table = np.zeros(64, _ROW)
        self._contenders: list[Contender] = []
        self._row_of: dict[ActionId, int] = {}
        self._coming: list[tuple[float, int, Contender]] = []
        self._seq = 0
        self._demand = CoreDemand()
        self._level = inf
        self._updated_at = 0.0
        self._bends = _Bends()

    def next_at(self) -> float:
        """When the next contender ends or begins, if nothing else happens; infinite if never."""
        ends_at = float(self._rows()["ends_at"].min(initial=inf))
        return min(ends_at, self._coming[0][0]) if self._coming else ends_at

    def start(self, contender: Contender, now: float) -> None:
        """`contender` runs here, from `begins_at` on."""
        self._seq += 1
        heappush(self._coming, (contender.begins_at, self._seq, contender))
        self.version += 1
        if contender.begins_at <= now:
            self._advance(now)
            self._settle(self._join(now), now)

    def stop(self, action_id: ActionId, now: float) -> None:
        """A contender is gone before its end."""
        self.version += 1
        if action_id in self._row_of:
            self._advance(now)
            self._leave(action_id)
            self._settle(0, now)
        else:
            self._coming = [one for one in self._coming if one[2].action_id != action_id]
            heapify(self._coming)

    def ended(self, now: float) -> list[tuple[ActionId, bool]]:
        """What ends at `now`, and whether it was cut off. What begins then, contends."""
        self.version += 1
        self._advance(now)
        rows = self._rows()
        over = np.flatnonzero(rows["ends_at"] <= now)
        over = over[np.argsort(rows["seq"][over])]
        is_cut = (rows["cut_at"][over] <= now) & (rows["left_s"][over] > 1e-9)
        gone = [self._contenders[row].action_id for row in over]
        for action_id in gone:
            self._leave(action_id)
        self._settle(self._join(now), now)
        return list(zip(gone, is_cut.tolist(), strict=True))

    def _rows(self) -> NDArray[np.void]:
        return self._table[: len(self._contenders)]

    def _advance(self, now: float) -> None:
        """Work is done at the present rates up to `now`."""
        elapsed_s = now - self._updated_at
        self._updated_at = now
        if elapsed_s > 0:
            rows = self._rows()
            left_s = rows["left_s"] - rows["rate"] * elapsed_s
            np.maximum(left_s, 0.0, out=rows["left_s"])

    def _join(self, now: float) -> int:
        """Make rows, the last of the table, of those that begin by now. Returns how many."""
        before = len(self._contenders)
        while self._coming and self._coming[0][0] <= now:
            _, seq, contender = heappop(self._coming)
            row = len(self._contenders)
            if row == len(self._table):
                self._table = np.concatenate([self._table, np.zeros_like(self._table)])
            self._table[row] = self._as_row(contender, seq)
            self._contenders.append(contender)
            self._row_of[contender.action_id] = row
            self._demand.add(contender.weight_milli, contender.wants_milli)
        return len(self._contenders) - before

    def _as_row(self, contender: Contender, seq: int) -> tuple[float, ...]:
        work_s, weight, wants = contender.work_s, contender.weight_milli, contender.wants_milli
        workers, curve = contender.workers, contender.curve
        whole = workers if curve is None else 1
        serial = curve.serial if isinstance(curve, Amdahl) else 0.0
        bend = self._bends.number_of(curve) if isinstance(curve, Power | Table) else 0
        cut_at = contender.cut_at
        return (work_s, 0.0, inf, cut_at, weight, wants, workers, whole, serial, bend, seq)

    def _leave(self, action_id: ActionId) -> None:
        """The last row takes the place of the one that goes."""
        row = self._row_of.pop(action_id)
        gone, last = self._contenders[row], self._contenders.pop()
        self._demand.remove(gone.weight_milli, gone.wants_milli)
        if last is not gone:
            self._table[row] = self._table[len(self._contenders)]
            self._contenders[row] = last
            self._row_of[last.action_id] = row

    def _settle(self, joined: int, now: float) -> None:
        """New speeds for the last `joined` rows, and for all where the level has changed."""
        level = self._demand.level(self._capacity)
        first = len(self._contenders) - joined if level == self._level else 0
        self._level = level
        rows = self._rows()[first:]
        if len(rows):
            rows["rate"] = self._speed(rows)
            np.minimum(now + rows["left_s"] / rows["rate"], rows["cut_at"], out=rows["ends_at"])
        used = min(self._demand.wants, self._capacity) / 1000
        self._use.add(used - self._used, now)
        self._used = used

    def _speed(self, rows: NDArray[np.void]) -> Floats:
        cores: Floats = np.minimum(rows["wants"], self._level * rows["weight"]) / 1000
        # Amdahl's speed c / (1 + s (c - 1)), which below one core and for s = 0 is just c.
        speed: Floats = cores / (rows["whole"] + rows["serial"] * np.maximum(cores - 1.0, 0.0))
        self._bends.apply(rows["bend"], cores=cores, speed=speed)
        if self._penalty:
            squeezed = (cores < rows["workers"] - 1e-9) & (rows["workers"] > 1)
            speed[squeezed] *= 1.0 - self._penalty
        return speed


class _Bends:
    """Curves that do not follow Amdahl's law, by number from 1. Actions of a kind share theirs."""

    def __init__(self) -> None:
        self._numbers: dict[Power | Table, int] = {}
        self._curves: list[Power | Table] = []

    def number_of(self, curve: Power | Table) -> int:
        number = self._numbers.setdefault(curve, len(self._curves) + 1)
        if number > len(self._curves):
            self._curves.append(curve)
        return number

    def apply(self, numbers: NDArray[np.int64], *, cores: Floats, speed: Floats) -> None:
        """Overwrite the speeds of those that have such a curve."""
        for number in np.unique(numbers[numbers > 0]) if self._curves else ():
            rows = numbers == number
            whole = _curved(self._curves[number - 1], np.maximum(cores[rows], 1.0))
            speed[rows] = np.minimum(cores[rows], 1.0) * whole


def _curved(curve: Power | Table, cores: Floats) -> Floats:
    if isinstance(curve, Power):
        return cores**curve.exponent
    units: Sequence[float] = [point[0] for point in curve.points]
    return np.interp(cores, units, [point[1] for point in curve.points])
