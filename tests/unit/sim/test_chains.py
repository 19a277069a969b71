"""No schedule of chains on devices beats their bound: checked against all of tiny ones.

Shown to catch planted bugs: a fee for one action more than are behind, chains whose actions count
as much as whole ones, and devices of all blocks counted for every degree.
"""

from itertools import permutations, product
from math import inf
from random import Random

import pytest

from artangram.core.scheduling.cluster import ClusterSpec, GpuSpec, ServiceSpec
from artangram.core.scheduling.needs import parse_needs
from artangram.core.scheduling.policies.catalog import policy
from artangram.observe.trace import Trace, TraceAction, TraceTrajectory, TraceTurn
from artangram.sim.beliefs import beliefs
from artangram.sim.bounds import chain_bound, lower_bound
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, generate

OVERHEAD_S = 0.02
SERIAL = 0.2

Placed = list[tuple[float, float, int, int]]
"""Begin, end, block and units of every action so far."""


def a_call(work_s: float, service: str = "a", **fields: float) -> TraceAction:
    needs = parse_needs(
        {"gpu": {"choices": [1, 2]}}, elastic="gpu", speedup={"amdahl": SERIAL}, service=service
    )
    return TraceAction(kind="call", needs=needs, work_s=work_s, **fields)


def a_trajectory(name: int, *calls: TraceAction, think_s: float = 0.0, **fields: object):
    turns = (TraceTurn(think_s=think_s, actions=calls),)
    return TraceTrajectory(**{"trajectory": str(name), "turns": turns} | fields)


def a_trace(*trajectories: TraceTrajectory) -> Trace:
    return Trace(name="t", train_s=1.0, trajectories=trajectories)


def a_cluster(devices: int, **service: object) -> ClusterSpec:
    gpu = GpuSpec(nodes=1, devices=devices, memory_mb=10_000, overhead_s=OVERHEAD_S)
    spec = {"pool": "gpu", "weights_mb": 1000, "degrees": (1, 2)} | service
    return ClusterSpec(pools={"gpu": gpu}, services={"a": ServiceSpec(**spec)})


def a_tiny_trace(rng: Random) -> Trace:
    """Five calls at most, in three trajectories that are in the way of each other."""
    return a_trace(
        *(
            a_trajectory(
                n,
                *(
                    a_call(rng.lognormvariate(0.5, 0.8))
                    for _ in range(rng.randint(1, min(n + 1, 2)))
                ),
                think_s=rng.choice([0.0, rng.uniform(0, 2)]),
            )
            for n in range(3)
        )
    )


def best_mean_act(trace: Trace, blocks: list[int]) -> float:
    """Of every order, block and degree, each action placed as early as it fits; no restores."""
    chains = [x.turns[0] for x in trace.trajectories]
    steps = [n for n, turn in enumerate(chains) for _ in turn.actions]
    places = [(b, k) for b, size in enumerate(blocks) for k in (1, 2) if k <= size]
    best = inf
    for order in set(permutations(steps)):
        for chosen in product(places, repeat=len(steps)):
            best = min(best, total_act(chains, order, chosen, blocks))
    return best / len(steps)


def total_act(chains: list[TraceTurn], order: tuple, chosen: tuple, blocks: list[int]) -> float:
    placed: Placed = []
    ends = [turn.think_s for turn in chains]
    left = [list(turn.actions) for turn in chains]
    for n, (block, units) in zip(order, chosen, strict=True):
        work_s = left[n].pop(0).work_s
        time_s = OVERHEAD_S + work_s * (SERIAL + (1 - SERIAL) / units)
        begin = earliest(placed, ends[n], time_s, (block, units), blocks[block])
        ends[n] = begin + time_s
        placed.append((begin, ends[n], block, units))
    return sum(ends) - sum(turn.think_s for turn in chains)


