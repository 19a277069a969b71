"""The running actions of a node, in order."""

from builders import a_waiting_ticket
from hypothesis import given, settings
from hypothesis import strategies as st

from artangram.core.scheduling.policies.running import Running


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["start", "start", "end", "look"]),
            st.sampled_from([(1, 2, 4, 8), (2, 4), (1,), (3,)]),
            st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0]),
        ),
        min_size=10,
        max_size=30,
    )
)
def test_they_stay_in_order_and_are_counted(steps):
    running, tickets = Running(), []
    for seq, (step, amounts, rank) in enumerate(steps):
        if step == "start":
            ticket = a_waiting_ticket(seq, amounts)
            ticket.rank = rank
            running.add(ticket)
            tickets.append(ticket)
        elif step == "end" and tickets:
            running.remove(tickets.pop(seq % len(tickets)))
        elif tickets:
            tickets[seq % len(tickets)].rank /= 3
            running.sort()
        for some in (running.elastic, running.rigid):
            assert some == sorted(some, key=lambda one: one.rank)
        elastic = [ticket for ticket in tickets if ticket.form.is_elastic]
        assert (set(running.elastic), len(running)) == (set(elastic), len(tickets))
        assert running.least_units == sum(ticket.form.amounts[0] for ticket in elastic)
        held = sum(ticket.form.amounts[0] for ticket in tickets)
        assert running.rigid_units == held - running.least_units
        assert running.num_longer(1.0) == sum(ticket.rank > 1.0 for ticket in elastic)
    ranks = [ticket.rank for ticket in running.last_first()]
    assert ranks == sorted(ranks, reverse=True)
