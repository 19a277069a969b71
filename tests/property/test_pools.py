"""The books of cores, quotas and function slots against plain oracles."""

from builders import CPU, a_cpu
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples

from artangram.core.ids import NodeId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import CallWindow, FunctionsSpec, QuotaSpec
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.pools.quota import QuotaPool

GAPS = st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5, 7.0])


class CoreOracle:
    """Every core of a node and its domain, one by one."""

    def __init__(self, cores: int, numa: int) -> None:
        self.free = set(range(cores))
        self.per_domain = -(-cores // numa)

    def domain(self, core: int) -> int:
        return core // self.per_domain

    def sizes(self) -> dict[int, int]:
        """Free cores of every domain that has any."""
        domains = [self.domain(core) for core in self.free]
        return {domain: domains.count(domain) for domain in domains}


def check_taken(taken: tuple[int, ...], oracle: CoreOracle, near: int | None) -> None:
    """Free cores, each once, from one domain where that is possible, the tightest that fits."""
    assert len(set(taken)) == len(taken)
    assert set(taken) <= oracle.free
    before, count = oracle.sizes(), len(taken)
    used = {oracle.domain(core) for core in taken}
    home = None if near is None else before.get(oracle.domain(near))
    if near is not None and home is not None:
        at_home = sum(oracle.domain(core) == oracle.domain(near) for core in taken)
        assert at_home == min(count, home), f"{taken} strays from {near} in {before}"
    elif any(size >= count for size in before.values()):
        (domain,) = used
        assert before[domain] == min(size for size in before.values() if size >= count)


@examples(100)
@given(
    cores=st.integers(1, 12),
    numa=st.integers(1, 4),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 12), st.integers(0, 11)), max_size=25),
)
def test_cores_are_free_or_held_once_and_stay_in_their_domain(cores, numa, steps):
    node = CpuNode(CPU, NodeId("n"), a_cpu(cores=cores, numa=numa))
    oracle, held = CoreOracle(cores, numa), []
    for is_take, count, index in steps:
        if is_take and node.free:
            near = held[index % len(held)][0] if held and index % 2 else None
            taken = node.take(min(count, node.free), near=near)
            check_taken(taken, oracle, near)
            oracle.free -= set(taken)
            held.append(taken)
        elif held:
            given_back = held.pop(index % len(held))
            node.give_back(given_back)
            oracle.free |= set(given_back)
        assert node.free == len(oracle.free)
        assert node.free_cores() == sorted(oracle.free)
    for cores_of_one in held:
        node.give_back(cores_of_one)
    assert node.free_cores() == list(range(cores))


@examples(50)
@given(sizes=st.lists(st.integers(0, 60), max_size=10))
def test_memory_is_held_by_trajectories_until_they_are_gone(sizes):
    node = CpuNode(CPU, NodeId("n"), a_cpu(memory_mb=100))
    held = {}
    for number, size in enumerate(sizes):
        if size <= node.memory_free_mb:
            trajectory = TrajectoryId(f"t{number}")
            node.hold_memory(trajectory, size)
            held[trajectory] = size
        assert node.memory_free_mb == 100 - sum(held.values()) >= 0
        assert node.trajectories == held
    for trajectory in held:
        node.give_back_memory(trajectory)
    assert node.memory_free_mb == 100


class QuotaOracle:
    """Every call ever, one by one."""

    def __init__(self, spec: QuotaSpec) -> None:
        self.spec = spec
        self.starts: list[float] = []
        self.under_way = 0
        self.closed_until = 0.0

    def window_fits(self, units: int, at: float) -> bool:
        def is_within(limit: int | None, window_s: float) -> bool:
            recent = sum(started + window_s > at for started in self.starts)
            return limit is None or recent + units <= limit

        windows = [(self.spec.limit, self.spec.window_s)]
        windows += [(window.limit, window.window_s) for window in self.spec.windows]
        return at >= self.closed_until and all(is_within(*window) for window in windows)

    def fits(self, units: int, at: float) -> bool:
        limit = self.spec.concurrency
        return self.window_fits(units, at) and (limit is None or self.under_way + units <= limit)

    def moments(self, after: float) -> list[float]:
        """When the window may change by time alone."""
        lengths = [self.spec.window_s, *(window.window_s for window in self.spec.windows)]
        ends = [started + window_s for started in self.starts for window_s in lengths]
        return sorted(at for at in {*ends, self.closed_until} if at > after)


@examples(200)
@given(
    concurrency=st.none() | st.integers(3, 5),
    limit=st.none() | st.integers(3, 6),
    windows=st.sampled_from([(), (CallWindow(limit=7, window_s=5.0),)]),
    steps=st.lists(
        st.tuples(st.sampled_from(["call", "call", "end", "close"]), GAPS, st.integers(1, 3)),
        max_size=40,
    ),
)
def test_a_quota_lets_in_exactly_what_every_window_allows(concurrency, limit, windows, steps):
    spec = QuotaSpec(concurrency=concurrency, limit=limit, window_s=2.0, windows=windows)
    pool, oracle, now = QuotaPool(Resource("search"), spec), QuotaOracle(spec), 0.0
    for what, gap, units in steps:
        now += gap
        assert pool.fits(units, now) == oracle.fits(units, now)
        check_fits_at(pool, oracle, units, now)
        if what == "call" and pool.fits(units, now):
            assert pool.take(units, now).units == units
            oracle.starts += [now] * units
            oracle.under_way += units
        elif what == "end" and oracle.under_way >= units:
            pool.give_back(units, now)
            oracle.under_way -= units
        elif what == "close":
            pool.close(now + units)
            oracle.closed_until = max(oracle.closed_until, now + units)


def check_fits_at(pool: QuotaPool, oracle: QuotaOracle, units: int, now: float) -> None:
    """The first moment at which time alone lets the calls in, or the end of the closure."""
    at = pool.fits_at(units, now)
    if now < oracle.closed_until:
        assert at == oracle.closed_until
    elif at is None:
        assert oracle.window_fits(units, now)
    else:
        assert not oracle.window_fits(units, now)
        assert at == next(m for m in oracle.moments(now) if oracle.window_fits(units, m))


@examples(100)
@given(steps=st.lists(st.tuples(st.booleans(), GAPS, st.integers(1, 3)), max_size=40))
def test_slots_are_warm_for_a_while_and_never_above_the_ceiling(steps):
    pool = FunctionPool(Resource("f"), FunctionsSpec(ceiling=4, idle_s=2.0))
    now, busy, idle = 0.0, 0, []
    for is_call, gap, units in steps:
        now += gap
        idle = [since for since in idle if since + 2.0 > now]
        assert pool.warm(now) == len(idle)
        assert pool.available(now) == 4 - busy
        assert pool.fits(units, now) == (busy + units <= 4)
        if is_call and pool.fits(units, now):
            slots = pool.take(units, now)
            reused = min(units, len(idle))
            assert (slots.units, slots.cold) == (units, units - reused)
            idle = idle[: len(idle) - reused]
            busy += units
        elif not is_call and busy >= units:
            pool.give_back(units, now)
            busy -= units
            idle += [now] * units
        assert busy + len(idle) <= 4
