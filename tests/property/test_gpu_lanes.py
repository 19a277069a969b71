"""What GPU lanes promise on any workload."""

from collections.abc import Callable

import pytest
from gpu_support import FakeLaneContext, a_pool, a_service, a_ticket, believed_s, check_books, play
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples

from artangram.core.scheduling.baselines.gpufcfs import GpuFcfsLane
from artangram.core.scheduling.baselines.gputangram import GpuTangramLane
from artangram.core.scheduling.baselines.loadpercall import LoadPerCallLane
from artangram.core.scheduling.baselines.static import StaticLane
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.core.scheduling.policies.base import State, Ticket
from artangram.core.scheduling.policies.gpulane import GpuLane
from artangram.core.scheduling.policies.residency import ResidencyLane
from artangram.core.scheduling.pools.gpu import GpuPool

SERVICES = {
    "a": a_service(60_000, batch=2),
    "b": a_service(40_000, degrees=(1, 2)),
    "c": a_service(90_000, degrees=(4, 8)),
    "d": a_service(9_000, degrees=(1,)),
}
EVERY_LANE = [ResidencyLane, GpuFcfsLane, GpuTangramLane, LoadPerCallLane, StaticLane]
FEW = examples(30)

Request = tuple[str, float, float, float]
"""Service, gap to the one before, believed seconds, and the true ones relative to it."""
requests = st.lists(
    st.tuples(
        st.sampled_from(sorted(SERVICES)),
        st.sampled_from([0.0, 0.1, 1.0, 40.0]),
        st.floats(0.1, 20.0),
        st.sampled_from([0.2, 1.0, 1.0, 5.0]),
    ),
    max_size=60,
)


def tickets_of(wanted: list[Request]) -> tuple[list[Ticket], dict[int, float]]:
    now, tickets, factors = 0.0, [], {}
    for seq, (service, gap, work_s, factor) in enumerate(wanted):
        now += gap
        degrees = SERVICES[service].degrees
        tickets.append(a_ticket(seq, service, now=now, work_s=work_s, degrees=degrees))
        factors[seq] = factor
    return tickets, factors


def played(
    lane_type: type[GpuLane],
    wanted: list[Request],
    look: Callable[[GpuPool, list[Ticket], float], None] = lambda pool, tickets, now: None,
) -> list[tuple[str, float, float]]:
    pool, context = a_pool(SERVICES, nodes=2), FakeLaneContext()
    lane = lane_type(pool, context)
    tickets, factors = tickets_of(wanted)
    return play(
        lane,
        context,
        tickets,
        true_s=lambda ticket: believed_s(ticket) * factors[ticket.seq],
        after=lambda now: look(pool, tickets, now),
    )


@pytest.mark.parametrize("lane_type", EVERY_LANE)
@FEW
@given(wanted=requests)
def test_everybody_ends_once_and_the_books_balance(lane_type, wanted):
    done = played(lane_type, wanted, lambda pool, tickets, now: check_books(pool))
    assert len({name for name, _, _ in done}) == len(done) == len(wanted)


@pytest.mark.parametrize("lane_type", EVERY_LANE)
@FEW
@given(wanted=requests)
def test_the_same_events_give_the_same_decisions(lane_type, wanted):
    assert played(lane_type, wanted) == played(lane_type, wanted)


def waiting(tickets: list[Ticket], now: float) -> list[Ticket]:
    return [t for t in tickets if t.submitted_at <= now and t.state is State.WAITING]


@FEW
@given(wanted=requests)
def test_first_come_first_served_never_leaves_a_fitting_head_waiting(wanted):
    def look(pool: GpuPool, tickets: list[Ticket], now: float) -> None:
        head = min(waiting(tickets, now), key=lambda t: t.seq, default=None)
        assert head is None or not pool.fits(head.form.amounts[0])

    played(GpuFcfsLane, wanted, look)


@FEW
@given(wanted=requests)
def test_who_has_no_copy_to_wait_for_starts_when_a_chunk_is_free(wanted):
    """The residency lane leaves devices idle only for a copy soon free, or for the overdue."""

    def look(pool: GpuPool, tickets: list[Ticket], now: float) -> None:
        left = waiting(tickets, now)
        if any(now >= ticket.key for ticket in left):
            return
        for ticket in left:
            has_copy = bool(pool.residents(ticket.form.service))
            assert has_copy or not pool.fits(ticket.form.amounts[0]), f"{ticket} waits at {now}"
        assert not left or pool.free < pool.num_devices

    played(ResidencyLane, wanted, look)


def a_stream(
    services: dict[str, ServiceSpec], load: float, wide: list[float]
) -> list[tuple[str, float, float]]:
    """A steady crowd of narrow actions on 8 devices for 300 s, and wide ones among them."""
    gap = 2.0 / (8 * load)
    crowd = [(("n1", "n2")[n % 2], n * gap, 2.0) for n in range(int(300 / gap))]
    return sorted(crowd + [("wide", at, 2.0) for at in wide], key=lambda item: item[1])


@examples(15)
@given(
    load=st.floats(0.6, 1.3),
    wide=st.lists(st.floats(0.0, 150.0), min_size=1, max_size=3, unique=True),
)
def test_nobody_starves(load, wide):
    """Past its key, an action waits only for those whose keys could still be smaller.

    Each of them may be served before it, and a chunk drains for one of them at a time: that takes
    the longest run to drain and the longest to run.
    """
    services = {
        "n1": a_service(100, degrees=(1,)),
        "n2": a_service(100, degrees=(1,)),
        "wide": a_service(800, degrees=(8,)),
    }
    pool, context = a_pool(services), FakeLaneContext()
    tickets = [
        a_ticket(seq, service, now=at, work_s=work_s, degrees=services[service].degrees, curve=None)
        for seq, (service, at, work_s) in enumerate(a_stream(services, load, wide))
    ]
    play(ResidencyLane(pool, context), context, tickets)
    longest_s = 2.0 + pool.restore_s(tickets[0].form.service, 1)
    for ticket in tickets:
        last_key = ticket.key + 50 * pool.restore_s(ticket.form.service, ticket.workers)
        first = [t for t in tickets if t.key <= last_key and t.started_at >= ticket.key]
        rounds = sum(t.workers for t in first) / 8 + len([t for t in first if t.workers == 8])
        assert ticket.started_at <= last_key + 2 * longest_s * (rounds + 1)


@examples(10)
@given(work_s=st.sampled_from([1e3, 1e5]), gap=st.sampled_from([4.0, 5.0]))
def test_long_work_is_passed_for_ten_minutes_at_most(work_s, gap):
    """One device, and always a short call that came later and would go first."""
    services = {"a": a_service(100, degrees=(1,))}
    pool, context = a_pool(services, devices=1), FakeLaneContext()
    short = [a_ticket(n, now=n * gap, work_s=5.0, degrees=(1,), curve=None) for n in range(300)]
    late = a_ticket(999, now=1.0, work_s=work_s, degrees=(1,), curve=None)
    play(ResidencyLane(pool, context), context, [*short, late])
    overdue_at = late.submitted_at + 600.0
    waiting = [t for t in short if t.key <= overdue_at < t.started_at]
    assert 500.0 < late.started_at <= overdue_at + 5.0 * (1 + len(waiting))
