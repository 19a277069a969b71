"""The tickets that have cores of a node, smallest rank first."""

from bisect import bisect_right, insort
from collections.abc import Iterator
from heapq import merge
from operator import attrgetter

from artangram.core.scheduling.policies.base import Ticket

_rank = attrgetter("rank")


class Running:
    """Tickets with cores, elastic and rigid ones, each in order of their ranks."""

    __slots__ = ("elastic", "least_units", "rigid", "rigid_units")

    def __init__(self) -> None:
        self.elastic: list[Ticket] = []
        self.rigid: list[Ticket] = []
        #: The sum of the least amounts of elastic ones, and what rigid ones have.
        self.least_units = 0
        self.rigid_units = 0

    def __len__(self) -> int:
        return len(self.elastic) + len(self.rigid)

    def add(self, ticket: Ticket) -> None:
        if ticket.form.is_elastic:
            insort(self.elastic, ticket, key=_rank)
            self.least_units += ticket.form.amounts[0]
        else:
            insort(self.rigid, ticket, key=_rank)
            self.rigid_units += ticket.form.amounts[0]

    def remove(self, ticket: Ticket) -> None:
        if ticket.form.is_elastic:
            self.elastic.remove(ticket)
            self.least_units -= ticket.form.amounts[0]
        else:
            self.rigid.remove(ticket)
            self.rigid_units -= ticket.form.amounts[0]

    def sort(self) -> None:
        """Some ranks have changed."""
        self.elastic.sort(key=_rank)
        self.rigid.sort(key=_rank)

    def last_first(self) -> Iterator[Ticket]:
        """All of them, largest rank first."""
        return merge(reversed(self.elastic), reversed(self.rigid), key=_rank, reverse=True)

    def num_longer(self, rank: float) -> int:
        """How many elastic ones have a larger rank."""
        return len(self.elastic) - bisect_right(self.elastic, rank, key=_rank)