def earliest(
    placed: Placed, after: float, time_s: float, place: tuple[int, int], size: int
) -> float:
    block, units = place
    here = [p for p in placed if p[2] == block]
    for begin in sorted({after, *(p[1] for p in here if p[1] > after)}):
        points = [begin, *(p[0] for p in here if begin < p[0] < begin + time_s)]
        used = (sum(p[3] for p in here if p[0] <= at < p[1]) for at in points)
        if all(units + units_used <= size for units_used in used):
            return begin
    raise AssertionError("after the last end it fits")


@pytest.mark.parametrize(("devices", "blocks"), [(1, [1]), (2, [2]), (3, [2, 1])])
@pytest.mark.parametrize("seed", range(4))
def test_no_schedule_of_tiny_chains_beats_their_bound(seed, devices, blocks):
    trace = a_tiny_trace(Random(seed))
    bound, best = chain_bound(trace, a_cluster(devices)), best_mean_act(trace, blocks)
    assert 0.6 * best < bound <= best * (1 + 1e-9)


def simulated(trace: Trace, cluster: ClusterSpec, name: str = "elastic") -> float:
    simulation = Simulation(trace, cluster, policy(name), beliefs("exact", 0))
    simulation.run()
    acts = [act for times in simulation.tally.by_kind.values() for act in times.act]
    return sum(acts) / len(acts)


@pytest.mark.parametrize("gpus", [8, 11])
def test_elastic_does_not_beat_the_bound_of_teachers(gpus):
    trace = generate("mopd", seed=1, batch=60, steps=2, duty=0.05)
    cluster = cluster_for("mopd", gpus=gpus)
    bound = lower_bound(trace, cluster)
    assert bound.kind == "chains"
    assert bound.act_mean_s <= simulated(trace, cluster)


@pytest.mark.parametrize("count", [1, 8])
def test_a_deployment_that_is_wider_than_was_asked_for_does_not_beat_the_bound(count):
    """It serves every call at its own degree, here four, where two is the most of a call."""
    trace = a_trace(*(a_trajectory(n, a_call(4.0), a_call(2.0)) for n in range(count)))
    cluster = a_cluster(4, degrees=(1, 2, 4))
    assert lower_bound(trace, cluster).act_mean_s <= simulated(trace, cluster, "static")


def test_chain_alone_takes_its_fastest_times():
    trace = a_trace(a_trajectory(0, a_call(2.0), a_call(1.0), think_s=3.0))
    fastest = [OVERHEAD_S + work_s * (SERIAL + (1 - SERIAL) / 2) for work_s in (2.0, 1.0)]
    assert chain_bound(trace, a_cluster(2)) == pytest.approx(sum(fastest) / 2)


def test_steps_do_not_crowd_each_other():
    one = [a_trajectory(n, a_call(2.0), step=0) for n in range(3)]
    two = [a_trajectory(n + 3, a_call(2.0), step=1) for n in range(3)]
    cluster = a_cluster(1)
    assert chain_bound(a_trace(*one, *two), cluster) == chain_bound(a_trace(*one), cluster)


@pytest.mark.parametrize(
    ("trajectories", "service"),
    [
        ([a_trajectory(0, a_call(1.0), job="x"), a_trajectory(1, a_call(1.0), job="y")], {}),
        ([a_trajectory(0, a_call(1.0), turns=(TraceTurn(actions=(a_call(1.0),)),) * 2)], {}),
        ([a_trajectory(0, a_call(1.0))], {"batch": 2}),
        ([a_trajectory(0, a_call(1.0))], {"degrees": (4,)}),
        ([a_trajectory(0)], {}),
    ],
    ids=["two jobs", "two turns", "a batch", "nowhere to run", "no action"],
)
def test_what_is_no_chain_has_no_such_bound(trajectories, service):
    assert chain_bound(a_trace(*trajectories), a_cluster(2, **service)) is None


def test_wide_calls_gain_nothing_from_a_block_they_do_not_fit():
    trace = a_trace(*(a_trajectory(n, a_call(2.0)) for n in range(4)))
    bounds = [chain_bound(trace, a_cluster(devices, degrees=(2,))) for devices in (2, 3)]
    assert bounds[1] == pytest.approx(bounds[0], rel=0.02)
