"""Sizes, divisions, fairness and bounds on waiting, against brute force and plain counting."""

from itertools import product

import pytest
from builders import a_cluster, a_cpu, a_waiting_ticket, an_action, an_elastic
from hypothesis import given
from hypothesis import strategies as st
from scheduler_watch import Watch
from scheduler_world import examples
from virtual_time import played

from artangram.core.scheduling.action import Action, ActionRecord
from artangram.core.scheduling.baselines.tangram import UnitDivision
from artangram.core.scheduling.cluster import QuotaSpec
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.policies.width import fixed_widths, malleable_widths
from artangram.core.scheduling.scheduler import Scheduler
from artangram.core.scheduling.speedup import Amdahl, Power, Table

shares = st.floats(0.0, 1.0)
tables = st.dictionaries(st.integers(1, 32), st.floats(0.1, 40.0), min_size=1, max_size=6)
curves = st.one_of(
    st.builds(Amdahl, shares),
    st.builds(Power, shares),
    tables.map(lambda points: Table(tuple(sorted(points.items())))),
)
amounts = st.sets(st.integers(1, 32), min_size=1, max_size=8).map(lambda s: tuple(sorted(s)))
prices = st.floats(0.0, 100.0) | st.just(0.0)


@examples(300)
@given(sizes=amounts, curve=curves, price=prices)
def test_the_best_width_is_the_cheapest_of_all(sizes, curve, price):
    def cost(units: int) -> float:
        return (1 + units * price) / curve.speed(units)

    chosen = fixed_widths(sizes, curve).best(price)
    assert chosen in sizes
    assert cost(chosen) <= min(map(cost, sizes)) * (1 + 1e-9)


@examples(100)
@given(sizes=amounts, curve=curves, price=prices, cap=st.integers(0, 40))
def test_a_capped_width_is_the_best_or_the_largest_that_fits(sizes, curve, price, cap):
    widths = fixed_widths(sizes, curve)
    fitting = [size for size in sizes if size <= cap]
    best = widths.best(price)
    assert widths.largest_within(cap) == max(fitting, default=0)
    assert widths.best_within(price, cap) == (best if best <= cap else max(fitting, default=0))
    assert widths.area == pytest.approx(min(k / curve.speed(k) for k in sizes))


@examples(100)
@given(sizes=amounts, curve=curves, penalty=st.floats(0.0, 0.5), data=st.data())
def test_squeezed_workers_lose_the_penalty_and_nothing_else(sizes, curve, penalty, data):
    workers = data.draw(st.sampled_from(sizes))
    widths = malleable_widths(sizes, curve, workers, penalty)
    assert (widths.least, widths.most) == (sizes[0], workers)
    assert widths.speed[workers] == pytest.approx(curve.speed(workers))
    for size in [size for size in sizes if size < workers]:
        assert widths.speed[size] == pytest.approx(curve.speed(size) * (1 - penalty))
    assert sizes[0] <= widths.best(data.draw(prices)) <= workers


candidates = st.lists(
    st.tuples(
        st.sampled_from([(1,), (2,), (1, 2, 3), (1, 4), (2, 3, 5)]), curves, st.floats(0.1, 100.0)
    ),
    min_size=1,
    max_size=4,
)


def seconds(ticket: Ticket, units: int) -> float:
    return ticket.work_s / (ticket.curve.speed(units) if ticket.curve is not None else 1.0)


def brute_force(tickets: list[Ticket], free: int) -> float:
    """The least sum of durations over all divisions that fit."""
    return min(
        sum(seconds(ticket, units) for ticket, units in zip(tickets, sizes, strict=True))
        for sizes in product(*(ticket.form.amounts for ticket in tickets))
        if sum(sizes) <= free
    )


@examples(200)
@given(wanted=candidates, spare=st.integers(0, 8))
def test_the_division_of_units_is_the_best_for_every_prefix(wanted, spare):
    tickets = [
        a_waiting_ticket(seq, sizes, work_s=work_s, curve=curve if len(sizes) > 1 else None)
        for seq, (sizes, curve, work_s) in enumerate(wanted)
    ]
    free = sum(ticket.form.amounts[0] for ticket in tickets) + spare
    division = UnitDivision(tickets, free)
    for count in range(len(tickets) + 1):
        sizes = division.sizes(count)
        assert sum(sizes) <= free
        total = sum(seconds(t, units) for t, units in zip(tickets, sizes, strict=False))
        assert total == pytest.approx(brute_force(tickets[:count], free))


FLOODS = {"elastic": {"cpu": 1}, "paced": {"search": 1}}


def a_shared_scheduler(name: str) -> Scheduler:
    cluster = a_cluster(
        cpu=a_cpu(cores=4), search=QuotaSpec(concurrency=4), shares={"poor": 1.0, "rich": 3.0}
    )
    return Scheduler(cluster, policy("elastic" if name == "paced" else name))


def in_order_of_start(records: list[ActionRecord]) -> list[ActionRecord]:
    return sorted(records, key=lambda record: (record.started_at, record.action_id))


