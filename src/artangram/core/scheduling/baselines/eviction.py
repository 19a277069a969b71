"""ARL-Tangram's greedy eviction: which of those that fit start now, for any kind of unit.

1. The candidates are a first-come prefix of the line whose least amounts fit together; a division
   knows the best sizes of each shorter prefix.
2. The objective is the sum of their durations, and an estimate for those left in the line: each
   starts when the earliest of the running and newly started ends, at its least amount. The first
   of them may try `DEPTH` of its amounts.
3. The youngest candidate is dropped as long as that lowers the objective.

Mended against the published listing: an empty rest costs nothing, at least one candidate stays when
nothing runs, and what is left idle counts as an end at once.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heapreplace
from itertools import islice
from math import inf
from typing import Protocol

from artangram.core.scheduling.needs import Amounts
from artangram.core.scheduling.policies.base import Ticket

DEPTH = 2
"""Sizes the first action left in the line may try; the paper finds 2 or 3 enough."""

LOOKAHEAD = 1024
"""Actions left in the line that the estimate looks at: bounds the cost of a decision."""


class Division(Protocol):
    """The best division of what is free among every prefix of the candidates."""

    def sizes(self, count: int) -> list[int]:
        """The sizes of the first `count` candidates."""

    def idle(self, count: int) -> int:
        """How many could start beside them."""


class Eviction:
    """The objective of one decision."""

    def __init__(
        self,
        line: Iterable[Ticket],
        ends: list[float],
        *,
        amounts: Callable[[Ticket], Amounts],
        seconds: Callable[[Ticket, int], float],
    ) -> None:
        """`ends` says in how many seconds each running action is expected to end."""
        self._line = line
        self._ends = ends
        self._amounts = amounts
        self._seconds = seconds

    def chosen(self, count: int, division: Division) -> list[int]:
        """The sizes of those of the first `count` in line that start, a prefix of them."""
        line = list(islice(self._line, count + LOOKAHEAD))
        fewest = 0 if self._ends else 1
        best, chosen = inf, list[int]()
        for number in range(count, fewest - 1, -1):
            sizes = division.sizes(number)
            rest = line[number : number + LOOKAHEAD]
            objective = self._objective(line[:number], sizes, rest, division.idle(number))
            if objective >= best:
                break
            best, chosen = objective, sizes
        return chosen

    def _objective(
        self, started: list[Ticket], sizes: list[int], rest: list[Ticket], idle: int
    ) -> float:
        durations = [self._seconds(t, size) for t, size in zip(started, sizes, strict=True)]
        ends = self._ends + durations + [0.0] * min(idle, len(rest))
        return sum(durations) + self._estimate(rest, ends)

    def _estimate(self, rest: list[Ticket], ends: list[float]) -> float:
        """Sum of completion times of `rest`, each on the next end."""
        if not rest:
            return 0.0
        heapify(ends)
        first, *others = rest
        durations = [self._seconds(ticket, self._amounts(ticket)[0]) for ticket in others]
        return min(
            _chain([self._seconds(first, amount), *durations], ends.copy())
            for amount in self._amounts(first)[:DEPTH]
        )


def _chain(durations: list[float], ends: list[float]) -> float:
    total = 0.0
    for duration in durations:
        end = ends[0] + duration
        total += end
        heapreplace(ends, end)
    return total
