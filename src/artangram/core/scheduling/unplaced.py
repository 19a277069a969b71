"""Trajectories that wait for memory, and which of them goes first.

- Between jobs, the one that holds least of the pool for its share goes first, and before all of
  them one that has not what it is promised; inside a job, the one that waits longest.
- Those that ask for the same are one line, so finding the first that fits looks at one of each.
- A party that has a node reserved stands in no line: it goes before all others.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from artangram.core.ids import JobId, TrajectoryId
from artangram.core.scheduling.cluster import JobLimits
from artangram.core.scheduling.movingline import MovingLine
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.pools.cpu import CpuNode, Resident, Selector

_NO_LIMITS = JobLimits()


Ask = tuple[int, int, Selector]
PartyKey = TrajectoryId | Ticket


class PlacementUnit:
    """What needs a node together: a trajectory with all tickets that wait, or a lone ticket."""

    __slots__ = ("ask", "key", "reserved", "resident", "seq", "tickets")

    def __init__(self, key: PartyKey, resident: Resident, seq: int) -> None:
        self.key = key
        self.resident = resident
        self.seq = seq
        self.tickets: list[Ticket] = []
        self.ask: Ask = _ask(resident)
        #: The node that gets no other trajectory before this one.
        self.reserved: CpuNode | None = None


def _ask(resident: Resident) -> Ask:
    return (resident.memory_mb, resident.cores, resident.selector)


_Line = OrderedDict[PartyKey, PlacementUnit]


class Unplaced:
    """The parties of one pool that wait for a node."""

    def __init__(self) -> None:
        self._parties: dict[PartyKey, PlacementUnit] = {}
        self._lines: dict[JobId, dict[Ask, _Line]] = {}
        self.reserved: _Line = OrderedDict()
        #: Those that a parent waits for, the oldest first.
        self.children: _Line = OrderedDict()
        #: How many of each job wait, and how fast they are served.
        self.lines: dict[JobId, MovingLine] = {}
        self._seq = 0

    def __len__(self) -> int:
        return len(self._parties)

    def __contains__(self, key: object) -> bool:
        return key in self._parties

    def get(self, key: PartyKey) -> PlacementUnit:
        return self._parties[key]

    def add(self, key: PartyKey, resident: Resident, ticket: Ticket, now: float) -> CpuNode | None:
        """`ticket` waits, with its party if that waits already.

        A party that asks for more now stands in line again; returns what was reserved for it.
        """
        party, promised = self._parties.get(key), None
        if party is None:
            self._seq += 1
            party = self._parties[key] = PlacementUnit(key, resident, self._seq)
            self.lines.setdefault(resident.job, MovingLine(now)).num += 1
            if resident.parent is not None:
                self.children[key] = party
            self._line(party)[key] = party
        elif party.ask != _ask(resident):
            self._leave_line(party)
            promised, party.reserved = party.reserved, None
            party.ask = _ask(resident)
            self._line(party)[key] = party
        party.tickets.append(ticket)
        return promised

    def withdraw(self, key: PartyKey, ticket: Ticket) -> PlacementUnit | None:
        """`ticket` waits no longer; its party, if that does not either."""
        party = self._parties[key]
        party.tickets.remove(ticket)
        return None if party.tickets else self.remove(party)

    def remove(self, party: PlacementUnit) -> PlacementUnit:
        """`party` waits no longer."""
        del self._parties[party.key]
        line = self.lines[party.resident.job]
        line.num -= 1
        if not line.num:
            del self.lines[party.resident.job]
        self.children.pop(party.key, None)
        self._leave_line(party)
        return party

    def serve(self, party: PlacementUnit, now: float) -> None:
        """`party` has a node."""
        self.lines[party.resident.job].serve(now)
        self.remove(party)

    def reserve(self, party: PlacementUnit, node: CpuNode) -> None:
        """No other trajectory comes to `node` before `party` has one."""
        self._leave_line(party)
        party.reserved = node
        self.reserved[party.key] = party

    def unreserve(self, party: PlacementUnit) -> None:
        """It has to wait in line again, where it stood."""
        del self.reserved[party.key]
        party.reserved = None
        line = self._line(party)
        line[party.key] = party
        for key in [key for key, other in line.items() if other.seq > party.seq]:
            line.move_to_end(key)

    def heads(self, rank: Callable[[JobId], tuple[bool, float]]) -> list[PlacementUnit]:
        """The first of every line, in the order they go."""
        heads = [
            (rank(job), head.seq, head)
            for job, lines in self._lines.items()
            for head in _firsts(lines)
        ]
        if len(heads) > 1:
            heads.sort(key=lambda entry: entry[:2])
        return [head for _, _, head in heads]

    def num_before(self, party: PlacementUnit) -> int:
        """How many of its job wait longer, or have a node reserved."""
        if party.reserved is not None:
            return list(self.reserved).index(party.key)
        lines = self._lines[party.resident.job].values()
        older = sum(other.seq < party.seq for line in lines for other in line.values())
        return older + len(self.reserved)

    def _line(self, party: PlacementUnit) -> _Line:
        lines = self._lines.setdefault(party.resident.job, {})
        return lines.setdefault(party.ask, OrderedDict())

    def _leave_line(self, party: PlacementUnit) -> None:
        if self.reserved.pop(party.key, None) is not None:
            return
        lines = self._lines[party.resident.job]
        del lines[party.ask][party.key]
        if not lines[party.ask]:
            del lines[party.ask]
            if not lines:
                del self._lines[party.resident.job]


def _firsts(lines: dict[Ask, _Line]) -> Iterator[PlacementUnit]:
    return (next(iter(line.values())) for line in lines.values())


class _Held:
    """What one job has of a pool."""

    __slots__ = ("memory_mb", "num", "promised_mb", "promised_num")

    def __init__(self) -> None:
        self.memory_mb = 0
        self.num = 0
        #: What nodes are reserved for.
        self.promised_mb = 0
        self.promised_num = 0


_NOTHING_HELD = _Held()


class JobMemory:
    """How much of a pool's memory, and how many trajectories there, each job has."""

    def __init__(self, shares: dict[JobId, float], limits: dict[JobId, JobLimits]) -> None:
        self._shares = shares
        self._limits = limits
        self._held: dict[JobId, _Held] = {}
        self._minimums: dict[JobId, JobLimits] = {}
        self.reconfigure()

    def reconfigure(self) -> None:
        """The limits of jobs have changed."""
        limits = self._limits
        self._minimums = {job: least for job, least in limits.items() if least.min_memory_mb}

    def take(self, resident: Resident) -> None:
        held = self._held.setdefault(resident.job, _Held())
        held.memory_mb += resident.memory_mb
        held.num += 1

    def give_back(self, resident: Resident) -> None:
        held = self._held[resident.job]
        held.memory_mb -= resident.memory_mb
        held.num -= 1
        self._tidy(resident.job, held)

    def promise(self, resident: Resident, times: int) -> None:
        """A node is reserved for it (1), or no longer (-1)."""
        held = self._held.setdefault(resident.job, _Held())
        held.promised_mb += times * resident.memory_mb
        held.promised_num += times
        self._tidy(resident.job, held)

    def _tidy(self, job: JobId, held: _Held) -> None:
        if not (held.num or held.promised_num):
            del self._held[job]

    def rank(self, job: JobId) -> tuple[bool, float]:
        """The job with the smallest goes first."""
        held, limits = self._held.get(job, _NOTHING_HELD), self._limits.get(job, _NO_LIMITS)
        has_its_least = (
            held.memory_mb >= limits.min_memory_mb and held.num >= limits.min_trajectories
        )
        # Where trajectories hold no memory, those that hold a pod are counted.
        return (has_its_least, (held.memory_mb or held.num) / self._shares.get(job, 1.0))

    def is_within(self, resident: Resident) -> bool:
        """May its job have one more such?"""
        limits = self._limits.get(resident.job)
        if limits is None or resident.is_lone:
            return True
        held = self._held.get(resident.job, _NOTHING_HELD)
        memory_mb = held.memory_mb + held.promised_mb + resident.memory_mb
        most_mb, most = limits.max_memory_mb, limits.max_trajectories
        is_within_mb = most_mb is None or memory_mb <= most_mb
        return is_within_mb and (most is None or held.num + held.promised_num < most)

    def kept_mb(self, job: JobId) -> int:
        """Memory that is kept free for other jobs than this one."""
        return sum(
            max(0, limits.min_memory_mb - self._held.get(other, _NOTHING_HELD).memory_mb)
            for other, limits in self._minimums.items()
            if other != job
        )
