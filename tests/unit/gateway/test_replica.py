"""What the gateway knows of a replica."""

from math import e

import pytest
from gateway_support import PuppetEngine

from artangram.core.rollout.affinity import Choice
from artangram.core.rollout.costs import TokenWork
from artangram.gateway.engines.protocol import Sampling
from artangram.gateway.replica import RECENT_S, EngineReplica, Recent
from artangram.gateway.turn import Turn


def test_what_was_long_ago_counts_for_little():
    reads = Recent()
    assert reads.per_s(5.0) == 0.0
    reads.add(100.0, 5.0)
    assert reads.per_s(5.0) == pytest.approx(100.0 / RECENT_S)
    assert reads.per_s(5.0 + RECENT_S) == pytest.approx(100.0 / RECENT_S / e)


def test_what_comes_steadily_is_counted_as_it_comes():
    reads = Recent()
    for tenth in range(1000):
        reads.add(5.0, tenth / 10)
    assert reads.per_s(100.0) == pytest.approx(50.0, rel=0.01)


def test_a_replica_knows_what_it_was_given_to_read():
    replica = EngineReplica(PuppetEngine("a"), hardware="compute")
    turn = Turn("t", (1, 2, 3), sampling=Sampling(max_tokens=1), session="s", task="")
    choice = Choice(replica="a", hardware="compute", work=TokenWork(30.0, 1.0))
    with replica.serving(turn, choice, request_id="r", now=7.0):
        assert replica.half(turn, now=7.0).turns == 1
        assert replica.candidate(turn, now=7.0).reads_per_s == pytest.approx(30.0 / RECENT_S)
    # It has been read all the same.
    assert replica.candidate(turn, now=7.0).reads_per_s == pytest.approx(30.0 / RECENT_S)
    assert replica.candidate(turn, now=7.0, taking=2).takes == 2
