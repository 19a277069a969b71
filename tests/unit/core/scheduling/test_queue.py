"""Tickets that wait in a lane, and those who no longer do."""

from builders import a_waiting_ticket

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import FunctionsSpec
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.counted import CountedLane
from artangram.core.scheduling.policies.queue import FEWEST, FairUsage, Queue
from artangram.core.scheduling.pools.functions import FunctionPool


def a_lane() -> CountedLane:
    pool = FunctionPool(Resource("functions"), FunctionsSpec(ceiling=1))
    return CountedLane(pool, None, FairUsage({}))


def test_the_cancelled_are_forgotten_even_if_the_first_waits_for_ever():
    lane = a_lane()
    queue = Queue(lane, FairUsage({}))

    def come(seq: int, job: str) -> Ticket:
        ticket = a_waiting_ticket(seq, job=job)
        ticket.lane = lane
        queue.push(ticket)
        return ticket

    first = come(0, "job")
    for seq in range(1, 1000):
        late = come(seq, "job" if seq % 3 else "another")
        queue.forget()
        late.lane = None
        assert queue.num_entries() <= FEWEST + 4
    assert (queue.peek(), queue.tickets(), len(queue)) == (first, [first], 1)


def test_one_that_comes_back_again_and_again_is_there_once():
    lane = a_lane()
    queue, waiting = Queue(lane, FairUsage({})), [a_waiting_ticket(seq) for seq in range(FEWEST)]
    for ticket in waiting:
        ticket.lane = lane
        queue.push(ticket)
    for _ in range(1000):
        queue.forget()
        queue.push(waiting[-1])
    assert (len(queue), queue.tickets()) == (FEWEST, waiting)
    assert queue.num_entries() <= 3 * FEWEST


def test_a_job_that_was_away_earned_nothing_meanwhile():
    served = FairUsage({})
    idle, busy = a_waiting_ticket(1, job="idle"), a_waiting_ticket(2, job="busy")
    for ticket in (idle, busy):
        served.wait(ticket.job)
        served.charge(ticket, 1.0)
    for _ in range(9):
        served.charge(busy, 1.0)
    served.wait(idle.job)
    assert served.of(busy.job) - served.of(idle.job) <= 1.0
