"""Generated workloads have the figures they promise, and are the same every time."""

from collections import Counter
from itertools import pairwise
from statistics import mean

import pytest

from artangram.config.clusterfile import read_cluster, write_cluster
from artangram.core.errors import BadInput
from artangram.core.scheduling.cluster import CpuSpec
from artangram.observe.trace import Trace, TraceAction, TraceTrajectory, read_trace, write_trace
from artangram.sim.families import FAMILIES, cluster_for, generate, lab_traces, stream

SMALL: dict[str, dict[str, object]] = {
    "lab": {"n": 50},
    "coding": {"tasks": 2, "batch": 4, "steps": 2},
    "deepsearch": {"batch": 8, "steps": 2},
    "mopd": {"batch": 8, "steps": 2},
    "mixed": {"coding_batch": 2, "search_batch": 2, "mopd_batch": 4, "steps": 2},
}


def time_s(action: TraceAction, *, most: int = 1 << 20) -> float:
    """How long it runs on as many units as it can use, up to `most`."""
    needs = action.needs
    if needs.elastic is None or needs.speedup is None:
        return action.work_s
    widths = needs.of(needs.elastic)
    return action.work_s / needs.speedup.speed(
        max(w for w in widths if w <= most or w == widths[0])
    )


def all_actions(trace: Trace) -> list[TraceAction]:
    return [a for x in trace.trajectories for turn in x.turns for a in turn.actions]


def life_s(trajectory: TraceTrajectory, *, most: int = 1 << 20) -> tuple[float, float]:
    """Think time and action time."""
    think = sum(turn.think_s for turn in trajectory.turns)
    return think, sum(time_s(a, most=most) for turn in trajectory.turns for a in turn.actions)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_seeds_give_equal_traces_and_others_do_not(family):
    one = generate(family, seed=1, **SMALL[family])
    assert generate(family, seed=1, **SMALL[family]) == one
    assert generate(family, seed=2, **SMALL[family]).trajectories != one.trajectories


@pytest.mark.parametrize("family", FAMILIES)
def test_generated_trace_can_be_written_and_read(family, tmp_path):
    trace = generate(family, seed=3, **SMALL[family])
    write_trace(tmp_path / "t.jsonl", stream(family, seed=3, **SMALL[family]))
    assert read_trace(tmp_path / "t.jsonl") == trace


@pytest.mark.parametrize("family", FAMILIES)
def test_cluster_of_a_family_has_all_its_actions_need(family):
    cluster = cluster_for(family)
    for action in all_actions(generate(family, seed=1, **SMALL[family])):
        for resource, amounts in action.needs.amounts:
            assert resource in cluster.pools
            if isinstance(pool := cluster.pools[resource], CpuSpec):
                assert amounts[0] <= pool.cores
        if action.needs.service is not None:
            service = cluster.services[action.needs.service]
            assert set(action.needs.of(service.pool)) <= set(service.degrees)


def test_few_needs_serve_all_actions_of_a_trace():
    actions = all_actions(generate("coding", seed=1, steps=1))
    assert len({id(action.needs) for action in actions}) < 50 < len(actions) / 50


@pytest.mark.parametrize(
    ("family", "changes", "field"),
    [
        ("codng", {}, "family"),
        ("coding", {"preset": "papr"}, "preset"),
        ("coding", {"bach": 3}, "bach"),
        ("coding", {"batch": 0}, "batch"),
        ("coding", {"batch": "many"}, "batch"),
        ("lab", {"burst": 1.5}, "burst"),
        ("lab", {"rho": 0}, "rho"),
        ("lab", {"rho": 1e-320}, "rho"),
        ("lab", {"tail": 1e308}, "tail"),
        ("coding", {"test_cores": 1 << 21}, "test_cores"),
        ("coding", {"think_sigma": 400}, "think_sigma"),
        ("deepsearch", {"train_s": "inf"}, "train_s"),
    ],
)
def test_bad_parameter_is_named(family, changes, field):
    with pytest.raises(BadInput) as caught:
        generate(family, seed=1, **changes)
    assert caught.value.field == field


@pytest.mark.parametrize("family", ["coding", "lab", "mixed"])
def test_squeezing_never_costs_all_of_the_speed(family):
    with pytest.raises(BadInput, match="squeeze_penalty"):
        cluster_for(family, squeeze_penalty=1)


@pytest.mark.parametrize("family", ["coding", "lab", "mixed"])
def test_a_cluster_has_no_more_cores_than_its_file_may_say(family):
    with pytest.raises(BadInput, match="cores: expected `int` <= 1048576"):
        cluster_for(family, cores=1 << 21)


def test_wild_draws_are_still_times(tmp_path):
    wild = {"think_median_s": 1e9, "think_sigma": 10, "longest_s": 1e6, "tool_sigma": 10}
    trace = generate("coding", seed=1, tasks=1, batch=3, steps=1, **wild)
    write_trace(tmp_path / "wild.jsonl", trace)
    assert read_trace(tmp_path / "wild.jsonl") == trace


