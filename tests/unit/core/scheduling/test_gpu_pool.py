"""The books of GPU pools: chunks, residents, memory, host copies, losses."""

import pytest
from gpu_support import a_pool, a_service, check_books, place

from artangram.core.ids import NodeId, ServiceId
from artangram.core.scheduling.pools.buddy import Buddy, chunk_size
from artangram.core.scheduling.pools.gpu import BARE, Fence, FreeChunk, GpuPool
from artangram.core.scheduling.pools.gpunode import HostCopyBook, Residency

A, B, C = ServiceId("a"), ServiceId("b"), ServiceId("c")
NODE = NodeId("gpu-0")


def by_age(residency: Residency) -> float:
    return residency.used_at


def a_chunk(pool: GpuPool, service: ServiceId, degree: int, first: int) -> FreeChunk:
    chunks = pool.chunks(service, degree, worth=by_age)
    return next(chunk for chunk in chunks if chunk.first == first)


def resident(pool: GpuPool, service: ServiceId, degree: int, first: int = 0) -> Residency:
    return pool.restore(service, a_chunk(pool, service, degree, first), now=0.0)


def test_splitting_leaves_the_largest_aligned_blocks():
    buddy = Buddy(8)
    buddy.take(5, 1)
    assert buddy.blocks() == [(0, 4), (4, 1), (6, 2)]


def test_what_comes_back_merges_as_far_as_possible():
    buddy = Buddy(8)
    for first in (0, 2):
        buddy.take(first, 2)
    buddy.give_back(0, 2)
    assert buddy.blocks() == [(0, 2), (4, 4)]
    buddy.give_back(2, 2)
    assert buddy.blocks() == [(0, 8)]


@pytest.mark.parametrize(
    ("devices", "blocks"),
    [(1, [(0, 1)]), (6, [(0, 4), (4, 2)]), (11, [(0, 8), (8, 2), (10, 1)]), (12, [(0, 8), (8, 4)])],
)
def test_an_odd_number_of_devices_is_the_largest_blocks_it_is_made_of(devices, blocks):
    buddy = Buddy(devices)
    assert buddy.blocks() == blocks
    for first, size in blocks:
        buddy.take(first, size)
    for first, size in blocks:
        buddy.give_back(first, size)
    assert buddy.blocks() == blocks


def test_a_chunk_is_free_only_where_it_is_aligned_and_whole():
    buddy = Buddy(8)
    buddy.take(0, 1)
    assert [first for first, _ in buddy.positions(2)] == [2, 4, 6]
    assert not buddy.is_free(0, 4)
    assert buddy.is_free(4, 4)
    assert not buddy.fits(8)


@pytest.mark.parametrize(("units", "size"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8)])
def test_units_are_rounded_up_to_a_chunk(units, size):
    assert chunk_size(units) == size


def test_degrees_are_those_whose_shards_fit():
    pool = a_pool({"a": a_service(weights_mb=200_000, degrees=(1, 2, 3, 4, 8, 16))})
    assert pool.degrees(A) == (4, 8)


def test_services_share_devices_while_their_memory_fits():
    pool = a_pool(memory_mb=32_000)
    first, second = resident(pool, A, 1), resident(pool, B, 1)
    assert pool.residents(A) == [first]
    assert pool.residents(B) == [second]
    check_books(pool)


def test_only_one_of_the_services_on_a_device_is_busy():
    pool = a_pool()
    first, second = resident(pool, A, 2), resident(pool, B, 1)
    pool.take(first, now=1.0)
    assert not pool.is_startable(second)
    pool.give_back(first, now=2.0)
    assert pool.is_startable(second)


def test_the_least_valuable_residents_are_evicted_and_no_more_than_needed():
    pool = a_pool({"a": a_service(30_000), "b": a_service(30_000), "c": a_service(40_000)})
    old, new = resident(pool, A, 1), resident(pool, B, 1)
    old.used_at, new.used_at = 1.0, 2.0
    chunk = a_chunk(pool, C, 1, first=0)
    assert chunk.evicted == (old,)
    assert chunk.loss == 1.0
    pool.restore(C, chunk, now=3.0)
    assert not pool.is_here(old)
    assert pool.is_here(new)


def test_as_many_are_evicted_as_it_takes_on_every_device():
    pool = a_pool({"a": a_service(50_000), "b": a_service(60_000), "c": a_service(140_000)})
    first, second = resident(pool, A, 1, first=0), resident(pool, B, 1, first=1)
    chunk = a_chunk(pool, C, 2, first=0)
    assert set(chunk.evicted) == {first, second}
    pool.restore(C, chunk, now=1.0)
    check_books(pool)


def test_a_small_eviction_is_spared_when_a_larger_one_made_it_needless():
    pool = a_pool({"a": a_service(10_000), "b": a_service(60_000), "c": a_service(70_000)})
    small, large = resident(pool, A, 1), resident(pool, B, 1)
    small.used_at, large.used_at = 1.0, 2.0
    assert a_chunk(pool, C, 1, first=0).evicted == (large,)


