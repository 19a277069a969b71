"""When to wake which lane."""

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import FunctionsSpec
from artangram.core.scheduling.policies.counted import CountedLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.wakes import FEWEST, Wakes


def a_lane() -> CountedLane:
    pool = FunctionPool(Resource("functions"), FunctionsSpec(ceiling=1))
    return CountedLane(pool, None, FairUsage({}))


ONE, OTHER = a_lane(), a_lane()


def test_lanes_are_due_at_their_time_and_in_the_order_they_asked():
    wakes = Wakes()
    wakes.ask(OTHER, 2.0)
    wakes.ask(ONE, 2.0)
    assert (wakes.next_at(), wakes.take_due(1.0)) == (2.0, [])
    assert wakes.take_due(2.0) == [OTHER, ONE]
    assert wakes.next_at() is None


def test_the_earliest_time_counts():
    wakes = Wakes()
    for at in (5.0, 3.0, 4.0):
        wakes.ask(ONE, at)
    assert wakes.take_due(3.0) == [ONE]
    assert wakes.take_due(9.0) == []


def test_a_lane_that_is_gone_is_not_woken():
    wakes = Wakes()
    wakes.ask(ONE, 1.0)
    wakes.forget(ONE)
    assert wakes.take_due(1.0) == []


def test_a_lane_that_is_woken_soon_again_and_again_leaves_nothing_behind():
    """An elastic action may start at the latest in an hour; till then short commands come and go,
    and each of them asks for cores to be divided soon."""
    wakes = Wakes()
    wakes.ask(OTHER, 3600.0)
    for count in range(1000):
        wakes.ask(ONE, 3600.0)
        wakes.ask(ONE, float(count))
        assert wakes.take_due(count) == [ONE]
        assert len(wakes.heap) <= FEWEST + 5
    wakes.ask(ONE, 3600.0)
    assert wakes.take_due(3600.0) == [OTHER, ONE]