def test_parameters_may_be_text_from_a_command_line():
    assert stream("coding", seed=1, batch="7", build_share="0.5").params.build_share == 0.5


def test_cluster_cores_are_split_into_equal_nodes():
    pool = cluster_for("coding", cores=1024).pools["cpu"]
    assert (pool.nodes, pool.cores, pool.numa) == (4, 256, 2)
    assert cluster_for("coding", cores=96).pools["cpu"].nodes == 1
    with pytest.raises(BadInput, match="cores: 1023 do not make 4 equal nodes"):
        cluster_for("coding", cores=1023)


def test_lab_has_fifteen_traces_of_three_thousand_actions_each_on_its_own():
    assert len(set(lab_traces())) == 15
    trace = generate("lab", seed=1)
    assert len(trace.trajectories) == 3000
    assert all(len(x.turns) == 1 and x.memory_mb == 0 for x in trace.trajectories)
    arrivals = [x.arrive_s for x in trace.trajectories]
    assert arrivals == sorted(arrivals)


@pytest.mark.parametrize("rho", [0.4, 0.9])
def test_lab_offers_the_load_it_is_asked_for(rho):
    trace = generate("lab", seed=1, rho=rho)
    window_s = trace.trajectories[-1].arrive_s
    offered = sum(a.work_s for a in all_actions(trace)) / (64 * window_s)
    assert offered == pytest.approx(rho, rel=0.02)


def test_lab_bursts_crowd_the_arrivals():
    def busiest_second(burst: float) -> int:
        trace = generate("lab", seed=1, rho=0.6, burst=burst)
        return max(Counter(int(x.arrive_s) for x in trace.trajectories).values())

    assert busiest_second(0.6) > 2 * busiest_second(0.0)


