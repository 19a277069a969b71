"""What the elastic actions of a node leave to others, however often it is asked."""

from builders import a_waiting_ticket
from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.running import Running
from artangram.core.scheduling.policies.width import malleable_widths
from artangram.core.scheduling.speedup import Amdahl

PRESSURE = 3.0 / 16
CURVE = Amdahl(0.1)
SIZES = [(1, 2, 4, 8), (2, 4), (1, 16)]


def a_running_ticket(seq: int, amounts: tuple[int, ...], work_s: float) -> Ticket:
    ticket = a_waiting_ticket(seq, amounts, work_s=work_s, curve=CURVE)
    ticket.work_left_s = work_s
    ticket.widths = malleable_widths(amounts, CURVE, amounts[-1], 0.1)
    return ticket


def walked(tickets: list[Ticket], ticket: Ticket, cores: int, behind: int) -> bool:
    """The same question, asked of one ticket after the other."""
    for other in tickets:
        if other.work_left_s > ticket.work_s:
            cores -= other.widths.least
        else:
            size = other.widths.best_within(behind * PRESSURE, cores)
            cores -= size or other.widths.least
            behind -= 1
    return cores >= ticket.form.amounts[0]


steps = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "start", "end", "look", "crowd"]),
        st.sampled_from(SIZES),
        st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0]),
    ),
    min_size=10,
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps, cores=st.sampled_from([8, 16, 32]), behind=st.integers(5, 30))
def test_what_is_remembered_is_what_a_walk_finds(steps, cores, behind):
    running, tickets = Running(PRESSURE), []
    for seq, (step, amounts, work_s) in enumerate(steps):
        ticket = a_running_ticket(seq, amounts, work_s)
        found = running.has_room_for(ticket, cores, behind=behind)
        # Who is first of two with as much work left is nobody's concern.
        assert running.tickets == sorted(running.tickets, key=lambda one: one.work_left_s)
        assert set(running.tickets) == set(tickets)
        assert found == walked(running.tickets, ticket, cores, behind)
        if step == "start" and running.least_units < cores:
            # It was waiting, so as many are behind as before: what is remembered may be of use.
            running.add(ticket)
            tickets.append(ticket)
        elif step == "end" and tickets:
            running.remove(tickets.pop(seq % len(tickets)))
        elif step == "look" and tickets:
            tickets[seq % len(tickets)].work_left_s /= 3
            running.sort()
        elif step == "crowd":
            behind += 1
    assert running.least_units == sum(ticket.form.amounts[0] for ticket in tickets)
    assert len(running) == len(tickets)
