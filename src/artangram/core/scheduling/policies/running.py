"""The elastic actions that run on a node, nearest to its end first, and what they leave to others.

What one of them is worth follows from how many are behind it, so what the first few leave of the
cores depends on these few alone. It is remembered until one comes or goes before them: a burst
asks about many tickets in order of their work.
"""

from bisect import bisect_right
from operator import attrgetter

from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.preempted import passes

_work_left = attrgetter("work_left_s")


class Running:
    """Elastic tickets in order of the work they have left."""

    __slots__ = ("_asked", "_left", "_pressure", "least_units", "tickets")

    def __init__(self, pressure: float) -> None:
        #: What each ticket behind adds to the price of a core.
        self._pressure = pressure
        self.tickets: list[Ticket] = []
        #: The sum of their least amounts.
        self.least_units = 0
        #: The cores, and how many are behind the first, that `_left` is for.
        self._asked = (0, 0)
        #: After each number of tickets: the cores they leave, and the sum of their least amounts.
        self._left: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.tickets)

    def add(self, ticket: Ticket) -> None:
        position = self.num_shorter(ticket.work_left_s)
        self.tickets.insert(position, ticket)
        self.least_units += ticket.form.amounts[0]
        del self._left[position + 1 :]

    def remove(self, ticket: Ticket) -> None:
        self.tickets.remove(ticket)
        self.least_units -= ticket.form.amounts[0]
        self._left = []

    def sort(self) -> None:
        """Some have less work left than before."""
        self.tickets.sort(key=_work_left)
        self._left = []

    def num_shorter(self, work_s: float) -> int:
        """How many have at most `work_s` left."""
        return bisect_right(self.tickets, work_s, key=_work_left)

    def units_for(self, ticket: Ticket, units: int) -> int:
        """Cores that longer ones would give up for `ticket`; no more are counted than `units`."""
        found = 0
        for other in reversed(self.tickets):
            if found >= units or other.work_left_s <= ticket.work_s:
                break
            if other.units and passes(ticket, other):
                found += other.form.amounts[0]
        return found

    def has_room_for(self, ticket: Ticket, cores: int, *, behind: int) -> bool:
        """Would `ticket` get its least amount if all with less work left had what they are worth?

        `cores` are to be divided, and `behind` elastic tickets wait or run behind the first.
        """
        if self._asked != (cores, behind) or not self._left:
            self._asked, self._left = (cores, behind), [(cores, 0)]
        shorter = self.num_shorter(ticket.work_s)
        for index in range(len(self._left) - 1, shorter):
            self._left.append(self._served(index, behind - index))
        free, least = self._left[shorter]
        return free - (self.least_units - least) >= ticket.form.amounts[0]

    def _served(self, index: int, behind: int) -> tuple[int, int]:
        """What is left after the ticket at `index`, given what is left before it."""
        free, least = self._left[index]
        widths = self.tickets[index].widths
        assert widths is not None
        size = widths.best_within(behind * self._pressure, free) or widths.least
        return free - size, least + widths.least