@pytest.mark.parametrize("name", ["paced"])
@examples(10)
@given(run_s=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=20, max_size=20))
def test_jobs_that_flood_are_served_in_proportion_to_their_shares(name, run_s):
    """Calls count alike, so starts are 1:3 however long they take."""
    arrivals = [
        (0.0, an_action(f"{job}-{n}", FLOODS[name], job=job, work_s=1.0, kind=f"{job}{n}"))
        for n in range(100)
        for job in ("poor", "rich")
    ]
    true_s = {str(a.id): run_s[n % 20] for n, (_, a) in enumerate(arrivals)}
    records = in_order_of_start(played(a_shared_scheduler(name), arrivals, run_s=true_s))
    for count in range(8, 128, 8):
        rich = sum(record.job == "rich" for record in records[:count])
        assert abs(rich - 0.75 * count) <= 2, f"{rich} of the first {count} starts are the rich's"


@pytest.mark.parametrize("name", ["elastic"])
def test_elastic_work_counts_as_much_as_the_cores_it_uses(name):
    """Both use 20 core-seconds: two cores for ten seconds, whoever says it in which way."""
    needs, fields = {"cpu": {"choices": [2, 4]}}, {"elastic": "cpu", "speedup": {"power": 1.0}}
    arrivals = []
    for n in range(40):
        arrivals.append((0.0, an_action(f"e{n}", needs, job="elastic", work_s=20.0, **fields)))
        arrivals.append((0.0, an_action(f"r{n}", 2, job="rigid", work_s=10.0)))
    run_s = {str(action.id): 10.0 for _, action in arrivals}
    scheduler = Scheduler(a_cluster(cpu=a_cpu(cores=4)), policy(name))
    records = in_order_of_start(played(scheduler, arrivals, run_s=run_s))
    assert abs(sum(record.job == "elastic" for record in records[:40]) - 20) <= 2


@pytest.mark.parametrize("name", FLOODS)
@examples(10)
@given(came_at=st.floats(1.0, 20.0))
def test_a_newcomer_is_not_stuck_behind_a_flood(name, came_at):
    flood = [(0.0, an_action(f"f{n}", FLOODS[name], job="rich", work_s=1.0)) for n in range(200)]
    newcomer = an_action("new", FLOODS[name], job="poor", work_s=1.0)
    true_s = dict.fromkeys([str(action.id) for _, action in flood] + ["new"], 1.0)
    arrivals = [*flood, (came_at, newcomer)]
    records = played(a_shared_scheduler(name), arrivals, run_s=true_s, until=came_at + 5.0)
    (wait_s,) = [record.wait_s for record in records if record.action_id == "new"]
    assert wait_s <= 1.0 + 1e-9  # the first that ends makes room


MINIMA = (1, 4, 8, 16)
CORES = 16


def an_overload(seeds: list[tuple[int, int, bool]]) -> list[tuple[float, Action]]:
    """For 60 s, 1.3 times what 16 cores can do even if everybody gets its least amount."""
    arrivals, now = [], 0.0
    while now < 60.0:
        n = len(arrivals)
        size, work_s, is_elastic = seeds[n % len(seeds)]
        least = MINIMA[size]
        now += least * work_s / (1.3 * CORES)
        fields = {"work_s": float(work_s), "kind": f"k{size}"}
        if is_elastic and least < CORES:
            action = an_elastic(f"a{n}", least, CORES, **fields)
        else:
            action = an_action(f"a{n}", least, **fields)
        arrivals.append((now, action))
    return arrivals


@pytest.mark.parametrize(("name", "penalty"), [("elastic", 0.0), ("elastic", 0.1)])
@examples(6)
@given(
    seeds=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 5]), st.booleans()),
        min_size=3,
        max_size=12,
    )
)
def test_nobody_starves_under_overload(name, penalty, seeds):
    """Past its virtual deadline an action waits only for those with an earlier one.

    `Watch` sees to that. So it starts at the latest when all of them have run one after the other.
    """
    arrivals = an_overload(seeds)
    watch = Watch(name)
    cluster = a_cluster(cpu=a_cpu(cores=CORES, squeeze_penalty=penalty))
    scheduler = Scheduler(cluster, watch.watched(policy(name)))
    run_s = {str(action.id): action.work_s for _, action in arrivals}
    records = played(scheduler, arrivals, run_s=run_s, after=watch.check)
    assert len(records) == len(arrivals)
    for record in records:
        key = watch.keys[record.action_id]
        earlier = [r for r in records if watch.keys[r.action_id] <= key and r.ended_at > key]
        latest = key + sum(run_s[str(r.action_id)] for r in earlier) + max(run_s.values())
        assert record.started_at <= latest


@pytest.mark.parametrize("name", ["elastic"])
@examples(4)
@given(work_s=st.sampled_from([1e3, 1e5]), gap=st.sampled_from([8.0, 10.0]))
def test_long_work_is_passed_for_an_hour_at_most(name, work_s, gap):
    """One core, and always a short command that came later and would go first."""
    short_s = 10.0
    arrivals = [(n * gap, an_action(f"s{n}", 1, work_s=short_s)) for n in range(600)]
    arrivals.append((1.0, an_action("long", 1, work_s=work_s)))
    watch = Watch(name)
    scheduler = Scheduler(a_cluster(cpu=a_cpu(cores=1)), watch.watched(policy(name)))
    run_s = {str(action.id): short_s for _, action in arrivals}
    started_at = {r.action_id: r.started_at for r in played(scheduler, arrivals, run_s=run_s)}
    overdue_at = 1.0 + 3600.0
    waiting = [a for a, key in watch.keys.items() if key <= overdue_at < started_at[a]]
    assert 3000.0 < started_at["long"] <= overdue_at + short_s * (1 + len(waiting))