def test_lab_mix_is_mostly_short_commands_and_some_elastic_tests():
    actions = all_actions(generate("lab", seed=1, n=20_000))
    tests = [a for a in actions if a.kind == "lab/test"]
    assert len(tests) / len(actions) == pytest.approx(0.06, abs=0.005)
    assert all(a.needs.of("cpu") == (1, 2, 4, 8, 16) and a.needs.elastic == "cpu" for a in tests)
    assert sorted(a.work_s for a in tests)[len(tests) // 2] == pytest.approx(45, rel=0.15)


def test_coding_reaches_the_figures_of_the_closed_loop():
    fastest, longest = [], []
    for seed in range(3):
        trace = generate("coding", seed=seed)
        fastest.append(mean(time_s(a) for a in all_actions(trace)))
        for step in range(3):
            longest.append(max(sum(life_s(x)) for x in trace.trajectories if x.step == step))
    assert mean(fastest) == pytest.approx(1.35, rel=0.03)
    assert mean(longest) == pytest.approx(911, rel=0.07)


def test_coding_steps_have_three_tasks_of_256_trajectories():
    trace = generate("coding", seed=1)
    assert Counter((x.step, x.task) for x in trace.trajectories) == {
        (step, f"swe-{task}"): 256 for step in range(3) for task in range(3)
    }


def test_coding_ends_every_trajectory_with_its_only_reward():
    for trajectory in generate("coding", seed=1, **SMALL["coding"]).trajectories:
        *before, last = [a for turn in trajectory.turns for a in turn.actions]
        assert last.reward
        assert last.needs.of("cpu")[-1] == 16
        assert not any(action.reward for action in before)


def test_coding_paper_preset_is_active_47_percent_of_its_life():
    trace = generate("coding", seed=1, preset="paper", steps=1)
    lives = [life_s(x, most=4) for x in trace.trajectories]
    active = sum(action for _, action in lives) / sum(map(sum, lives))
    assert active == pytest.approx(0.47, abs=0.02)
    assert mean(time_s(a) for a in all_actions(trace)) == pytest.approx(0.975, rel=0.05)
    assert {a.needs.of("cpu")[-1] for a in all_actions(trace) if a.reward} == {32}


def test_share_of_failing_actions_is_what_was_asked():
    actions = all_actions(generate("coding", seed=1, steps=1, fail_share=0.2))
    failing = [a for a in actions if a.fail_at_s is not None]
    assert len(failing) / len(actions) == pytest.approx(0.2, abs=0.02)
    assert all(a.fail_at_s <= a.work_s for a in failing)


def swing(trace: Trace) -> float:
    """Calls in the busiest second over calls per second in the longest pause of a step.

    Every call is made as early as it can be: the demand, whatever the cluster.
    """
    calls = []
    for trajectory in trace.trajectories:
        now = trajectory.arrive_s
        for turn in trajectory.turns:
            now += turn.think_s
            for action in turn.actions:
                calls.append(now)
                now += time_s(action)
    longest_s = max(after - before for before, after in pairwise(sorted(calls)))
    return max(Counter(map(int, calls)).values()) * longest_s


@pytest.mark.parametrize("family", ["coding", "deepsearch", "mopd", "mixed"])
@pytest.mark.parametrize("seed", [1, 2])
def test_demand_swings_over_three_orders_of_magnitude(family, seed):
    assert swing(generate(family, seed=seed, steps=1)) > 1000


def test_even_demand_does_not_swing():
    assert swing(generate("lab", seed=1)) < 100


def test_deepsearch_calls_apis_about_ten_times_and_ends_with_the_judge():
    trace = generate("deepsearch", seed=1, steps=1)
    kinds = Counter(a.kind for a in all_actions(trace))
    calls = len(all_actions(trace)) - kinds["search/judge"]
    assert kinds["search/judge"] == len(trace.trajectories) == 512
    assert calls / 512 == pytest.approx(12, abs=1)  # the median is 10
    assert kinds["search/browse"] / calls == pytest.approx(0.3, abs=0.03)
    assert kinds["search/both"] / calls == pytest.approx(0.1, abs=0.02)
    for trajectory in trace.trajectories:
        (judge,) = trajectory.turns[-1].actions
        assert (judge.kind, judge.needs.service, judge.reward) == ("search/judge", "judge", True)


def test_search_call_may_need_two_quotas():
    needs = {a.needs.amounts for a in all_actions(generate("deepsearch", seed=1, steps=1))}
    assert (("search", (1,)), ("browse", (1,))) in needs


@pytest.mark.parametrize(
    ("duty", "services", "calls"), [(0.02, 10, 2), (0.04, 10, 2), (0.2, 10, 2), (0.04, 3, 9)]
)
def test_mopd_keeps_a_static_deployment_busy_for_its_duty(duty, services, calls):
    busy = []
    for seed in range(3):
        settings = {"steps": 1, "duty": duty, "services": services, "calls": calls}
        trace = generate("mopd", seed=seed, **settings)
        step_s = max(sum(life_s(x, most=4)) for x in trace.trajectories) + trace.train_s
        busy.append(sum(time_s(a, most=4) for a in all_actions(trace)) / (services * step_s))
    assert mean(busy) == pytest.approx(duty, rel=0.15)


def test_mopd_calls_take_as_long_as_the_paper_measured():
    calls = all_actions(generate("mopd", seed=1, steps=1))
    assert mean(time_s(a, most=4) for a in calls) == pytest.approx(0.62, rel=0.03)


def test_mopd_asks_different_teachers_unevenly_and_changes_its_favourites():
    trace = generate("mopd", seed=1)
    favourites = []
    for step in range(3):
        ours = [x for x in trace.trajectories if x.step == step]
        asked = [[a.needs.service for a in x.turns[0].actions] for x in ours]
        assert all(len(set(pair)) == 2 for pair in asked)
        often = Counter(service for pair in asked for service in pair).most_common()
        assert len(often) == 10
        assert often[0][1] > 4 * often[-1][1]
        favourites.append([service for service, _ in often])
    assert favourites[0] != favourites[1] != favourites[2]


@pytest.mark.parametrize("family", ["deepsearch", "mopd", "mixed"])
@pytest.mark.parametrize("gpus", [2, 4, 7, 12, 20])
def test_a_cluster_of_few_devices_can_be_written(family, gpus, tmp_path):
    cluster = cluster_for(family, gpus=gpus)
    write_cluster(tmp_path / "c.yaml", cluster)
    assert read_cluster(tmp_path / "c.yaml").simulated() == cluster


def test_a_model_that_no_node_holds_is_refused():
    with pytest.raises(BadInput, match="gpus: a model that needs 2 does not fit on 1; give 2"):
        cluster_for("deepsearch", gpus=1)
    assert cluster_for("mopd", gpus=1).services["teacher-0"].degrees == (1,)


def test_mopd_cluster_has_one_pool_of_the_size_asked_for():
    for gpus, shape in {40: (5, 8), 20: (5, 4), 11: (1, 11), 8: (1, 8)}.items():
        pool = cluster_for("mopd", gpus=gpus).pools["gpu"]
        assert (pool.nodes, pool.devices) == shape
    with pytest.raises(BadInput, match="gpus: 21 do not make equal nodes"):
        cluster_for("mopd", gpus=21)


def test_mixed_has_every_family_as_a_job_in_every_step():
    trace = generate("mixed", seed=1, **SMALL["mixed"])
    assert Counter((x.step, x.job.partition("-")[0]) for x in trace.trajectories) == {
        (step, job): count
        for step in range(2)
        for job, count in {"coding": 6, "deepsearch": 2, "mopd": 4}.items()
    }
