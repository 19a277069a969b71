"""Who gets cores next, of those that have none."""

from builders import a_waiting_ticket

from artangram.core.scheduling.distribution import KnownDuration
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.candidates import FEWEST, Candidates, goes_first
from artangram.core.scheduling.policies.ranking import CoreUse


def a_candidate(seq: int, rank: float, *, key: float = 1000.0, job: str = "default") -> Ticket:
    ticket = a_waiting_ticket(seq, job=job)
    ticket.rank, ticket.key = rank, key
    return ticket


def candidates(*tickets: Ticket) -> Candidates:
    found = Candidates(CoreUse({}))
    for ticket in tickets:
        found.use.want(ticket.job, 0.0)
        found.push(ticket)
    return found


def order_of(found: Candidates, now: float = 0.0) -> list[int]:
    order = []
    while (ticket := found.first(now)) is not None:
        order.append(ticket.seq)
        found.remove(ticket)
    return order


def test_the_smallest_rank_goes_first():
    assert order_of(candidates(a_candidate(1, 5.0), a_candidate(2, 1.0))) == [2, 1]


def test_equal_ranks_go_in_turn():
    assert order_of(candidates(a_candidate(2, 1.0), a_candidate(1, 1.0))) == [1, 2]


def test_overdue_ones_go_before_all_others_by_their_deadlines():
    late = [a_candidate(1, 9.0, key=8.0), a_candidate(2, 8.0, key=5.0)]
    found = candidates(a_candidate(3, 1.0), *late)
    assert found.overdue(4.0) is None
    assert found.overdue(10.0) is late[1]
    assert order_of(found, now=10.0) == [2, 1, 3]


def test_of_several_jobs_the_earliest_deadline_is_overdue_first():
    late = [a_candidate(1, 9.0, key=8.0, job="x"), a_candidate(2, 8.0, key=5.0, job="y")]
    assert candidates(*late).overdue(10.0) is late[1]
    assert candidates(*reversed(late)).overdue(10.0) is late[1]


def test_the_job_that_got_least_goes_first():
    mine, theirs = a_candidate(1, 1.0, job="x"), a_candidate(2, 5.0, job="y")
    found = candidates(mine, theirs)
    assert order_of(found) == [1, 2]
    found = candidates(mine, theirs)
    found.use.hold(mine.job, 1, 0.0)
    assert goes_first(found.use, theirs, mine, 0.0)
    assert order_of(found) == [2, 1]


def test_one_that_is_believed_to_be_shorter_now_moves_up():
    long, short = a_candidate(1, 5.0), a_candidate(2, 3.0)
    found = candidates(long, short)
    long.belief = KnownDuration(1.0)
    found.rerank(long)
    assert found.is_reranked
    assert (list(found), order_of(found)) == ([short, long], [1, 2])


def test_one_whose_rank_stays_does_not_move():
    one = a_candidate(1, 7.0)
    found = candidates(one)
    one.belief = KnownDuration(7.0)
    found.rerank(one)
    assert not found.is_reranked


def test_those_that_left_are_not_remembered_for_long():
    stays = a_candidate(0, 0.0, key=0.0)
    found = candidates(stays)
    for seq in range(1, 1000):
        gone = a_candidate(seq, 9.0)
        found.push(gone)
        found.remove(gone)
    assert found.num_entries() <= FEWEST + 3
    assert list(found) == [stays]
    assert len(found) == 1


def test_what_is_overdue_is_told_by_job_too():
    late, other = a_candidate(1, 9.0, key=8.0, job="x"), a_candidate(2, 8.0, job="y")
    found = candidates(late, other)
    assert [found.overdue_of(job, 10.0) for job in ("x", "y", "z")] == [late, None, None]
