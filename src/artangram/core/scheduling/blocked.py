"""Blocked tickets in order of their keys, and claims.

A ticket is blocked at the lane of a secondary resource that is missing, or that its job may have no
more of, or it is barred from the lane it waits in, on which an earlier ticket has a claim.
"""

from collections.abc import Iterable

from artangram.core.ids import JobId
from artangram.core.scheduling.policies.base import Lane, Ticket
from artangram.core.scheduling.policies.line import SortedTickets

_Lines = dict[Lane, SortedTickets]


class Blocked:
    """Which ticket is blocked where."""

    __slots__ = ("_barred", "_held_back", "lacking")

    def __init__(self) -> None:
        #: Tickets that lack something, by lane; none of the lines is empty.
        self.lacking: _Lines = {}
        self._barred: _Lines = {}
        #: Tickets that wait for their own jobs to give something back.
        self._held_back: dict[tuple[Lane, JobId], SortedTickets] = {}

    def add(self, ticket: Ticket, lane: Lane) -> None:
        """`ticket` lacks a secondary resource of `lane`."""
        _add(self.lacking, ticket, lane)

    def bar(self, ticket: Ticket, lane: Lane) -> None:
        """`ticket` lacks no secondary resource, but may not start in its own `lane`."""
        _add(self._barred, ticket, lane)

    def hold_back(self, ticket: Ticket, lane: Lane) -> None:
        """The limits of jobs keep `ticket` from what it needs of `lane`."""
        ticket.blocked_at = lane
        self._held_back.setdefault((lane, ticket.job), SortedTickets()).add(ticket)

    def held_back(self) -> list[tuple[Lane, Ticket]]:
        """The first of each job at each lane that limits of jobs keep it from."""
        return [(lane, line.head) for (lane, _), line in self._held_back.items()]

    def lanes(self) -> list[Lane]:
        """The lanes that lack something."""
        return list(self.lacking)

    def first(self, lane: Lane) -> Ticket | None:
        """The first of the tickets that lack something of `lane`."""
        return _first(self.lacking, lane)

    def firsts(self) -> list[Ticket]:
        """The first ticket at each lane that lacks something, and the first that is barred."""
        return [line.head for line in (*self.lacking.values(), *self._barred.values())]

    def unbar(self, lane: Lane, claimant: Ticket | None) -> list[Ticket]:
        """Tickets barred from `lane` that go before `claimant` are blocked no longer."""
        free = []
        while (ticket := _first(self._barred, lane)) is not None:
            if claimant is not None and (claimant.key, claimant.seq) < (ticket.key, ticket.seq):
                break
            self.withdraw(ticket)
            free.append(ticket)
        return free

    def withdraw(self, ticket: Ticket) -> None:
        """`ticket` is blocked no longer, wherever it was."""
        lane = ticket.blocked_at
        assert lane is not None, f"{ticket} is not blocked"
        ticket.blocked_at = None
        line = self._held_back.get((lane, ticket.job))
        if line is not None and ticket.seq in line:
            line.remove(ticket)
            if not line:
                del self._held_back[lane, ticket.job]
            return
        lines = self.lacking if ticket.seq in self.lacking.get(lane, ()) else self._barred
        lines[lane].remove(ticket)
        if not lines[lane]:
            del lines[lane]

    def num_before(self, ticket: Ticket, lane: Lane) -> int:
        """How many tickets that lack something of `lane` go before `ticket`."""
        return self.lacking[lane].place(ticket) if lane in self.lacking else 0


class Claims:
    """The overdue ticket of each lane before which no later one starts there."""

    __slots__ = ("claimants",)

    def __init__(self) -> None:
        #: Empty while no ticket that lacks something is overdue.
        self.claimants: dict[Lane, Ticket] = {}

    def of(self, lane: Lane) -> Ticket | None:
        return self.claimants.get(lane)

    def keep_out(self, lane: Lane, ticket: Ticket) -> bool:
        """Must `ticket` wait for another one that claims `lane`?"""
        claimant = self.claimants.get(lane)
        return claimant is not None and claimant is not ticket and is_before(claimant, ticket)

    def add(self, ticket: Ticket, lanes: Iterable[Lane]) -> None:
        """`ticket` claims `lanes`, but for those that an earlier one has a claim on."""
        for lane in lanes:
            claimant = self.claimants.get(lane)
            if claimant is None or is_before(ticket, claimant):
                self.claimants[lane] = ticket

    def give_up(self, ticket: Ticket) -> list[Lane]:
        """`ticket` claims nothing any more; returns what it had a claim on."""
        lanes = [lane for lane, owner in self.claimants.items() if owner is ticket]
        for lane in lanes:
            del self.claimants[lane]
        return lanes

    def forget(self, lane: Lane) -> None:
        """`lane` is gone."""
        self.claimants.pop(lane, None)


def is_before(one: Ticket, other: Ticket) -> bool:
    return (one.key, one.seq) < (other.key, other.seq)


def _add(lines: _Lines, ticket: Ticket, lane: Lane) -> None:
    ticket.blocked_at = lane
    lines.setdefault(lane, SortedTickets()).add(ticket)


def _first(lines: _Lines, lane: Lane) -> Ticket | None:
    return lines[lane].head if lane in lines else None