def test_a_busy_residency_is_never_offered_for_eviction():
    pool = a_pool({"a": a_service(60_000), "b": a_service(60_000)}, devices=2)
    busy = resident(pool, A, 1, first=0)
    pool.take(busy, now=1.0)
    chunks = list(pool.chunks(B, 1, worth=by_age))
    assert [chunk.first for chunk in chunks] == [1]
    with pytest.raises(AssertionError, match="cannot be evicted"):
        pool.evict(busy)


def test_another_degree_is_another_residency():
    pool = a_pool()
    one, two = resident(pool, A, 1), resident(pool, A, 2)
    assert {place(r) for r in pool.residents(A)} == {("gpu-0", 0, 1), ("gpu-0", 0, 2)}
    assert one.memory_mb == 2 * two.memory_mb


def test_a_resident_place_is_not_offered_for_a_restore():
    pool = a_pool()
    resident(pool, A, 4, first=4)
    assert [chunk.first for chunk in pool.chunks(A, 4, worth=by_age)] == [0]


def test_a_fence_keeps_chunks_off():
    pool = a_pool()
    chunks = pool.chunks(A, 2, worth=by_age, fence=Fence(NODE, 4, 4))
    assert [chunk.first for chunk in chunks] == [0, 2]


def test_a_batch_is_joined_until_it_is_full():
    pool = a_pool({"a": a_service(batch=2)})
    copy = resident(pool, A, 1)
    assert not pool.is_joinable(copy)
    pool.take(copy, now=1.0)
    assert pool.is_joinable(copy)
    pool.take(copy, now=1.0)
    assert not pool.is_joinable(copy)
    pool.give_back(copy, now=2.0)
    assert pool.free == 7
    pool.give_back(copy, now=2.0)
    assert pool.free == 8


def test_a_restore_brings_all_shards_at_once():
    pool = a_pool({"a": a_service(weights_mb=64_000)}, restore_mb_per_s=16_000.0)
    assert pool.restore_s(A, 1) == 4.0
    assert pool.restore_s(A, 8) == 0.5


def test_without_a_host_copy_a_restore_is_cold():
    services = {"a": a_service(64_000), "b": a_service(64_000)}
    pool = a_pool(services, host_memory_mb=100_000, cold_mb_per_s=1_000.0)
    assert pool.restore_s(A, 1, NODE) == 4.0
    assert pool.restore_s(B, 1, NODE) == 64.0


def test_the_host_copy_used_longest_ago_makes_room():
    services = {name: a_service(40_000) for name in "abc"}
    pool = a_pool(services, host_memory_mb=100_000)
    resident(pool, A, 1)
    resident(pool, C, 1, first=1)
    is_warm = [pool.restore_s(s, 1, NODE) < 5.0 for s in (A, B, C)]
    assert is_warm == [True, False, True]


def test_a_copy_larger_than_the_host_drops_nothing():
    host = HostCopyBook(100)
    host.use(A, 60)
    host.use(B, 101)
    assert host.holds(A)
    assert not host.holds(B)
    assert host.used_mb == 60


def test_bare_devices_take_all_memory_and_leave_nothing():
    pool = a_pool()
    idle = resident(pool, A, 1)
    bare = pool.restore(BARE, a_chunk(pool, BARE, 1, first=0), now=0.0)
    assert not pool.is_here(idle)
    pool.take(bare, now=0.0)
    pool.give_back(bare, now=1.0)
    assert not pool.is_here(bare)
    check_books(pool)


def test_a_lost_node_takes_everything_with_it():
    pool = a_pool(nodes=2)
    copy = resident(pool, A, 4)
    pool.take(copy, now=0.0)
    pool.lose_node(NODE)
    assert (pool.num_devices, pool.free, pool.residents(A)) == (8, 8, [])
    pool.join_node(NODE)
    pool.give_back(copy, now=1.0)
    assert (pool.num_devices, pool.free) == (16, 16)
    check_books(pool)


def test_a_lost_service_gives_its_devices_back_when_its_actions_end():
    pool = a_pool({"a": a_service(batch=2)})
    copy = resident(pool, A, 4)
    pool.take(copy, now=0.0)
    pool.take(copy, now=0.0)
    pool.lose_service(copy)
    assert pool.residents(A) == []
    pool.give_back(copy, now=1.0)
    assert pool.free == 4
    pool.give_back(copy, now=1.0)
    assert pool.free == 8
    check_books(pool)


def test_an_idle_lost_service_is_gone_at_once():
    pool = a_pool()
    pool.lose_service(resident(pool, A, 4))
    assert pool.nodes()[0].residents == []
    check_books(pool)


def test_services_of_other_pools_are_not_ours():
    pool = a_pool({"a": a_service(), "b": a_service(pool="other")})
    assert pool.services() == [A]
