"""A node whose kernel shares its cores: by hand, and against the plain version."""

from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_support import CPU, PlainNode, all_times, simulated

from artangram.core.ids import ActionId
from artangram.core.scheduling.speedup import Amdahl, Power, Speedup, Table
from artangram.sim import machine
from artangram.sim.families import cluster_for, generate
from artangram.sim.sharednode import Contender, SharedNode
from artangram.sim.timeline import Timeline

WIDE = 1 << 40
NODES = [SharedNode, PlainNode]


def a_contender(name: str, work_s: float = 1.0, **fields: object) -> Contender:
    usual = {
        "action_id": ActionId(name),
        "weight_milli": 1000,
        "limit_milli": WIDE,
        "workers": 1,
        "curve": None,
        "work_s": work_s,
        "begins_at": 0.0,
        "cut_at": inf,
    }
    return Contender(**usual | fields)


def a_node(kind=SharedNode, *, cores: int = 1, penalty: float = 0.0, use: Timeline | None = None):
    return kind(cores, penalty, use or Timeline(cores))


def ends(node) -> dict[str, float]:
    """When each contender ends if nothing else happens."""
    found = {}
    while (at := node.next_at()) < inf:
        found |= {action_id: at for action_id, _ in node.ended(at)}
    return found


def ends_of(*contenders: Contender, **fields: object) -> dict[str, float]:
    node = a_node(**fields)
    for contender in contenders:
        node.start(contender, 0.0)
    return ends(node)


both = pytest.mark.parametrize("kind", NODES)


@both
def test_two_on_one_core_take_turns(kind):
    found = ends_of(a_contender("a", 1.0), a_contender("b", 2.0), kind=kind)
    # Half a core each until 2; then b has one second left and the core to itself.
    assert found == pytest.approx({"a": 2.0, "b": 3.0})


@both
def test_with_room_for_all_nobody_is_slower(kind):
    found = ends_of(a_contender("a", 1.0), a_contender("b", 2.0), kind=kind, cores=2, penalty=0.1)
    assert found == pytest.approx({"a": 1.0, "b": 2.0})


@both
def test_squeezing_costs_the_penalty(kind):
    pair = [a_contender(name, 0.9, workers=2) for name in "ab"]
    assert ends_of(*pair, kind=kind, cores=2, penalty=0.1) == pytest.approx({"a": 2.0, "b": 2.0})


@both
def test_a_single_process_has_none_to_be_squeezed_with(kind):
    found = ends_of(a_contender("a", 1.0), a_contender("b", 1.0), kind=kind, penalty=0.1)
    assert found == pytest.approx({"a": 2.0, "b": 2.0})


@both
def test_weights_decide_who_gets_more(kind):
    heavy = a_contender("b", 0.75, weight_milli=3000)
    assert ends_of(a_contender("a", 1.0), heavy, kind=kind) == pytest.approx({"b": 1.0, "a": 1.75})


@both
def test_a_limit_below_the_workers_squeezes_even_alone(kind):
    one = a_contender("a", 1.0, limit_milli=1000, workers=2)
    assert ends_of(one, kind=kind, cores=8, penalty=0.5) == pytest.approx({"a": 4.0})


@both
def test_a_rigid_one_needs_all_its_cores_for_full_speed(kind):
    pair = [a_contender(name, 1.0, workers=2) for name in "ab"]
    assert ends_of(*pair, kind=kind, cores=3) == pytest.approx({"a": 4 / 3, "b": 4 / 3})


@both
@pytest.mark.parametrize(
    ("curve", "at_one_and_a_half"),
    [
        (Amdahl(0.2), 1 / (0.2 + 0.8 / 1.5)),
        (Power(0.5), 1.5**0.5),
        (Table(((1, 1.0), (2, 1.8), (4, 3.0))), 1.4),
        (Table(((2, 1.8), (4, 3.0))), 1.8),
    ],
)
def test_a_curve_holds_between_whole_cores(kind, curve: Speedup, at_one_and_a_half: float):
    pair = [a_contender(name, 1.0, workers=4, curve=curve) for name in "ab"]
    end = 1 / (at_one_and_a_half * 0.9)
    assert ends_of(*pair, kind=kind, cores=3, penalty=0.1) == pytest.approx({"a": end, "b": end})


@both
@pytest.mark.parametrize(
    ("curve", "on_one"),
    [
        (Amdahl(0.5), 1.0),
        (Power(0.5), 1.0),
        (Table(((1, 1.0), (4, 3.0))), 1.0),
        (Table(((2, 0.5), (4, 3.0))), 0.5),
    ],
)
def test_below_one_core_a_share_is_a_share_of_its_time(kind, curve: Speedup, on_one: float):
    four = [a_contender(name, 1.0, workers=4, curve=curve) for name in "abcd"]
    found = ends_of(*four, kind=kind, cores=1)
    assert found == pytest.approx(dict.fromkeys("abcd", 4.0 / on_one))


@both
def test_what_is_still_being_prepared_does_not_contend(kind):
    use = Timeline(1)
    late = a_contender("b", 1.0, begins_at=1.0)
    found = ends_of(a_contender("a", 1.5), late, kind=kind, use=use)
    # a has the core to itself until 1, then both have half of it.
    assert found == pytest.approx({"a": 2.0, "b": 2.5})
    assert use.unit_s == pytest.approx(2.5)


