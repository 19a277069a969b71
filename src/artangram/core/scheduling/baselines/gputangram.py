"""ARL-Tangram's published algorithm on GPU chunks: a DP over them and greedy eviction.

1. Candidates: the longest first-come prefix of the line whose least degrees can be placed together.
2. A DP over the state of the free chunks chooses degrees so that the sum of durations is least.
   Chunks split as buddies do, and none is assembled from parts of different blocks.
3. `Eviction` says which of them start.

As published, a restore costs nothing in the decision, a chunk runs one action at a time, and chunks
are chosen by best fit, then by what they cache; the residents used longest ago are evicted.
"""

from artangram.core.scheduling.baselines.eviction import Eviction
from artangram.core.scheduling.baselines.gpufcfs import GpuFcfsLane
from artangram.core.scheduling.needs import Amounts
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.gpulane import best_fit, seconds, service_of

Blocks = tuple[int, ...]
"""Free blocks by size: how many of 1, of 2, of 4 and so on."""


class GpuTangramLane(GpuFcfsLane):
    """One line in front of the whole pool, divided by DP and greedy eviction."""

    def dispatch(self, now: float) -> None:
        while candidates := self._prefix():
            degrees = self._select(candidates, now)
            if all([self._begin(t, d, now) for t, d in zip(candidates, degrees, strict=False)]):
                return
            # A ticket that lacks another resource leaves devices to the next ones: divide again.

    def _begin(self, ticket: Ticket, degree: int, now: float) -> bool:
        """Take `ticket` out of the line and start it, unless it lacks another resource."""
        self._line.remove(ticket)
        if not self.context.seize_secondary(ticket, now):
            return False
        spot = best_fit(self.pool, service_of(ticket), degree)
        assert spot is not None, f"the division left no chunk of {degree}"
        self.start(ticket, spot, now)
        return True

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
        division = DeviceDivision(self._free_blocks())
        for ticket in candidates:
            degrees = self.degrees(ticket)
            division.add(degrees, [seconds(ticket, degree) for degree in degrees])
        ends = [max(at - now, 0.0) for at in self.ends.values()]
        eviction = Eviction(self._line, ends, amounts=self.degrees, seconds=seconds)
        return eviction.chosen(len(candidates), division)


class DeviceDivision:
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

    def sizes(self, count: int) -> list[int]:
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
