"""Our lane for GPUs: what is resident, and what a restore costs, is part of every decision.

- Tickets wait per service in order of a virtual deadline, key = arrival + alpha * least area. Only
  the head of each service is weighed, so a decision costs services, not tickets.
- A degree is priced: t(k) * (1 + k * price), where the price is what a device-second delays those
  behind. A restore is an investment, spread over those who will use the copy; joining a batch costs
  no devices.
- A restore waits when a copy will be free before the restore would pay off.
- Between services the smallest score wins: the key, plus what the restore costs.
- Nobody starves. Keys are fixed and cannot be passed for ever; a head past its key that finds no
  place gets one fenced off, which drains.
"""

from math import exp, inf
from typing import NamedTuple

from artangram.core.ids import NodeId, ServiceId
from artangram.core.policies.base import Desk, Ticket
from artangram.core.policies.gpulane import GpuLane, Line, seconds, service_of
from artangram.core.pools.gpu import BARE, Chunk, Fence, GpuPool
from artangram.core.pools.gpunode import Residency

SPLIT_S = 1.0
"""What halving a free block is thought to cost; it decides between chunks, not between degrees."""

MOST_BASE_PRICE = 16.0
"""Near saturation the load itself would make the price infinite."""


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


class Move(NamedTuple):
    """The best that can be done now for the head of one service."""

    score: float
    ticket: Ticket
    spot: Residency | Chunk


class Demand:
    """The waiting tickets of one service, and how often it was asked for lately."""

    __slots__ = ("line", "rate", "service")

    def __init__(self, service: ServiceId, memory_s: float) -> None:
        self.service = service
        self.line = Line()
        self.rate = Fading(memory_s)


