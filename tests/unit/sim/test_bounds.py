"""No schedule beats a lower bound: checked against every schedule of tiny instances."""

from itertools import permutations, product
from math import inf
from random import Random

import numpy as np
import pytest

from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, QuotaSpec
from artangram.core.scheduling.needs import Needs, parse_needs
from artangram.core.scheduling.speedup import Amdahl
from artangram.observe.trace import Trace, TraceAction, TraceTrajectory, TraceTurn
from artangram.sim.bounds import critical_path_s, lower_bound, mean_busy, srpt_area
from artangram.sim.families import cluster_for, generate
from artangram.sim.lagrangian import bound_at, lagrangian
from artangram.sim.moldable import Moldable, Option, moldable

Instance = tuple[list[float], list[list[Option]], int]

ONE_CORE = parse_needs({"cpu": 1})


def min_time(actions: Moldable) -> float:
    """No action is faster than on its best number of units."""
    return float(actions.fastest_s.mean())


def a_tiny_instance(rng: Random) -> Instance:
    """Three or four actions on two to four units, with efficient and wasteful options."""
    units = rng.randint(2, 4)
    arrivals, options = [], []
    for _ in range(rng.randint(3, 4)):
        arrivals.append(rng.choice([0.0, rng.uniform(0, 4)]))
        work_s, curve = rng.lognormvariate(0.5, 1), Amdahl(rng.uniform(0, 0.5))
        sizes = rng.sample(range(1, units + 1), rng.randint(1, min(3, units)))
        options.append([(size, work_s / curve.speed(size)) for size in sorted(sizes)])
    return arrivals, options, units


def best_mean_act(instance: Instance) -> float:
    """Of every choice of options and every order, each action placed as early as it fits."""
    arrivals, options, units = instance
    best = inf
    for chosen in product(*options):
        for order in permutations(range(len(arrivals))):
            placed: list[tuple[float, float, float]] = []
            total = 0.0
            for j in order:
                end = earliest_end(placed, arrivals[j], chosen[j], units)
                placed.append((end - chosen[j][1], end, chosen[j][0]))
                total += end - arrivals[j]
            best = min(best, total)
    return best / len(arrivals)


def earliest_end(
    placed: list[tuple[float, float, float]], arrive_s: float, option: Option, units: int
) -> float:
    size, time_s = option
    for start in sorted({arrive_s, *(end for _, end, _ in placed if end > arrive_s)}):
        end = start + time_s
        points = [start, *(begin for begin, _, _ in placed if start < begin < end)]
        if all(size + in_use(placed, at) <= units for at in points):
            return end
    raise AssertionError("the last end always fits")


def in_use(placed: list[tuple[float, float, float]], at: float) -> float:
    return sum(size for begin, end, size in placed if begin <= at < end)


@pytest.mark.parametrize("seed", range(40))
def test_no_schedule_of_a_tiny_instance_beats_a_bound(seed):
    instance = a_tiny_instance(Random(seed))
    best = best_mean_act(instance)
    actions = moldable(instance[0], instance[1], units=instance[2])
    for bound in (min_time, srpt_area, mean_busy, lagrangian):
        assert bound(actions) <= best * (1 + 1e-9), bound.__name__


@pytest.mark.parametrize("seed", range(40))
def test_cheapest_start_at_any_price_is_found_exactly(seed):
    """Against a scan of starts so dense that nothing cheaper hides between them."""
    rng = Random(seed)
    arrive_s, time_s, size, cell_s = rng.uniform(0, 3), rng.uniform(0.1, 5), rng.randint(1, 4), 0.7
    price = np.array([rng.choice([0.0, rng.uniform(0, 3)]) for _ in range(8)])
    actions = moldable([arrive_s], [[(size, time_s)]], units=4)

    def cost(start_s: float) -> float:
        edges = np.arange(9) * cell_s
        overlap = np.minimum(edges[1:], start_s + time_s) - np.maximum(edges[:-1], start_s)
        return start_s + time_s - arrive_s + size * float(np.maximum(overlap, 0) @ price)

    dense = min(cost(arrive_s + 0.001 * n) for n in range(8000)) - 4 * price.sum() * cell_s
    exact = bound_at(actions, price, cell_s=cell_s)
    assert exact <= dense + 1e-9
    assert exact == pytest.approx(dense, abs=0.02)


@pytest.mark.parametrize("seed", range(40))
def test_no_schedule_beats_the_bound_of_any_price(seed):
    rng = Random(seed)
    instance = a_tiny_instance(rng)
    best = best_mean_act(instance)
    actions = moldable(instance[0], instance[1], units=instance[2])
    for _ in range(20):
        price = np.array([rng.choice([0.0, rng.uniform(0, 1)]) for _ in range(6)])
        assert bound_at(actions, price, cell_s=rng.uniform(0.2, 3)) <= best * (1 + 1e-9)


