"""What the running actions of a node leave to others, however often it is asked."""

from builders import a_waiting_ticket
from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.core.scheduling.distribution import KnownDuration
from artangram.core.scheduling.evidence import Cell, CellHabits
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.candidates import PRESSURE, Running, pressure_of
from artangram.core.scheduling.policies.width import malleable_widths
from artangram.core.scheduling.speedup import Amdahl

NODE_CORES = 16
CURVE = Amdahl(0.1)
SIZES = [(1, 2, 4, 8), (2, 4), (1, 16)]


def a_running_ticket(seq: int, amounts: tuple[int, ...], work_s: float) -> Ticket:
    ticket = a_waiting_ticket(seq, amounts, work_s=work_s, curve=CURVE)
    ticket.rank, ticket.belief = work_s, KnownDuration(work_s)
    ticket.widths = malleable_widths(amounts, CURVE, amounts[-1], 0.1)
    return ticket


def walked(running: Running, ticket: Ticket, cores: int, behind: int, firm: float) -> bool:
    """The same question, asked of one ticket after the other."""
    for other in running.elastic:
        if other.rank <= ticket.rank:
            size = other.widths.best_within(PRESSURE * behind / NODE_CORES, cores)
            cores -= size or other.widths.least
            behind -= 1
        elif other.rank < firm:
            cores -= other.widths.least
    cores += sum(other.form.amounts[0] for other in running.rigid if other.rank > firm)
    return cores >= ticket.form.amounts[0]


steps = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "rigid", "end", "look", "crowd"]),
        st.sampled_from(SIZES),
        st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0]),
    ),
    min_size=10,
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps, cores=st.sampled_from([8, 16, 32]), behind=st.integers(5, 30))
def test_what_is_remembered_is_what_a_walk_finds(steps, cores, behind):
    running, tickets = Running(NODE_CORES), []
    for seq, (step, amounts, work_s) in enumerate(steps):
        ticket = a_running_ticket(seq, amounts, work_s)
        firm = 2.0 * work_s
        found = running.has_room_for(ticket, cores, behind=behind, firm=firm)
        # Of two with the same rank, either may be first.
        for some in (running.elastic, running.rigid):
            assert some == sorted(some, key=lambda one: one.rank)
        assert set(running.elastic) | set(running.rigid) == set(tickets)
        assert found == walked(running, ticket, cores, behind, firm)
        if step == "start" and running.least_units < cores:
            # It was waiting, so as many are behind as before: what is remembered may be of use.
            running.add(ticket)
            tickets.append(ticket)
        elif step == "rigid":
            rigid = a_waiting_ticket(seq, amounts[:1])
            rigid.rank = work_s
            running.add(rigid)
            tickets.append(rigid)
        elif step == "end" and tickets:
            running.remove(tickets.pop(seq % len(tickets)))
        elif step == "look" and tickets:
            tickets[seq % len(tickets)].rank /= 3
            running.sort()
        elif step == "crowd":
            behind += 1
    is_elastic = [ticket for ticket in tickets if ticket.form.is_elastic]
    assert running.least_units == sum(ticket.form.amounts[0] for ticket in is_elastic)
    assert running.rigid_units == sum(
        ticket.form.amounts[0] for ticket in tickets if not ticket.form.is_elastic
    )
    assert len(running) == len(tickets)
    ranks = [ticket.rank for ticket in running.last_first()]
    assert ranks == sorted(ranks, reverse=True)


def test_the_more_uncertain_a_belief_the_more_those_behind_weigh():
    known, guessed = a_running_ticket(1, (1, 2), 1.0), a_running_ticket(2, (1, 2), 1.0)
    guessed.belief = Cell(None, CellHabits(1.0, 0.3)).belief()
    assert pressure_of(known) == PRESSURE < pressure_of(guessed)


def test_one_whose_end_is_a_guess_is_counted_with_its_least_amount():
    running, other = Running(NODE_CORES), a_running_ticket(1, (1, 16), 1.0)
    running.add(other)
    patient = a_running_ticket(2, (2, 4), 2.0)
    assert not running.has_room_for(patient, NODE_CORES, behind=0, firm=2.0)
    other.belief = Cell(None, CellHabits(1.0, 0.3)).belief()
    running.sort()
    assert running.has_room_for(patient, NODE_CORES, behind=0, firm=2.0)