class ResidencyLane(GpuLane):
    """Per-service queues over one pool of resident services."""

    def __init__(
        self,
        pool: GpuPool,
        desk: Desk,
        *,
        alpha: float = 5.0,
        slack_cap_s: float = 600.0,
        hold: float = 0.5,
        patience: float = 3.0,
        uses: float = 3.0,
        load_price: float = 4.0,
        memory_s: float = 60.0,
    ) -> None:
        """Measured to be good for mean ACT; `alpha` 1 is better for the slowest of a step.

        `hold` is the part of a restore worth waiting for a copy; `patience` the delay a restore's
        own score carries per second of it; `uses` how many memories long a copy is thought to live;
        `load_price` how steeply the price rises with load; `memory_s` what the rates remember.
        """
        super().__init__(pool, desk)
        self._alpha = alpha
        self._slack_cap_s = slack_cap_s
        self._hold = hold
        self._patience = patience
        self._uses = uses
        self._load_price = load_price
        self._memory_s = memory_s
        names = (*pool.services(), BARE)
        self._queues = {name: Demand(name, memory_s) for name in names}
        self._batches = any(pool.service(name).batch > 1 for name in names)
        self._offered = Fading(memory_s)
        self._waiting = 0
        self._fence: Fence | None = None
        self._fenced_for = -1
        # What one pass of `dispatch` looks up again and again.
        self._now = 0.0
        self._price = 0.0
        self._need: dict[ServiceId, float] = {}

    def push(self, ticket: Ticket, now: float) -> None:
        area = min(k * seconds(ticket, k) for k in self.degrees(ticket))
        ticket.key = ticket.submitted_at + min(self._alpha * area, self._slack_cap_s)
        queue = self._queues[service_of(ticket)]
        queue.line.add(ticket)
        if self._fenced_for in queue.line and queue.line.head.seq != self._fenced_for:
            self._drop_fence()  # only heads are weighed, so nobody could use it
        queue.rate.add(1.0, now)
        self._offered.add(area, now)
        self._waiting += 1

    def withdraw(self, ticket: Ticket) -> None:
        self._queues[service_of(ticket)].line.remove(ticket)
        self._waiting -= 1
        if self._fenced_for == ticket.seq:
            self._drop_fence()

    def num_waiting(self) -> int:
        return self._waiting

    def ahead(self, ticket: Ticket) -> int:
        return self._queues[service_of(ticket)].line.place(ticket)

    def node_lost(self, node: NodeId) -> None:
        super().node_lost(node)
        if self._fence is not None and self._fence.node == node:
            self._drop_fence()

    def dispatch(self, now: float) -> None:
        self.wake_at = None
        self._now = now
        while self._waiting and (move := self._best_move()):
            self.withdraw(move.ticket)
            if self.desk.seize_sides(move.ticket, now):
                self.start(move.ticket, move.spot, now)

    def _best_move(self) -> Move | None:
        """The move with the smallest score; a fence for the smallest key that has none."""
        self._set_price()
        best: Move | None = None
        blocked: Demand | None = None
        is_full = self.pool.free == 0 and not self._batches
        for queue in self._queues.values():
            if not queue.line:
                continue
            move = None if is_full else self._weigh(queue)
            if move is None:
                blocked = queue if blocked is None else min(blocked, queue, key=_head_key)
            elif best is None or move.score < best.score:
                best = move
        if best is None and blocked is not None and self._is_newly_fenced(blocked.line.head):
            return None if is_full else self._weigh(blocked)
        return best

    def _set_price(self) -> None:
        """A device-second delays those who wait, and those whom the load says will come."""
        devices = max(1, self.pool.num_devices)
        load = min(0.95, self._offered.per_s(self._now) / devices)
        coming = min(MOST_BASE_PRICE, self._load_price * load / (1.0 - load))
        self._price = (self._waiting - 0.5 + coming) / devices
        self._need.clear()

    def _weigh(self, queue: Demand) -> Move | None:
        """The best move for the head of a queue; none if no place is free or it better waits."""
        ticket = queue.line.head
        is_fenced = self._fenced_for == ticket.seq
        fence = None if is_fenced else self._fence
        copies = [r for r in self.pool.residents(queue.service) if r.degree in self.degrees(ticket)]
        cost, copy = self._best_copy(ticket, copies, fence)
        chunk = self._best_chunk(queue, len(copies), below=cost, fence=fence)
        if chunk is None:
            return None if copy is None else Move(ticket.key, ticket, copy)
        if copy is None and copies and not is_fenced and self._is_held(queue, copies, chunk):
            return None
        users = max(1.0, len(queue.line) / (len(copies) + 1))
        delay = self._alpha * chunk.degree / users + self._patience
        return Move(ticket.key + delay * chunk.restore_s, ticket, chunk)

    def _best_copy(
        self, ticket: Ticket, copies: list[Residency], fence: Fence | None
    ) -> tuple[float, Residency | None]:
        """The best copy that can take `ticket` now, idle or with room in its batch; its cost."""
        least: float = inf
        best = None
        for copy in copies:
            if fence is not None and fence.shuts_out(copy.node, copy.first, copy.degree):
                continue
            run_s = seconds(ticket, copy.degree)
            if self.pool.is_startable(copy):
                cost = run_s * (1.0 + copy.degree * self._price)
            elif self.pool.is_joinable(copy):
                # It is slowed down by the others of the batch, and slows them down as much.
                slower = 2.0 * copy.busy * self.pool.service(copy.service).batch_cost
                cost = max(0.0, copy.ready_at - self._now) + run_s * (1.0 + slower)
            else:
                continue
            if cost < least or (cost == least and best and self._fits_better(copy, best)):
                least, best = cost, copy
        return least, best

    def _fits_better(self, copy: Residency, other: Residency) -> bool:
        return self.pool.block_size(copy) < self.pool.block_size(other)

    def _best_chunk(
        self, queue: Demand, num_copies: int, *, below: float, fence: Fence | None
    ) -> Chunk | None:
        """The best free chunk for another copy that costs less than `below`."""
        ticket, service = queue.line.head, queue.service
        lately = self._uses * self._memory_s * queue.rate.per_s(self._now)
        users = max(1.0, max(len(queue.line), lately) / (num_copies + 1))
        best = None
        for floor, degree in self._floors(ticket, users):
            if floor >= below:
                break
            warm_s = self.pool.restore_s(service, degree)
            found: tuple[float, float, Chunk] | None = None
            for chunk in self.pool.chunks(service, degree, worth=self._worth, fence=fence):
                cold = (chunk.restore_s - warm_s) * (1.0 + degree * self._price)
                cost = floor + (chunk.loss + cold) / users
                rank = cost + SPLIT_S * _splits(chunk.block, degree)
                if cost < below and (found is None or rank < found[0]):
                    found = (rank, cost, chunk)
            if found is not None:
                _, below, best = found
        return best

    def _floors(self, ticket: Ticket, users: float) -> list[tuple[float, int]]:
        """What each degree costs at least when a copy is restored for `users`, cheapest first."""
        service = service_of(ticket)
        return sorted(
            (
                (seconds(ticket, degree) + self.pool.restore_s(service, degree) / users)
                * (1.0 + degree * self._price),
                degree,
            )
            for degree in self.degrees(ticket)
        )

    def _is_held(self, queue: Demand, copies: list[Residency], chunk: Chunk) -> bool:
        """Will a copy be free before the restore of another would pay off?"""
        free_at = min(self._free_at(copy) for copy in copies)
        worth_s = self._hold * chunk.restore_s * (1.0 + self._price * chunk.degree)
        limit_s = worth_s * len(copies) / len(queue.line)
        least_s = 0.5 * seconds(queue.line.head, chunk.degree)
        if max(self._believed(free_at), least_s) >= limit_s:
            return False
        self._wake(free_at + limit_s)
        return True

    def _believed(self, at: float) -> float:
        """How long until `at`. What is late already is believed to take as long again."""
        return abs(at - self._now)

    def _free_at(self, copy: Residency) -> float:
        """When the devices of a copy are believed to be free, whoever uses them."""
        if copy.busy:
            return self.ends[copy]
        place = (copy.first, copy.degree)
        users = (at for r, at in self.ends.items() if r.node == copy.node and r.overlaps(*place))
        return max(users, default=inf)

    def _worth(self, residency: Residency) -> float:
        """What evicting an idle residency costs those who are believed to need it next."""
        service = residency.service
        need = self._need.get(service)
        if need is None:
            need = self._need[service] = self._likely_need(self._queues[service])
        return need * residency.restore_s * (1.0 + residency.degree * self._price)

    def _likely_need(self, queue: Demand) -> float:
        """How likely one copy of a service is asked for soon; surely, when somebody waits."""
        if queue.line:
            return 1.0
        per_copy = queue.rate.per_s(self._now) / len(self.pool.residents(queue.service))
        return 1.0 - exp(-per_copy * self._memory_s)

    def _wake(self, at: float) -> None:
        if at > self._now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def _is_newly_fenced(self, ticket: Ticket) -> bool:
        """Past its key, a ticket gets the place that drains first for itself."""
        if self._fence is not None:
            return False
        if self._now < ticket.key:
            self._wake(ticket.key)
            return False
        self._fence = self._soonest(ticket)
        self._fenced_for = ticket.seq
        return True

    def _drop_fence(self) -> None:
        self._fence = None
        self._fenced_for = -1

    def _soonest(self, ticket: Ticket) -> Fence | None:
        """The chunk of the least degree where `ticket` is believed to be ready first."""
        degree, service = self.degrees(ticket)[0], service_of(ticket)
        here = {(r.node, r.first) for r in self.pool.residents(service) if r.degree == degree}
        best: tuple[float, Fence | None] = (inf, None)
        for node in self.pool.nodes():
            restore_s = self.pool.restore_s(service, degree, node.id)
            busy = [(r, at) for r, at in self.ends.items() if r.node == node.id]
            for first in node.buddy.layout(degree):
                ends = (at for r, at in busy if r.overlaps(first, degree))
                ready_s = max((self._believed(at) for at in ends), default=0.0)
                ready_s += 0.0 if (node.id, first) in here else restore_s
                if ready_s < best[0]:
                    best = (ready_s, Fence(node.id, first, degree))
        return best[1]


def _splits(block: int, degree: int) -> int:
    """How often a block is halved to give a chunk."""
    return (block // degree).bit_length() - 1


def _head_key(queue: Demand) -> tuple[float, int]:
    return queue.line.head.key, queue.line.head.seq
