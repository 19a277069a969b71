"""Tickets in a line that any of them may leave at any time.

Coming and leaving cost a search and a shift of the order, which is a list of small entries. Nothing
of a ticket that left stays behind.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from artangram.core.scheduling.policies.base import Ticket


class SortedTickets:
    """Tickets in order of their key; ties go to the earlier submission."""

    __slots__ = ("_order", "_tickets")

    def __init__(self) -> None:
        self._order: list[tuple[float, int]] = []
        self._tickets: dict[int, Ticket] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Ticket]:
        return (self._tickets[seq] for _, seq in self._order)

    def __contains__(self, seq: object) -> bool:
        return seq in self._tickets

    @property
    def head(self) -> Ticket:
        return self._tickets[self._order[0][1]]

    def add(self, ticket: Ticket) -> None:
        insort(self._order, self._place(ticket))
        self._tickets[ticket.seq] = ticket

    def remove(self, ticket: Ticket) -> None:
        del self._order[self.place(ticket)]
        del self._tickets[ticket.seq]

    def place(self, ticket: Ticket) -> int:
        """How many go before `ticket`."""
        return bisect_left(self._order, self._place(ticket))

    def _place(self, ticket: Ticket) -> tuple[float, int]:
        return (ticket.key, ticket.seq)


class JobTickets(SortedTickets):
    """Tickets of one job: their priorities and deadlines count, too."""

    __slots__ = ()

    def _place(self, ticket: Ticket) -> tuple[float, int]:
        return (ticket.due_at, ticket.seq)