@both
def test_only_running_contenders_use_cores(kind):
    use = Timeline(4)
    node = a_node(kind, cores=4, use=use)
    node.start(a_contender("a", 1.0, begins_at=3.0), 0.0)
    node.start(a_contender("b", 3.0, limit_milli=500), 0.0)
    ends(node)
    assert use.unit_s == pytest.approx(1.0 + 3.0)


@both
def test_one_can_be_stopped_while_it_runs_or_is_prepared(kind):
    node = a_node(kind)
    node.start(a_contender("a", 1.0), 0.0)
    node.start(a_contender("b", 1.0), 0.0)
    node.start(a_contender("c", 1.0, begins_at=1.5), 0.0)
    node.stop(ActionId("c"), 0.5)
    node.stop(ActionId("b"), 1.0)
    assert ends(node) == pytest.approx({"a": 1.5})


@both
def test_a_contender_is_cut_off_at_its_time_but_not_when_it_is_done_by_then(kind):
    node = a_node(kind)
    node.start(a_contender("a", 1.0, cut_at=2.0), 0.0)
    node.start(a_contender("b", 5.0, cut_at=1.5), 0.0)
    node.start(a_contender("c", 0.5, cut_at=1.5), 0.0)
    found = {}
    while (at := node.next_at()) < inf:
        found |= {name: (at, is_cut) for name, is_cut in node.ended(at)}
    # A third each until 1.5: c is just done, b is cut, a has half a second left.
    assert {name: at for name, (at, _) in found.items()} == pytest.approx(
        {"a": 2.0, "b": 1.5, "c": 1.5}
    )
    assert {name for name, (_, is_cut) in found.items() if is_cut} == {"b"}


@both
def test_no_work_at_all_ends_at_once(kind):
    node = a_node(kind)
    node.start(a_contender("a", 0.0, begins_at=2.0), 2.0)
    assert node.next_at() == 2.0
    assert node.ended(2.0) == [("a", False)]
    assert node.next_at() == inf


@both
def test_every_change_is_a_new_version(kind):
    node, versions = a_node(kind), set()
    node.start(a_contender("a", 1.0), 0.0)
    versions.add(node.version)
    node.start(a_contender("b", 1.0), 0.0)
    versions.add(node.version)
    node.stop(ActionId("b"), 0.5)
    versions.add(node.version)
    node.ended(1.0)
    versions.add(node.version)
    assert len(versions) == 4


CURVES = [None, Amdahl(0.0), Amdahl(0.1), Amdahl(1.0), Power(0.7), Power(0.4)]
CURVES += [Table(((1, 1.0), (4, 3.1), (8, 5.0))), Table(((2, 1.5), (3, 2.0)))]


def a_random_contender(rng: Random, name: str, now: float) -> Contender:
    begins_at = now + rng.choice([0.0, 0.0, rng.uniform(0, 3)])
    return a_contender(
        name,
        rng.choice([0.0, 2.0, rng.lognormvariate(0, 1.5)]),
        weight_milli=rng.choice([1000, 1000, 500, rng.randint(1, 4000)]),
        limit_milli=rng.choice([WIDE, 4000, 500, rng.randint(1, 9000)]),
        workers=rng.choice([1, 1, 2, 8]),
        curve=rng.choice(CURVES),
        begins_at=begins_at,
        cut_at=rng.choice([inf, inf, begins_at + rng.uniform(0, 20)]),
    )


def lived(kind: type, seed: int) -> tuple[dict[str, float], float]:
    """When each of many random contenders ended or was stopped, and the core seconds used."""
    rng = Random(seed)
    use = Timeline(4)
    node = a_node(kind, cores=rng.randint(1, 4), penalty=rng.choice([0.0, 0.1]), use=use)
    found: dict[str, float] = {}
    now, names = 0.0, []
    for index in range(rng.randint(1, 120)):
        now += rng.choice([0.0, rng.expovariate(3.0)])
        while (at := node.next_at()) <= now:
            found |= {action_id: at for action_id, _ in node.ended(at)}
        name = f"a{index}"
        node.start(a_random_contender(rng, name, now), now)
        names.append(name)
        unlucky = rng.choice(names)
        if rng.random() < 0.2 and unlucky not in found:
            node.stop(ActionId(unlucky), now)
            found[unlucky] = now
    return found | ends(node), use.unit_s


@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_any_life_of_a_node_is_that_of_the_plain_one(seed):
    fast, plain = lived(SharedNode, seed), lived(PlainNode, seed)
    assert fast[0] == pytest.approx(plain[0], rel=1e-9, abs=1e-9)
    assert fast[1] == pytest.approx(plain[1], rel=1e-9)


@pytest.mark.parametrize("policy", ["overcommit", "pods:0.5/4"])
def test_a_whole_simulation_is_the_same_with_plain_nodes(policy, monkeypatch):
    trace = generate("coding", seed=5, batch=24, steps=2, fail_share=0.1)
    cluster = cluster_for("coding", cores=24, node_cores=12, squeeze_penalty=0.1)
    fast = simulated(trace, cluster, policy)
    monkeypatch.setattr(machine, "SharedNode", PlainNode)
    plain = simulated(trace, cluster, policy)
    for name, column in all_times(plain).items():
        # As sets of times: who of two that end within a rounding error is told first is open.
        assert sorted(all_times(fast)[name]) == pytest.approx(sorted(column), rel=1e-9, abs=1e-9)
    assert fast.tally.failed == plain.tally.failed > 0
    assert fast.machine.use[CPU].unit_s == pytest.approx(plain.machine.use[CPU].unit_s, rel=1e-9)
