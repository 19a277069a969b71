"""When actions and trajectories have to end.

- `Deadlines`: absolute times after which the result of an action is of no use.
- `Lifetimes`: for how long trajectories may go on, and rest between actions.
- `pace`: how fast the run time limit of an action passes. On an idle node an elastic program has
  all the cores it can use for as long as its limit says. So a second on fewer cores counts as a
  smaller part of a second, and one without cores does not count at all. A program that ends within
  its limit on an idle node ends within it on a busy one: what it does in a core-second is no less
  on few cores than on many, and what a squeeze costs is left out.

Entries that no longer count leave a heap when they surface, and all together whenever the heap has
doubled, so that it never holds much more than twice what lived then, however far the times are.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from artangram.core.ids import Resource, TrajectoryId
from artangram.core.scheduling.cluster import CpuSpec, PoolSpec
from artangram.core.scheduling.decisions import Close
from artangram.core.scheduling.events import TrajectoryOpened
from artangram.core.scheduling.lease import Allocation, Cores
from artangram.core.scheduling.policies.base import State, Ticket
from artangram.core.scheduling.policies.width import fixed_widths
from artangram.core.scheduling.speedup import DEFAULT

FEWEST = 64
"""Below this, looking for entries that no longer count is not worth it."""

AGAIN_S = 60.0
"""A driver that is killed before it closes a trajectory is told again."""


class Deadlines:
    """The deadlines of waiting and running tickets."""

    __slots__ = ("_most", "heap")

    def __init__(self) -> None:
        #: Empty where no action has one, which saves every caller a look.
        self.heap: list[tuple[float, int, Ticket]] = []
        self._most = FEWEST

    def add(self, at: float, ticket: Ticket) -> None:
        if len(self.heap) >= self._most:
            self.heap = [entry for entry in self.heap if entry[2].state is not State.ENDED]
            heapify(self.heap)
            self._most = max(FEWEST, 2 * len(self.heap))
        heappush(self.heap, (at, ticket.seq, ticket))

    def next_at(self) -> float | None:
        """The earliest deadline of a ticket that has not ended."""
        while self.heap and self.heap[0][2].state is State.ENDED:
            heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def take_due(self, now: float) -> list[Ticket]:
        """The tickets whose deadline has come, each once."""
        due: dict[Ticket, None] = {}  # One that was queued again may have several.
        while (at := self.next_at()) is not None and at <= now:
            due[heappop(self.heap)[2]] = None
        return list(due)


class _Limited:
    """A trajectory with a limit."""

    __slots__ = ("idle_s", "num_rests", "trajectory")

    def __init__(self, trajectory: TrajectoryId, idle_s: float | None) -> None:
        self.trajectory = trajectory
        self.idle_s = idle_s
        #: Which of its rests an entry is about; an entry about its life has 0.
        self.num_rests = 0


class Lifetimes:
    """The limits of open trajectories; those without any cost nothing."""

    def __init__(self) -> None:
        #: Both are empty where no trajectory has a limit, which saves every caller a look.
        self.limited: dict[TrajectoryId, _Limited] = {}
        self.heap: list[tuple[float, int, int, _Limited]] = []
        self._most = FEWEST
        self._seq = 0

    def __len__(self) -> int:
        return len(self.heap)

    def open(self, opened: TrajectoryOpened, now: float) -> None:
        """A trajectory begins, and rests."""
        if opened.idle_s is None and opened.lifetime_s is None:
            return
        limited = self.limited[opened.trajectory] = _Limited(opened.trajectory, opened.idle_s)
        if opened.lifetime_s is not None:
            self._push(now + opened.lifetime_s, 0, limited)
        self.rests(opened.trajectory, now)

    def goes_on(self, trajectory: TrajectoryId) -> None:
        """It has an action again."""
        limited = self.limited.get(trajectory)
        if limited is not None:
            limited.num_rests += 1

    def rests(self, trajectory: TrajectoryId, now: float) -> None:
        """It has no action any more."""
        limited = self.limited.get(trajectory)
        if limited is not None and limited.idle_s is not None:
            limited.num_rests += 1
            self._push(now + limited.idle_s, limited.num_rests, limited)

    def end(self, trajectory: TrajectoryId) -> None:
        """It is closed."""
        self.limited.pop(trajectory, None)

    def next_at(self) -> float | None:
        """When the next limit is over, if nothing happens."""
        while self.heap and not self._counts(self.heap[0]):
            heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def take_due(self, now: float) -> list[Close]:
        """What has to be closed now; said again every `AGAIN_S` until it is."""
        due: list[Close] = []
        while (at := self.next_at()) is not None and at <= now:
            _, _, num_rests, limited = heappop(self.heap)
            why = "it rested for longer than it may" if num_rests else "its lifetime is over"
            due.append(Close(limited.trajectory, why))
            self._push(now + AGAIN_S, num_rests, limited)
        return due

    def _push(self, at: float, num_rests: int, limited: _Limited) -> None:
        if len(self.heap) >= self._most:
            self.heap = [entry for entry in self.heap if self._counts(entry)]
            heapify(self.heap)
            self._most = max(FEWEST, 2 * len(self.heap))
        self._seq += 1
        heappush(self.heap, (at, self._seq, num_rests, limited))

    def _counts(self, entry: tuple[float, int, int, _Limited]) -> bool:
        _, _, num_rests, limited = entry
        is_open = self.limited.get(limited.trajectory) is limited
        return is_open and num_rests in (0, limited.num_rests)


def pace(
    ticket: Ticket, allocation: Allocation, workers: int, pools: Mapping[Resource, PoolSpec]
) -> float:
    """Seconds of its limit that pass for `ticket` in one second on `allocation`.

    With the clock, where it shares what it runs on with others.
    """
    if not isinstance(allocation, Cores):
        return 1.0
    form, units = ticket.form, allocation.units
    if not form.is_elastic:
        return 1.0 if units else 0.0
    spec = pools[allocation.resource]
    assert isinstance(spec, CpuSpec), f"{allocation.resource} has no cores"
    most = fixed_widths(form.amounts, ticket.curve or DEFAULT).best(0.0)
    counted = units if units >= workers else units * (1.0 - spec.squeeze_penalty)
    return min(1.0, counted / most)
