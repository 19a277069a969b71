"""Builders and a fake desk for tests of GPU pools and lanes."""

import heapq
from collections.abc import Callable, Iterable

from artangram.core.ids import ActionId, Resource, ServiceId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.cluster import GpuSpec, ServiceSpec
from artangram.core.scheduling.lease import Allocation, Cores, Devices
from artangram.core.scheduling.needs import Needs
from artangram.core.scheduling.policies.base import Form, State, Ticket
from artangram.core.scheduling.policies.gpulane import GpuLane
from artangram.core.scheduling.pools.gpu import GpuPool
from artangram.core.scheduling.pools.gpunode import Residency
from artangram.core.scheduling.speedup import Amdahl, Speedup

GPU = Resource("gpu")
CURVE = Amdahl(0.1)


def a_service(weights_mb: int = 16_000, **fields: object) -> ServiceSpec:
    return ServiceSpec(**{"pool": GPU, "weights_mb": weights_mb, "degrees": (1, 2, 4, 8)} | fields)


def a_pool(
    services: dict[str, ServiceSpec] | None = None,
    *,
    nodes: int = 1,
    devices: int = 8,
    memory_mb: int = 80_000,
    **fields: object,
) -> GpuPool:
    services = {"a": a_service(), "b": a_service()} if services is None else services
    spec = GpuSpec(nodes=nodes, devices=devices, memory_mb=memory_mb, **fields)
    return GpuPool(GPU, spec, {ServiceId(name): service for name, service in services.items()})


def a_ticket(
    seq: int,
    service: str = "a",
    *,
    now: float = 0.0,
    work_s: float = 1.0,
    degrees: tuple[int, ...] = (1, 2, 4, 8),
    curve: Speedup | None = CURVE,
) -> Ticket:
    needs = Needs(amounts=((GPU, degrees),), service=ServiceId(service))
    action = Action(id=ActionId(f"{service}{seq}"), kind=service, needs=needs)
    form = Form(resource=GPU, amounts=degrees, is_elastic=True, service=ServiceId(service))
    ticket = Ticket(action, form, seq=seq, now=now)
    ticket.work_s, ticket.curve = work_s, curve
    return ticket


class FakeLaneContext:
    """A desk that remembers what was started, and refuses the sides of whom it is told to."""

    def __init__(self) -> None:
        self.started: list[Ticket] = []
        self.short_of_sides: set[int] = set()

    def seize_secondary(self, ticket: Ticket, now: float) -> bool:
        return ticket.seq not in self.short_of_sides

    def start(
        self, ticket: Ticket, allocation: Allocation, *, workers: int, prepare_s: float, now: float
    ) -> None:
        assert ticket.state is State.WAITING, f"{ticket} was started twice"
        assert isinstance(allocation, Devices)
        assert workers == allocation.degree
        ticket.state, ticket.allocation, ticket.workers = State.RUNNING, allocation, workers
        ticket.started_at, ticket.began_at = now, now + prepare_s
        self.started.append(ticket)

    def resize(self, ticket: Ticket, cores: Cores) -> None:
        raise AssertionError("devices are never resized")

    def limit(self, ticket: Ticket, at: float) -> None:
        assert at > ticket.submitted_at

    def names(self) -> list[str]:
        return [str(ticket.action.id) for ticket in self.started]


def play(
    lane: GpuLane,
    context: FakeLaneContext,
    tickets: Iterable[Ticket],
    *,
    true_s: Callable[[Ticket], float] | None = None,
    after: Callable[[float], None] = lambda now: None,
) -> list[tuple[str, float, float]]:
    """Run `tickets` through `lane`; (name, started, ended) in order of their ends.

    `after` is called after every dispatch.
    """
    events = [(ticket.submitted_at, 0, ticket.seq, ticket) for ticket in tickets]
    heapq.heapify(events)
    done: list[tuple[str, float, float]] = []
    num_seen, wake_at = 0, None
    while events or wake_at is not None:
        now = min([wake_at] if wake_at is not None else [], default=float("inf"))
        now = min(now, events[0][0]) if events else now
        while events and events[0][0] <= now:
            _, is_end, _, ticket = heapq.heappop(events)
            if is_end:
                lane.give_back(ticket, now)
                ticket.state = State.ENDED
                done.append((str(ticket.action.id), ticket.started_at, now))
            else:
                lane.push(ticket, now)
        lane.dispatch(now)
        after(now)
        for ticket in context.started[num_seen:]:
            run_s = true_s(ticket) if true_s else believed_s(ticket)
            heapq.heappush(events, (ticket.began_at + run_s, 1, ticket.seq, ticket))
        num_seen = len(context.started)
        assert lane.wake_at is None or lane.wake_at > now, "it would wake for ever"
        wake_at = lane.wake_at
    return done


def believed_s(ticket: Ticket) -> float:
    speed = ticket.curve.speed(ticket.workers) if ticket.curve else 1.0
    return ticket.work_s / speed


def check_books(pool: GpuPool) -> None:
    """What is always true of a pool, recomputed from its residents."""
    free = 0
    for node in pool.nodes():
        weights = [0] * pool.spec.devices
        working = [0] * pool.spec.devices
        busy = [0] * pool.spec.devices
        for resident in node.residents:
            assert resident.first % resident.degree == 0, f"{resident} is not aligned"
            for device in range(resident.first, resident.first + resident.degree):
                weights[device] += resident.memory_mb
                working[device] = max(working[device], resident.runtime_mb)
                busy[device] += resident.busy > 0
        assert max(busy) <= 1, f"{node.id} has a device that two services use: {busy}"
        used = [w + r for w, r in zip(weights, working, strict=True)]
        assert max(used) <= pool.spec.memory_mb, f"{node.id} is over-committed: {used}"
        _check_blocks(node.buddy.blocks(), busy)
        free += busy.count(0)
    assert free == pool.free


def _check_blocks(blocks: list[tuple[int, int]], busy: list[int]) -> None:
    """Blocks are aligned, cover exactly the free devices, and no two buddies stay apart."""
    covered = [0] * len(busy)
    for first, size in blocks:
        assert size & (size - 1) == 0, f"{size} is no power of two"
        assert first % size == 0, f"{size} at {first} is not aligned"
        assert (first ^ size, size) not in blocks, f"{size} at {first} was not merged"
        for device in range(first, first + size):
            covered[device] += 1
    assert covered == [1 - b for b in busy], f"free blocks {blocks} do not match busy {busy}"


def place(residency: Residency) -> tuple[str, int, int]:
    return str(residency.node), residency.first, residency.degree
