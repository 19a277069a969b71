"""ARL-Tangram's published algorithm on GPU chunks: greedy eviction, DP, heap estimate.

1. Candidates: the longest first-come prefix of the line whose least degrees can be placed together.
2. A DP over the state of the free chunks chooses degrees so that the sum of durations is least.
   Chunks split as buddies do, and none is assembled from parts of different blocks.
3. The objective adds an estimate for those left in the line: each starts at its least degree when
   the earliest of the running and newly started ends. The first of them may try `DEPTH` degrees.
4. The youngest candidate is dropped as long as that lowers the objective.

As published, a restore costs nothing in the decision, a chunk runs one action at a time, and chunks
are chosen by best fit, then by what they cache; the residents used longest ago are evicted. Mended
against the listing as in `tangram`.
"""

from heapq import heapify, heapreplace
from itertools import islice

from artangram.core.needs import Amounts
from artangram.core.policies.base import Desk, Ticket
from artangram.core.policies.gpulane import GpuLane, Line, best_fit, seconds, service_of
from artangram.core.policies.tangram import DEPTH, LOOKAHEAD
from artangram.core.pools.gpu import GpuPool

Blocks = tuple[int, ...]
"""Free blocks by size: how many of 1, of 2, of 4 and so on."""


class GpuTangramLane(GpuLane):
    """One line in front of the whole pool, divided by DP and greedy eviction."""

    def __init__(self, pool: GpuPool, desk: Desk) -> None:
        super().__init__(pool, desk)
        self._line = Line()

    def push(self, ticket: Ticket, now: float) -> None:
        ticket.key = ticket.submitted_at
        self._line.add(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        self._line.remove(ticket)

    def num_waiting(self) -> int:
        return len(self._line)

    def ahead(self, ticket: Ticket) -> int:
        return self._line.place(ticket)

    def dispatch(self, now: float) -> None:
        # Whoever lacks another resource leaves devices for those behind: divide again.
        while (candidates := self._prefix()) and not self._start_some(candidates, now):
            pass

    def _start_some(self, candidates: list[Ticket], now: float) -> bool:
        """Start those whom the division chose. Did all of them start?"""
        have_all_started = True
        for ticket, degree in zip(candidates, self._select(candidates, now), strict=False):
            self._line.remove(ticket)
            if self.desk.seize_sides(ticket, now):
                spot = best_fit(self.pool, service_of(ticket), degree)
                assert spot is not None, f"the division left no chunk of {degree}"
                self.start(ticket, spot, now)
            else:
                have_all_started = False
        return have_all_started

    def _prefix(self) -> list[Ticket]:
        """The longest prefix of the line whose least degrees can be placed together."""
        blocks = self._free_blocks()
        candidates = []
        for ticket in self._line:
            least = self.degrees(ticket)[0]
            if not fits(blocks, least):
                break
            blocks = split(blocks, least)
            candidates.append(ticket)
        return candidates

    def _free_blocks(self) -> Blocks:
        counts = [0] * self.pool.spec.devices.bit_length()
        for node in self.pool.nodes():
            for _, size in node.buddy.blocks():
                counts[size.bit_length() - 1] += 1
        return tuple(counts)

    def _select(self, candidates: list[Ticket], now: float) -> list[int]:
        """Degrees of the candidates to start, a prefix of them."""
        division = Division(self._free_blocks())
        for ticket in candidates:
            degrees = self.degrees(ticket)
            division.add(degrees, [seconds(ticket, degree) for degree in degrees])
        chosen = division.degrees(len(candidates))
        best = self._objective(candidates, chosen, division.idle(len(candidates)), now)
        fewest = 0 if self.ends else 1
        for count in range(len(candidates) - 1, fewest - 1, -1):
            fewer = division.degrees(count)
            objective = self._objective(candidates[:count], fewer, division.idle(count), now)
            if objective >= best:
                break
            best, chosen = objective, fewer
        return chosen

    def _objective(self, started: list[Ticket], degrees: list[int], idle: int, now: float) -> float:
        durations = [seconds(t, degree) for t, degree in zip(started, degrees, strict=True)]
        ends = [max(at - now, 0.0) for at in self.ends.values()] + durations
        rest = list(islice(self._line, len(started), len(started) + LOOKAHEAD))
        return sum(durations) + self._estimate(rest, ends + [0.0] * min(idle, len(rest)))

    def _estimate(self, rest: list[Ticket], ends: list[float]) -> float:
        """Sum of completion times of `rest`, each at its least degree on the next end."""
        if not rest:
            return 0.0
        heapify(ends)
        first, *others = rest
        durations = [seconds(ticket, self.degrees(ticket)[0]) for ticket in others]
        return min(
            _chain([seconds(first, degree), *durations], ends.copy())
            for degree in self.degrees(first)[:DEPTH]
        )


class Division:
    """The best degrees for every prefix of the candidates, in one DP over the free blocks.

    Dropping the youngest candidate only shortens the prefix, so one table serves all of them.
    """

    def __init__(self, blocks: Blocks) -> None:
        #: For each prefix: free blocks afterwards -> total duration, last degree, blocks before.
        self._layers: list[dict[Blocks, tuple[float, int, Blocks]]] = [{blocks: (0.0, 0, blocks)}]

    def add(self, degrees: Amounts, durations: list[float]) -> None:
        """One more candidate, with its duration at each degree."""
        layer: dict[Blocks, tuple[float, int, Blocks]] = {}
        for before, (total, _, _) in self._layers[-1].items():
            for degree, duration in zip(degrees, durations, strict=True):
                if not fits(before, degree):
                    break
                after = split(before, degree)
                known = layer.get(after)
                if known is None or total + duration < known[0]:
                    layer[after] = (total + duration, degree, before)
        self._layers.append(layer)

    def degrees(self, count: int) -> list[int]:
        """The best degrees of the first `count` candidates."""
        blocks = self._best(count)
        degrees = []
        for layer in self._layers[count:0:-1]:
            _, degree, blocks = layer[blocks]
            degrees.append(degree)
        return degrees[::-1]

    def idle(self, count: int) -> int:
        """How many free blocks the best division of the first `count` candidates leaves."""
        return sum(self._best(count))

    def _best(self, count: int) -> Blocks:
        """The blocks left by the least total; on a tie by the one that uses the fewest devices."""
        layer = self._layers[count]
        return min(layer, key=lambda blocks: (layer[blocks][0], -devices(blocks), blocks))


def fits(blocks: Blocks, size: int) -> bool:
    return any(blocks[size.bit_length() - 1 :])


def split(blocks: Blocks, size: int) -> Blocks:
    """The free blocks after a chunk of `size` was cut from the smallest block that holds it."""
    counts = list(blocks)
    order = size.bit_length() - 1
    found = next(n for n in range(order, len(counts)) if counts[n])
    counts[found] -= 1
    for n in range(order, found):
        counts[n] += 1
    return tuple(counts)


def devices(blocks: Blocks) -> int:
    return sum(count << order for order, count in enumerate(blocks))


def _chain(durations: list[float], ends: list[float]) -> float:
    total = 0.0
    for duration in durations:
        end = ends[0] + duration
        total += end
        heapreplace(ends, end)
    return total
