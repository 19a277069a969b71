"""Jobs that flood one GPU pool get device-seconds in proportion to their shares."""

from gpu_support import FakeLaneContext, a_pool, a_service, a_ticket, believed_s, play
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples

from artangram.core.ids import JobId
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.residency import ResidencyLane
from artangram.core.scheduling.pools.gpu import GpuPool

X, Y = JobId("x"), JobId("y")
SERVICES = {
    "a": a_service(60_000, degrees=(1, 2)),
    "b": a_service(40_000, degrees=(1, 2)),
    "c": a_service(90_000, degrees=(4,)),
    "narrow": a_service(16_000, degrees=(1,)),
    "wide": a_service(16_000, degrees=(8,)),
}
SAME_PLACES = [["a"], ["b"], ["a", "b"], ["a", "a", "b"], ["c"]]
"""Services whose copies fit where those of the others do."""
MOST_DELAY = 5.0 * 4 + 3.0
"""What a second of a restore counts at most in `ResidencyLane`: alpha * degree + patience."""


LATE_S = 40.0
"""When `y` comes. What it did not use before is no credit."""


def a_flood(job: JobId, services: list[str], *, work_s: float, first: int) -> list[Ticket]:
    """More than 8 devices serve while anybody looks; the tickets of `x` are older."""
    tickets = []
    for n in range(round(1000 / work_s)):
        name = services[n % len(services)]
        degrees, now = SERVICES[name].degrees, 0.0 if job == X else LATE_S
        tickets.append(a_ticket(first + n, name, now=now, work_s=work_s, degrees=degrees))
        tickets[-1].job = job
    return tickets


def held(ticket: Ticket) -> float:
    """Device-seconds, known as soon as it starts."""
    return ticket.workers * (ticket.began_at - ticket.started_at + believed_s(ticket))


def greatest_lead(started: list[Ticket], shares: dict[JobId, float]) -> float:
    """How far the jobs ever were apart in what they got for their shares while both waited."""
    got = {X: 0.0, Y: 0.0}
    left = {job: sum(t.job == job for t in started) for job in got}
    greatest = 0.0
    for ticket in started:
        left[ticket.job] -= 1
        if not left[ticket.job]:
            break
        if ticket.started_at >= LATE_S:
            got[ticket.job] += held(ticket) / shares[ticket.job]
            greatest = max(greatest, abs(got[X] - got[Y]))
    return greatest


def bound(pool: GpuPool, started: list[Ticket], shares: dict[JobId, float]) -> float:
    """A job may lead by what the restore of the other counts, or, while the other finds no place,
    by the patience of its tickets. Then a place drains, and a piece of work is served.
    """
    restore_s = max(pool.restore_s(t.form.service, t.workers) for t in started)
    patience = max(t.key - t.submitted_at for t in started)
    longest_s = max(t.began_at - t.started_at + believed_s(t) for t in started)
    piece = max(held(t) / shares[t.job] for t in started)
    return max(MOST_DELAY * restore_s, patience) + 8 * longest_s + piece


@examples(12)
@given(
    share=st.sampled_from([1.0, 3.0]),
    services=st.sampled_from(SAME_PLACES),
    work_s=st.tuples(st.sampled_from([2.0, 8.0]), st.sampled_from([2.0, 8.0])),
)
def test_device_seconds_follow_the_shares(share, services, work_s):
    shares = {X: share, Y: 1.0}
    pool, context = a_pool(SERVICES), FakeLaneContext()
    floods = [
        *a_flood(X, services, work_s=work_s[0], first=0),
        *a_flood(Y, services, work_s=work_s[1], first=1000),
    ]
    play(ResidencyLane(pool, context, FairUsage(shares)), context, floods)
    assert greatest_lead(context.started, shares) <= bound(pool, context.started, shares)


@examples(6)
@given(
    wide=st.sampled_from(["c", "wide"]),
    work_s=st.tuples(st.sampled_from([2.0, 8.0]), st.sampled_from([2.0, 8.0])),
)
def test_wide_work_gets_its_share_beside_narrow_work_that_fills_every_gap(wide, work_s):
    """It lags by its patience at most: then a place drains for it."""
    shares = {X: 1.0, Y: 1.0}
    pool, context = a_pool(SERVICES), FakeLaneContext()
    floods = [
        *a_flood(X, ["narrow"], work_s=work_s[0], first=0),
        *a_flood(Y, [wide], work_s=work_s[1], first=1000),
    ]
    for ticket in floods:
        if ticket.job == X:  # never all at once out of the way
            ticket.work_s *= 0.5 + ticket.seq * 7 % 11 / 11
    play(ResidencyLane(pool, context, FairUsage(shares)), context, floods)
    assert greatest_lead(context.started, shares) <= bound(pool, context.started, shares)


@examples(10)
@given(service=st.sampled_from("abc"), came_at=st.floats(5.0, 100.0))
def test_a_newcomer_is_not_stuck_behind_a_flood(service, came_at):
    """At most the one passes it for whom a place was fenced off before."""
    pool, context = a_pool({service: SERVICES[service]}, devices=4), FakeLaneContext()
    flood = a_flood(X, [service], work_s=4.0, first=0)
    newcomer = a_ticket(1000, service, now=came_at, work_s=4.0, degrees=SERVICES[service].degrees)
    newcomer.job = Y
    play(ResidencyLane(pool, context), context, [*flood, newcomer])
    between = [t for t in flood if came_at < t.started_at < newcomer.started_at]
    assert len(between) <= 1