@pytest.mark.parametrize("price", [1e3, 1e15, 1e20, 1e300])
def test_nobody_beats_the_bound_of_a_price_that_nobody_would_pay(price):
    """Three seconds of work on one unit: they end at 1, 2 and 3 s at best."""
    actions = moldable([0.0] * 3, [[(1, 1.0)]] * 3, units=1)
    assert bound_at(actions, np.array([price, 0.0, 0.0, 0.0]), cell_s=1.0) <= 2.0


def test_lagrangian_bound_of_tiny_instances_is_close_to_the_best_schedule():
    ratios, plain = [], []
    for seed in range(40):
        instance = a_tiny_instance(Random(seed))
        actions = moldable(instance[0], instance[1], units=instance[2])
        best = best_mean_act(instance)
        ratios.append(lagrangian(actions) / best)
        plain.append(max(min_time(actions), srpt_area(actions)) / best)
    assert sum(ratios) / 40 > 0.95
    assert sum(plain) / 40 < 0.9


def equal_shares_mean_act(arrivals: list[float], works: list[tuple[float, Amdahl]], units: int):
    """A schedule no moldable one can be: all running actions share the units, at every instant."""
    left = {j: work for j, (work, _) in enumerate(works)}
    now = total = 0.0
    while left:
        here = [j for j in left if arrivals[j] <= now]
        rates = {j: works[j][1].speed(max(1.0, units / len(here))) for j in here}
        slow = min(1.0, units / len(here)) if here else 1.0
        ends = [now + left[j] / (rates[j] * slow) for j in here]
        then = min(ends + [arrivals[j] for j in left if arrivals[j] > now])
        for j in here:
            left[j] -= (then - now) * rates[j] * slow
            if left[j] < 1e-9:
                del left[j]
                total += then - arrivals[j]
        now = then
    return total / len(works)


@pytest.mark.parametrize("seed", range(40))
def test_sharing_at_every_instant_does_not_beat_the_bounds_for_all_schedules(seed):
    rng = Random(seed)
    units, count = rng.randint(1, 4), rng.randint(2, 30)
    arrivals = [rng.uniform(0, 5) for _ in range(count)]
    works = [(rng.lognormvariate(0, 1), Amdahl(rng.uniform(0, 0.3))) for _ in range(count)]
    options = [[(k, w / c.speed(k)) for k in range(1, units + 1)] for w, c in works]
    actions = moldable(arrivals, options, units=units)
    reached = equal_shares_mean_act(arrivals, works, units)
    assert min_time(actions) <= reached * (1 + 1e-9)
    assert srpt_area(actions) <= reached * (1 + 1e-9)


def two_on_one_unit() -> Moldable:
    return moldable([0.0, 1.0], [[(1, 4.0)], [(1, 1.0)]], units=1)


def test_bounds_of_two_actions_on_one_unit_are_what_a_hand_computes():
    actions = two_on_one_unit()
    assert min_time(actions) == 2.5  # 4 and 1, alone
    assert srpt_area(actions) == 3.0  # the short one interrupts: it takes 1, the long one 5
    # Middles of service: 1.5 for the short one, (1 * 0.5 + 3 * 3.5) / 4 for the long one.
    assert mean_busy(actions) == pytest.approx(((2.75 + 2.0) + (1.5 - 1 + 0.5)) / 2)
    assert 3.0 < lagrangian(actions) <= 4.0  # the best schedule without interruption: 4 and 4


def test_order_of_the_input_does_not_matter():
    reverse = moldable([1.0, 0.0], [[(1, 1.0)], [(1, 4.0)]], units=1)
    assert srpt_area(reverse) == srpt_area(two_on_one_unit())


def test_actions_of_no_work_have_bounds_of_zero():
    actions = moldable([0.0, 3.0], [[(1, 0.0)], [(1, 0.0)]], units=2)
    assert [bound(actions) for bound in (min_time, srpt_area, mean_busy)] == [0, 0, 0]
    assert lagrangian(moldable([0.0], [[(1, 0.0)]], units=1)) == 0


def a_trace(*actions: TraceAction, arrive_s: float = 0.0) -> Trace:
    """Each action alone in its trajectory."""
    trajectories = tuple(
        TraceTrajectory(trajectory=str(n), turns=(TraceTurn(actions=(action,)),), arrive_s=arrive_s)
        for n, action in enumerate(actions)
    )
    return Trace(name="t", train_s=0, trajectories=trajectories)


def an_action(needs: Needs = ONE_CORE, work_s: float = 1.0, **more: float) -> TraceAction:
    return TraceAction(kind="a", needs=needs, work_s=work_s, **more)


