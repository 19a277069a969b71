"""The tickets that have cores of a node, smallest rank first, and what they leave to others.

How much an elastic one is worth follows from how many are behind it, so what the first few leave of
the cores depends on these few alone. It is remembered until one comes or goes before them: a burst
asks about many tickets in order of their ranks.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import merge
from operator import attrgetter

from artangram.core.scheduling.policies.base import Ticket

_rank = attrgetter("rank")

PRESSURE = 3.0
"""Weight of each action behind in the price: a poor size also delays those still to come."""

UNCERTAIN_PRESSURE = 2.0
"""How much more it weighs for each unit of the spread of a belief. The order in which uncertain
actions end is a guess, so what a wide one wastes is less often made up by its early end."""


def pressure_of(ticket: Ticket) -> float:
    """Weight of each action behind `ticket` in the price of a core."""
    return PRESSURE * (1.0 + UNCERTAIN_PRESSURE * ticket.belief.spread)


class Running:
    """Tickets with cores, elastic and rigid ones, each in order of their ranks."""

    __slots__ = ("_asked", "_cores", "_left", "elastic", "least_units", "rigid", "rigid_units")

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self.elastic: list[Ticket] = []
        self.rigid: list[Ticket] = []
        #: The sum of the least amounts of elastic ones, and what rigid ones have.
        self.least_units = 0
        self.rigid_units = 0
        #: The cores, and how many are behind the first, that `_left` is for.
        self._asked = (0, 0)
        #: After each number of elastic tickets: the cores they leave.
        self._left: list[int] = []

    def __len__(self) -> int:
        return len(self.elastic) + len(self.rigid)

    def add(self, ticket: Ticket) -> None:
        if ticket.form.is_elastic:
            position = bisect_right(self.elastic, ticket.rank, key=_rank)
            self.elastic.insert(position, ticket)
            self.least_units += ticket.form.amounts[0]
            del self._left[position + 1 :]
        else:
            insort(self.rigid, ticket, key=_rank)
            self.rigid_units += ticket.form.amounts[0]

    def remove(self, ticket: Ticket) -> None:
        if ticket.form.is_elastic:
            self.elastic.remove(ticket)
            self.least_units -= ticket.form.amounts[0]
            self._left = []
        else:
            self.rigid.remove(ticket)
            self.rigid_units -= ticket.form.amounts[0]

    def sort(self) -> None:
        """Some ranks have changed."""
        self.elastic.sort(key=_rank)
        self.rigid.sort(key=_rank)
        self._left = []

    def last_first(self) -> Iterator[Ticket]:
        """All of them, largest rank first."""
        return merge(reversed(self.elastic), reversed(self.rigid), key=_rank, reverse=True)

    def num_longer(self, rank: float) -> int:
        """How many elastic ones have a larger rank."""
        return len(self.elastic) - bisect_right(self.elastic, rank, key=_rank)

    def has_room_for(self, ticket: Ticket, cores: int, *, behind: int, firm: float) -> bool:
        """Would `ticket` get its least amount if all before it had what they are worth?

        `cores` are to be divided, and `behind` tickets stand or run behind the first. Those with a
        rank above `firm` give up their cores for `ticket`.
        """
        if self._asked != (cores, behind) or not self._left:
            self._asked, self._left = (cores, behind), [cores]
        before = bisect_right(self.elastic, ticket.rank, key=_rank)
        for index in range(len(self._left) - 1, before):
            self._left.append(self._served(index, behind - index))
        free = self._left[before]
        after = bisect_left(self.elastic, firm, key=_rank)
        kept = sum(other.form.amounts[0] for other in self.elastic[before:after])
        giving = bisect_right(self.rigid, firm, key=_rank)
        given = sum(other.form.amounts[0] for other in self.rigid[giving:])
        return free - kept + given >= ticket.form.amounts[0]

    def _served(self, index: int, behind: int) -> int:
        """What is left after the elastic ticket at `index`, given what is left before it."""
        free, ticket = self._left[index], self.elastic[index]
        widths = ticket.widths
        assert widths is not None
        price = max(0, behind) * pressure_of(ticket) / self._cores
        return free - (widths.best_within(price, free) or widths.least)
