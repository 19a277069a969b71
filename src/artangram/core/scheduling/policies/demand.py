"""The demand for each service of a GPU pool: waiting tickets, and the recent rate of calls."""

from collections.abc import Iterator
from math import exp

from artangram.core.ids import JobId, ServiceId
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.line import JobTickets


class Fading:
    """A rate that forgets: what came per second, mostly of the last `memory_s`."""

    __slots__ = ("_at", "_memory_s", "_rate")

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._rate = 0.0
        self._at = 0.0

    def add(self, amount: float, now: float) -> None:
        self._rate = self.per_s(now) + amount / self._memory_s
        self._at = now

    def per_s(self, now: float) -> float:
        return self._rate * exp((self._at - now) / self._memory_s)


class ServiceDemand:
    """The waiting tickets of one service, and how often it was asked for lately."""

    __slots__ = ("_lines", "_size", "rate", "service")

    def __init__(self, service: ServiceId, memory_s: float) -> None:
        self.service = service
        self.rate = Fading(memory_s)
        #: A line for each job that waits.
        self._lines: dict[JobId, JobTickets] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def heads(self) -> Iterator[Ticket]:
        return (line.head for line in self._lines.values())

    def line(self, ticket: Ticket) -> JobTickets:
        """The line where `ticket` waits."""
        return self._lines[ticket.job]

    def add(self, ticket: Ticket) -> None:
        self._lines.setdefault(ticket.job, JobTickets()).add(ticket)
        self._size += 1

    def remove(self, ticket: Ticket) -> None:
        line = self._lines[ticket.job]
        line.remove(ticket)
        self._size -= 1
        if not line:
            del self._lines[ticket.job]
