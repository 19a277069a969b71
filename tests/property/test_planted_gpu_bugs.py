"""Every property of GPU pools and lanes catches a bug: each test plants one and sees it fail."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import run_state_machine_as_test
from scheduler_world import examples

from artangram.core.scheduling.baselines.gpufcfs import GpuFcfsLane
from artangram.core.scheduling.policies import residency
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.gpulane import GpuLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.residency import Move, ResidencyLane
from artangram.core.scheduling.pools.buddy import Buddy
from artangram.core.scheduling.pools.gpu import GpuPool
from artangram.core.scheduling.pools.gpunode import GpuNode, Residency
from property import test_gpu_lanes, test_gpu_shares
from property.test_gpu_pool import GpuBooks
from property.test_planted_bugs import instead, nothing, only_when_odd, without_shares

Method = Callable[..., object]
Plant = Callable[[pytest.MonkeyPatch], None]


def one_by_one(real: Method) -> Method:
    def positions(buddy: Buddy, size: int) -> Iterator[tuple[int, int]]:
        for first, block in buddy.blocks():
            yield from ((at, block) for at in range(first, first + block - size + 1))

    return positions


def everywhere(real: Method) -> Method:
    return lambda buddy, size: ((first, size) for first in buddy.layout(size))


def without_merging(real: Method) -> Method:
    def give_back(buddy: Buddy, first: int, size: int) -> None:
        buddy.free += size
        buddy._blocks[first] = size

    return give_back


def only_the_first(real: Method) -> Method:
    def evictions(*args: object, **fields: object) -> object:
        chosen, loss = real(*args, **fields)
        return chosen[:1], loss

    return evictions


def although_busy(real: Method) -> Method:
    def lose_service(pool: GpuPool, copy: Residency) -> None:
        copy.busy = 0
        pool.evict(copy)

    return lose_service


POOL_PLANTS: dict[str, tuple[Plant, str]] = {
    "chunks are not aligned": (instead(Buddy, "positions", one_by_one), "is not aligned"),
    "buddies stay apart": (instead(Buddy, "give_back", without_merging), "not merged"),
    "a chunk is given twice": (
        instead(Buddy, "take", nothing),
        "do not match busy|shares devices|got back",
    ),
    "one eviction is thought to be enough": (
        instead(GpuNode, "evictions", only_the_first),
        "short of memory|over-committed",
    ),
    "two services run on a device": (
        instead(GpuPool, "is_startable", lambda real: lambda pool, r: r.busy == 0),
        "cannot give|shares devices",
    ),
    "what runs is evicted": (
        instead(Buddy, "positions", everywhere),
        "a busy residency was to be evicted|do not match busy|over-committed|two services",
    ),
    "a lost service takes its devices along": (
        instead(GpuPool, "lose_service", although_busy),
        "do not match busy|got back more|not in list",
    ),
}


@pytest.mark.parametrize("bug", POOL_PLANTS)
def test_the_books_catch(bug, monkeypatch):
    plant, complaint = POOL_PLANTS[bug]
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError), match=complaint):
        run_state_machine_as_test(GpuBooks, settings=examples(1000, steps=50, is_hunt=True))


def keeping_wide_ones(real: Method) -> Method:
    def give_back(lane: GpuLane, ticket: Ticket, now: float) -> None:
        if ticket.workers < 8:
            real(lane, ticket, now)

    return give_back


def waiting_for_quiet(real: Method) -> Method:
    """Restore nothing new while anything runs."""
    return lambda lane, queue, ticket: (
        real(lane, queue, ticket) if lane._copies(ticket) or not lane.ends else None
    )


def drifting(real: Method) -> Method:
    clock = count()
    return lambda *args: real(*args) * (1 + next(clock) % 7)


def by_key_alone(real: Method) -> Method:
    def between_jobs(lane: ResidencyLane, move: Move) -> tuple[float, float, int]:
        return 0.0, move.score, move.ticket.seq

    return between_jobs


LANE_PLANTS: dict[str, tuple[Plant, Callable[[], object]]] = {
    "wide devices are never given back": (
        instead(GpuLane, "give_back", keeping_wide_ones),
        lambda: test_gpu_lanes.test_everybody_ends_once_and_the_books_balance(
            lane_type=ResidencyLane
        ),
    ),
    "decisions depend on more than the events": (
        instead(residency, "seconds", drifting),
        lambda: test_gpu_lanes.test_the_same_events_give_the_same_decisions(
            lane_type=ResidencyLane
        ),
    ),
    "a fitting head is left waiting": (
        instead(GpuFcfsLane, "dispatch", only_when_odd),
        test_gpu_lanes.test_first_come_first_served_never_leaves_a_fitting_head_waiting,
    ),
    "devices stay idle while others run": (
        instead(ResidencyLane, "_weigh", waiting_for_quiet),
        test_gpu_lanes.test_who_has_no_copy_to_wait_for_starts_when_a_chunk_is_free,
    ),
    "nothing drains for the overdue": (
        instead(ResidencyLane, "_newly_fenced", nothing),
        test_gpu_lanes.test_nobody_starves,
    ),
    "slack has no end": (
        instead(
            ResidencyLane,
            "__init__",
            lambda real: lambda *args, **fields: real(*args, slack_cap_s=1e9, **fields),
        ),
        test_gpu_lanes.test_long_work_is_passed_for_ten_minutes_at_most,
    ),
    "nobody is charged": (
        instead(FairUsage, "charge", nothing),
        test_gpu_shares.test_device_seconds_follow_the_shares,
    ),
    "shares are forgotten": (
        instead(FairUsage, "charge", without_shares),
        test_gpu_shares.test_device_seconds_follow_the_shares,
    ),
    "who was away has credit": (
        instead(FairUsage, "wait", nothing),
        test_gpu_shares.test_device_seconds_follow_the_shares,
    ),
    "the oldest job goes first": (
        instead(ResidencyLane, "_between_jobs", by_key_alone),
        test_gpu_shares.test_device_seconds_follow_the_shares,
    ),
    "a flood goes first": (
        instead(ResidencyLane, "_between_jobs", by_key_alone),
        test_gpu_shares.test_a_newcomer_is_not_stuck_behind_a_flood,
    ),
    "nothing drains for wide work": (
        instead(ResidencyLane, "_newly_fenced", nothing),
        test_gpu_shares.test_wide_work_gets_its_share_beside_narrow_work_that_fills_every_gap,
    ),
}


@pytest.mark.parametrize("bug", LANE_PLANTS)
def test_the_property_catches(bug, monkeypatch):
    plant, prove = LANE_PLANTS[bug]
    plant(monkeypatch)
    # A bug of its own mood may be gone when hypothesis looks again.
    with pytest.raises((AssertionError, FlakyFailure)):
        prove()
