"""Baselines: first come, first served, at one size.

`fcfs` gives every action its least amount; `fixed:N` gives an elastic action the largest
admissible amount of at most N. The first that does not fit blocks all behind it.
"""

from collections import deque

from artangram.core.lease import Allocation, Cores
from artangram.core.policies.base import Desk, Hindrance, Ticket
from artangram.core.pools.cpu import CpuNode


class FcfsLane:
    """One line in front of a CPU node."""

    def __init__(self, node: CpuNode, desk: Desk, *, size: int = 1) -> None:
        self.wake_at: float | None = None
        self._node = node
        self._desk = desk
        self._size = size
        self._line: deque[Ticket] = deque()

    def push(self, ticket: Ticket, now: float) -> None:
        ticket.key = ticket.submitted_at
        self._line.append(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        self._line.remove(ticket)

    def num_waiting(self) -> int:
        return len(self._line)

    def dispatch(self, now: float) -> None:
        while self._line:
            units = self._units(self._line[0])
            if units > self._node.free:
                return
            ticket = self._line.popleft()
            if self._desk.seize_sides(ticket, now):
                cores = Cores(self._node.resource, self._node.id, self._node.take(units))
                prepare_s = ticket.prepare_s
                self._desk.start(ticket, cores, workers=units, prepare_s=prepare_s, now=now)

    def _units(self, ticket: Ticket) -> int:
        amounts = ticket.form.amounts
        fitting = [amount for amount in amounts if amount <= self._size]
        return fitting[-1] if fitting and ticket.form.is_elastic else amounts[0]

    def give_back(self, ticket: Ticket, now: float) -> None:
        assert isinstance(ticket.allocation, Cores)
        self._node.give_back(ticket.allocation.cores)

    def lends(self, units: int, now: float) -> bool:
        return units <= self._node.free

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        return Cores(self._node.resource, self._node.id, self._node.take(units))

    def take_back(self, allocation: Allocation, now: float) -> None:
        assert isinstance(allocation, Cores)
        self._node.give_back(allocation.cores)

    def hindrance(self, ticket: Ticket, now: float) -> Hindrance:
        ahead, units = self._line.index(ticket), self._units(ticket)
        return Hindrance(
            resource=self._node.resource,
            needed=units,
            free=self._node.free,
            ahead=ahead,
            because=f"{ahead} actions came before it and {self._node.free} cores are free",
            starts_when=f"those have started and {units} cores of {self._node.id} are free",
        )
