"""Our lane for GPUs: what is resident, and what a restore costs, is part of every decision.

- Tickets wait per service and job in order of a virtual deadline, key = arrival + alpha * least
  area. Only heads are weighed, so a decision costs services and jobs, not tickets.
- A degree is priced: t(k) * (1 + k * price), where the price is what a device-second delays those
  behind. A restore is spread over calls that wait for the copy, not over those that may come: they
  would come to a copy that others, counting on theirs, have evicted. Joining a batch costs no
  devices.
- A restore waits when a copy will be free before the restore would pay off.
- A service changes the degree of its own copy when the price makes another one much better for
  calls that are likely to come: this takes no memory that others count on.
- Between the services of a job the smallest score wins: the key, plus what the restore costs.
- Between jobs the one goes first that got least for its share, plus what its restore costs. Age
  does not count: a job that floods the lane has the oldest tickets. Wide work beside narrow work
  that fills every gap lags by its patience, until a place drains for it.
- No ticket starves. Inside a job keys are fixed and cannot be passed for ever. Of the job that goes
  first, a head that finds no place and is past its key, or whose job lags as much behind, gets a
  place fenced off, which drains: where a copy is, if that is as soon.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from math import exp, inf
from typing import NamedTuple

from artangram.core.ids import JobId, NodeId, ServiceId
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.core.scheduling.policies.base import LaneContext, Ticket
from artangram.core.scheduling.policies.demand import Fading, ServiceDemand
from artangram.core.scheduling.policies.gpulane import GpuLane, seconds, service_of, used_at
from artangram.core.scheduling.policies.queue import FairUsage, set_due
from artangram.core.scheduling.pools.gpu import BARE, Fence, FreeChunk, GpuPool
from artangram.core.scheduling.pools.gpunode import Residency

SPLIT_S = 1.0
"""What halving a free block is thought to cost; it decides between chunks, not between degrees."""

MOST_BASE_PRICE = 16.0
"""Near saturation the load itself would make the price infinite."""

RESHAPE = 0.87
"""What a call may cost with another degree, as a share of now, for a copy to be replaced."""


class Move(NamedTuple):
    """The best that can be done now for the head of one line."""

    delay: float
    """What its restore counts, in seconds of key."""
    ticket: Ticket
    spot: Residency | FreeChunk

    @property
    def score(self) -> float:
        return self.ticket.due_at + self.delay


class ResidencyLane(GpuLane):
    """Per-service queues over one pool of resident services."""

    def __init__(
        self,
        pool: GpuPool,
        context: LaneContext,
        served: FairUsage | None = None,
        *,
        alpha: float = 5.0,
        slack_cap_s: float = 600.0,
        hold: float = 0.5,
        patience: float = 3.0,
        load_price: float = 4.0,
        memory_s: float = 60.0,
    ) -> None:
        """Measured to be good for mean ACT; `alpha` 1 is better for the slowest of a step.

        Without `served` all jobs have the same share.

        `hold` is the part of a restore worth waiting for a copy; `patience` the delay a restore's
        own score carries per second of it; `load_price` how steeply the price rises with load;
        `memory_s` what the rates remember.
        """
        super().__init__(pool, context)
        self._alpha = alpha
        self._slack_cap_s = slack_cap_s
        self._hold = hold
        self._patience = patience
        self._load_price = load_price
        self._memory_s = memory_s
        names = (*pool.services(), BARE)
        self._queues = {name: ServiceDemand(name, memory_s) for name in names}
        self._batches = any(pool.service(name).batch > 1 for name in names)
        self._offered = Fading(memory_s)
        self._served = FairUsage({}) if served is None else served
        self._waiting = 0
        self._waiting_of: Counter[JobId] = Counter()
        self._fenced_for = -1
        # What one pass of `dispatch` looks up again and again.
        self._now = 0.0
        self._price = 0.0
        self._need: dict[ServiceId, float] = {}

    def deploy(self, service: ServiceId, spec: ServiceSpec) -> None:
        super().deploy(service, spec)
        self._queues[service] = ServiceDemand(service, self._memory_s)
        self._batches = self._batches or spec.batch > 1

    def push(self, ticket: Ticket, now: float) -> None:
        area = min(k * seconds(ticket, k) for k in self.degrees(ticket))
        ticket.key = ticket.submitted_at + min(self._alpha * area, self._slack_cap_s)
        set_due(ticket)
        queue = self._queues[service_of(ticket)]
        queue.add(ticket)
        line = queue.line(ticket)
        if self._fenced_for in line and line.head.seq != self._fenced_for:
            self._drop_fence()  # only heads are weighed, so no ticket could use it
        queue.rate.add(1.0, now)
        self._offered.add(area, now)
        self._waiting += 1
        if not self._waiting_of[ticket.job]:
            self._served.wait(ticket.job)
        self._waiting_of[ticket.job] += 1

    def withdraw(self, ticket: Ticket) -> None:
        self._queues[service_of(ticket)].remove(ticket)
        self._waiting -= 1
        self._waiting_of[ticket.job] -= 1
        if not self._waiting_of[ticket.job]:
            del self._waiting_of[ticket.job]
        if self._fenced_for == ticket.seq:
            self._drop_fence()

    def num_waiting(self) -> int:
        return self._waiting

    def overdue(self, now: float) -> Ticket | None:
        """Not the one that has a place fenced off: nothing is lent there."""
        heads = (head for queue in self._queues.values() for head in queue.heads())
        late = [head for head in heads if head.key <= now and head.seq != self._fenced_for]
        return min(late, key=lambda ticket: (ticket.key, ticket.seq), default=None)

    def ahead(self, ticket: Ticket) -> int:
        return self._queues[service_of(ticket)].line(ticket).place(ticket)

    def node_lost(self, node: NodeId) -> None:
        super().node_lost(node)
        if self.fence is not None and self.fence.node == node:
            self._drop_fence()

    def dispatch(self, now: float) -> None:
        self.wake_at = None
        self._now = now
        while self._waiting and (move := self._best_move()):
            self.withdraw(move.ticket)
            if self.context.seize_secondary(move.ticket, now):
                self.start(move.ticket, move.spot, now)
                self._served.charge(move.ticket, self._area(move.ticket))

    def _area(self, ticket: Ticket) -> float:
        """Device-seconds that a ticket just started will use; those of a batch are shared."""
        copy = self._running[ticket.seq]
        restore_s = max(0.0, copy.ready_at - self._now)
        return copy.degree * (restore_s + seconds(ticket, copy.degree)) / copy.busy

    def _best_move(self) -> Move | None:
        """The best move of the job that goes first; without one, a fence may make one."""
        self._set_price()
        best: dict[JobId, Move] = {}
        blocked = []
        is_full = self.pool.free == 0 and not self._batches
        for queue in self._queues.values():
            for head in queue.heads():
                move = None if is_full else self._weigh(queue, head)
                if move is None:
                    blocked.append(head)
                elif head.job not in best or move.score < best[head.job].score:
                    best[head.job] = move
        if best:
            return min(best.values(), key=self._between_jobs)
        fenced = self._newly_fenced(blocked)
        if fenced is None or is_full:
            return None
        return self._weigh(self._queues[service_of(fenced)], fenced)

    def _between_jobs(self, move: Move) -> tuple[float, float, int]:
        """A device-second over the share of a job counts as much as a second of delay."""
        return self._served.of(move.ticket.job) + move.delay, move.score, move.ticket.seq

    def _set_price(self) -> None:
        """A device-second delays the calls that wait, and those that the load says will come."""
        devices = max(1, self.pool.num_devices)
        load = min(0.95, self._offered.per_s(self._now) / devices)
        coming = min(MOST_BASE_PRICE, self._load_price * load / (1.0 - load))
        self._price = (self._waiting - 0.5 + coming) / devices
        self._need.clear()

    def _weigh(self, queue: ServiceDemand, ticket: Ticket) -> Move | None:
        """The best move for a head of a queue; none if no place is free or it better waits."""
        is_fenced = self._fenced_for == ticket.seq
        fence = None if is_fenced else self.fence
        copies = self._copies(ticket)
        cost, copy = self._best_copy(ticket, copies, fence)
        if copy is not None:
            to_come = max(1.0, queue.rate.per_s(self._now) * self._memory_s / len(copies))
            shape = self._best_chunk(ticket, to_come, below=RESHAPE * cost, fence=fence, own=True)
            if shape is not None:
                return Move(0.0, ticket, shape)
        users = max(1.0, len(queue) / (len(copies) + 1))
        chunk = self._best_chunk(ticket, users, below=cost, fence=fence)
        if chunk is None:
            return None if copy is None else Move(0.0, ticket, copy)
        if copy is None and copies and not is_fenced and self._is_held(ticket, copies, chunk):
            return None
        delay = self._alpha * chunk.degree / users + self._patience
        return Move(delay * chunk.restore_s, ticket, chunk)

    def _copies(self, ticket: Ticket) -> list[Residency]:
        """The copies that `ticket` can run on, busy or not."""
        degrees = self.degrees(ticket)
        return [r for r in self.pool.residents(service_of(ticket)) if r.degree in degrees]

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
        self,
        ticket: Ticket,
        users: float,
        *,
        below: float,
        fence: Fence | None,
        own: bool = False,
    ) -> FreeChunk | None:
        """The best free chunk for a copy with `users` that costs less than `below`.

        With `own` it is in place of another copy of the service, which is worth nothing then.
        """
        service = service_of(ticket)
        worth = partial(self._worth_beside, service) if own else self._worth
        best = None
        for floor, degree in self._floors(ticket, users):
            if floor >= below:
                break
            warm_s = self.pool.restore_s(service, degree)
            found: tuple[float, float, FreeChunk] | None = None
            for chunk in self.pool.chunks(service, degree, worth=worth, fence=fence):
                if own and all(r.service != service for r in chunk.evicted):
                    continue
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

    def _is_held(self, ticket: Ticket, copies: list[Residency], chunk: FreeChunk) -> bool:
        """Will a copy be free before the restore of another would pay off?"""
        free_at = min(self._free_at(copy) for copy in copies)
        worth_s = self._hold * chunk.restore_s * (1.0 + self._price * chunk.degree)
        limit_s = worth_s * len(copies) / len(self._queues[service_of(ticket)])
        least_s = 0.5 * seconds(ticket, chunk.degree)
        if max(self._believed(free_at), least_s) >= limit_s:
            return False
        self._wake(free_at + limit_s)
        return True

    def _drain_s(self, place: Fence) -> float:
        """How long until a place is believed to be unused."""
        ends = (at for r, at in self.ends.items() if place.shuts_out(r.node, r.first, r.degree))
        return max((self._believed(at) for at in ends), default=0.0)

    def _believed(self, at: float) -> float:
        """How long until `at`. What is late already is believed to take as long again."""
        return abs(at - self._now)

    def _free_at(self, copy: Residency) -> float:
        """When the devices of a copy are believed to be free of all calls."""
        if copy.busy:
            return self.ends[copy]
        place = (copy.first, copy.degree)
        users = (at for r, at in self.ends.items() if r.node == copy.node and r.overlaps(*place))
        return max(users, default=inf)

    def _worth(self, residency: Residency) -> float:
        """What evicting an idle residency costs the calls that are believed to need it next."""
        service = residency.service
        need = self._need.get(service)
        if need is None:
            need = self._need[service] = self._likely_need(self._queues[service])
        return need * residency.restore_s * (1.0 + residency.degree * self._price)

    def _worth_beside(self, service: ServiceId, residency: Residency) -> float:
        """The same for all but `service`, which gets another copy instead."""
        return 0.0 if residency.service == service else self._worth(residency)

    def _likely_need(self, queue: ServiceDemand) -> float:
        """How likely one copy of a service is asked for soon; certainly, when a call waits."""
        if queue:
            return 1.0
        per_copy = queue.rate.per_s(self._now) / len(self.pool.residents(queue.service))
        return 1.0 - exp(-per_copy * self._memory_s)

    def _wake(self, at: float) -> None:
        if at > self._now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def _newly_fenced(self, blocked: list[Ticket]) -> Ticket | None:
        """An overdue ticket of the job that goes first gets the place that drains first."""
        if self.fence is not None:
            return None
        served = [self._served.of(ticket.job) for ticket in blocked]
        least, most = min(served), max(served)
        first = min(
            (ticket for ticket, got in zip(blocked, served, strict=True) if got == least),
            key=lambda ticket: (ticket.key, ticket.seq),
        )
        patience = first.key - first.submitted_at
        if self._now < first.key and most - least <= patience:
            self._wake(first.key)
            return None
        self.fence = self._soonest(first)
        self._fenced_for = first.seq
        return first

    def _reason(self, ticket: Ticket) -> tuple[str, str]:
        service, needed = service_of(ticket), self._needed(ticket)
        if not self.pool.fits(needed):
            return super()._reason(ticket)
        if any(self.pool.chunks(service, needed, worth=used_at, fence=self.fence)):
            because = f"{service} is busy and restoring another copy takes longer"
            return because, "a copy is idle"
        return "free devices are kept for an overdue action", "that one has started"

    def _drop_fence(self) -> None:
        self.fence = None
        self._fenced_for = -1

    def _soonest(self, ticket: Ticket) -> Fence | None:
        """Where `ticket` is believed to be ready first: a copy, or a chunk of the least degree."""
        found = ((self._drain_s(place) + s, place) for place, s in self._places(ticket))
        return min(found, key=lambda item: item[0], default=(inf, None))[1]

    def _places(self, ticket: Ticket) -> Iterator[tuple[Fence, float]]:
        """Every place that could be fenced for `ticket`, and what the restore there would take."""
        for copy in self._copies(ticket):
            yield Fence(copy.node, copy.first, copy.degree), 0.0
        least = self.degrees(ticket)[0]
        for node in self.pool.nodes():
            restore_s = self.pool.restore_s(service_of(ticket), least, node.id)
            for first in node.buddy.layout(least):
                yield Fence(node.id, first, least), restore_s


def _splits(block: int, degree: int) -> int:
    """How often a block is halved to give a chunk."""
    return (block // degree).bit_length() - 1