def a_cluster(cores: int = 4, nodes: int = 1) -> ClusterSpec:
    cpu = CpuSpec(nodes=nodes, cores=cores, memory_mb=1)
    return ClusterSpec(pools={"cpu": cpu, "search": QuotaSpec(limit=1)})


def test_crowd_on_few_cores_is_bound_by_area():
    bound = lower_bound(a_trace(*[an_action()] * 8), a_cluster(cores=2))
    assert bound.kind == "srpt-area"
    assert bound.act_mean_s == pytest.approx(sum(range(1, 9)) / 2 / 8)
    assert bound.moldable_act_mean_s == pytest.approx(2.5, rel=0.03)  # 1, 1, 2, 2, 3, 3, 4, 4


def test_quota_calls_count_with_their_time_beside_a_crowded_pool():
    calls = [an_action(parse_needs({"search": 1}), 100.0)] * 8
    bound = lower_bound(a_trace(*[an_action()] * 8, *calls), a_cluster(cores=2))
    assert bound.act_mean_s == pytest.approx((18 + 800) / 16)
    assert bound.moldable_act_mean_s is None


def test_action_is_no_faster_than_one_node_allows():
    needs = parse_needs({"cpu": {"choices": [1, 2, 8]}}, elastic="cpu", speedup={"power": 1})
    assert lower_bound(a_trace(an_action(needs, 8.0)), a_cluster(8)).act_mean_s == 1.0
    bound = lower_bound(a_trace(an_action(needs, 8.0)), a_cluster(4, nodes=2))
    assert bound.act_mean_s == 2.0  # a kernel may give it four cores, though it offers 1, 2 or 8
    assert bound.moldable_act_mean_s == pytest.approx(4.0)


def test_action_that_is_cut_off_counts_until_then():
    for limit in ({"fail_at_s": 0.25}, {"timeout_s": 0.25}):
        assert lower_bound(a_trace(an_action(**limit)), a_cluster()).act_mean_s == 0.25


def test_crowd_that_is_cut_off_is_not_bound_by_its_area():
    crowd = [an_action(timeout_s=0.5)] * 8
    bound = lower_bound(a_trace(*crowd), a_cluster(cores=1))
    assert (bound.kind, bound.act_mean_s) == ("min-time", 0.5)


def test_action_that_never_fits_is_left_out():
    wide = an_action(parse_needs({"cpu": 9}), 50.0)
    unknown = an_action(parse_needs({"moon": 1}), 50.0)
    assert lower_bound(a_trace(an_action(), wide, unknown), a_cluster()).act_mean_s == 1.0
    assert lower_bound(a_trace(wide), a_cluster()).act_mean_s == 0.0


def test_closed_loop_is_bound_by_time_alone():
    trace = generate("coding", seed=1, batch=8, steps=2)
    bound = lower_bound(trace, cluster_for("coding", cores=1, node_cores=1))
    actions = [a for x in trace.trajectories for turn in x.turns for a in turn.actions]
    assert (bound.kind, bound.moldable_act_mean_s) == ("min-time", None)
    assert bound.act_mean_s == pytest.approx(sum(a.work_s for a in actions) / len(actions))


def test_two_steps_of_single_actions_are_a_closed_loop():
    first, second = a_trace(an_action(), an_action()).trajectories
    later = TraceTrajectory(trajectory="9", turns=second.turns, step=1)
    trace = Trace(name="t", train_s=0, trajectories=(first, later))
    assert lower_bound(trace, a_cluster(cores=1)).moldable_act_mean_s is None


def test_lab_bound_is_that_of_the_prototype():
    trace = generate("lab", seed=3, rho=0.9)
    bound = lower_bound(trace, cluster_for("lab"))
    assert bound.act_mean_s == pytest.approx(1.4056, rel=1e-3)
    assert bound.moldable_act_mean_s == pytest.approx(2.081, rel=0.005)


def test_critical_path_is_the_longest_life_without_waiting():
    turns = (
        TraceTurn(think_s=2.0, actions=(an_action(work_s=3.0), an_action(work_s=4.0))),
        TraceTurn(think_s=5.0),
    )
    long = TraceTrajectory(trajectory="a", turns=turns, arrive_s=1.0, job="x", step=4)
    short = TraceTrajectory(trajectory="b", turns=turns[:1], job="x", step=4)
    other = TraceTrajectory(trajectory="c", turns=turns[1:], job="y", step=4)
    trace = Trace(name="t", train_s=0, trajectories=(long, short, other))
    assert critical_path_s(trace, a_cluster()) == {("x", 4): 15.0, ("y", 4): 5.0}
