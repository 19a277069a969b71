"""The bench verbs of live runs compute what they say; the figures themselves are not tested."""

import random

import pytest

from artangram.core.ids import ActionId, JobId
from artangram.core.scheduling.action import ActionRecord, Outcome
from artangram.orchestrator.records import ActionResult
from artangram_bench.live_agents import Life, a_life, figures_of, summary
from artangram_bench.live_plans import DUTIES, plans
from artangram_bench.overhead import Added
from artangram_bench.sandbox import Goal, goals_of
from artangram_bench.sandboxtimes import Series


def a_series(name: str, *samples: float, unit: str = "ms") -> Series:
    return Series(name=name, unit=unit, samples=samples)


def goal(goals: list[Goal], what: str) -> Goal:
    return next(one for one in goals if one.what == what)


def test_ratios_are_of_one_interleaved_run() -> None:
    together = [a_series("bare subprocess.run", 2.0), a_series("ours", 3.0)]
    alone = (a_series("bare subprocess.run", 30.0), a_series("exec with a core at 10", 1.0))
    found = goal(goals_of(together, alone), "ours / bare subprocess.run")
    assert found.value == pytest.approx(1.5)
    assert found.is_met


def test_a_goal_says_what_the_floor_would_reach() -> None:
    """One that even the floor misses cannot be met by any sandbox."""
    alone = (a_series("exec with a core at 10", 1.0),)
    together = [a_series("podman exec", 120.0), a_series("the floor", 1.0), a_series("ours", 2.0)]
    rates = {"SWE-ReX execute": 400.0, "the floor": 3200.0, "ours": 1600.0}
    together += [a_series(f"{name}, 8 clients", rate, unit="/s") for name, rate in rates.items()]
    goals = goals_of(together, alone)
    once = goal(goals, "podman exec / ours")
    crowd = goal(goals, "ours / SWE-ReX execute per second, 8 clients")
    assert (once.value, once.limit, once.at_least) == (60.0, 120.0, 100)
    assert (crowd.value, crowd.limit, crowd.at_least) == (4.0, 8.0, 15)


def test_goal_without_its_peer_is_not_met() -> None:
    alone = (a_series("exec with a core at 10", 1.0),)
    found = goal(goals_of([a_series("ours", 3.0)], alone), "podman exec / ours")
    assert found.value is None
    assert not found.is_met


def test_exec_among_many_is_judged_by_the_bare_process_beside_it() -> None:
    alone = (
        a_series("exec with a core at 10", 4.0),
        a_series("bare subprocess.run at 10", 4.0),
        a_series("exec with a core at 40", 2.0),
        a_series("bare subprocess.run at 40", 1.0),
    )
    found = goal(goals_of([], alone), "exec with 40 sandboxes / with 10, each / bare")
    assert found.value == pytest.approx(2.0)
    assert not found.is_met


def a_result(
    submitted_at: float, started_at: float, ended_at: float, *, core_s: float, is_ok: bool = True
) -> ActionResult:
    record = ActionRecord(
        action_id=ActionId("a"),
        job=JobId("j"),
        task="swe",
        kind="swe/tool",
        trajectory=None,
        outcome=Outcome.SUCCEEDED if is_ok else Outcome.FAILED,
        reason="" if is_ok else "out of luck",
        submitted_at=submitted_at,
        started_at=started_at,
        began_at=started_at,
        ended_at=ended_at,
        attempts=1,
        units=1,
    )
    return ActionResult(record=record, core_s=core_s)


def a_short_life() -> Life:
    """Waits 2 s, acts 1 s, thinks 6 s, acts 1 s on two cores."""
    return a_life(
        [
            a_result(0.0, 2.0, 3.0, core_s=1.0),
            a_result(9.0, 9.0, 10.0, core_s=2.0, is_ok=False),
        ]
    )


def test_pod_reserves_its_core_also_while_it_thinks() -> None:
    row = summary("pods:1", [([a_short_life()], 10.0)])
    assert row.reserved_core_s == pytest.approx(8.0)


def test_others_reserve_what_their_actions_held() -> None:
    row = summary("elastic", [([a_short_life()], 10.0), ([a_short_life()], 20.0)])
    assert row.reserved_core_s == pytest.approx(3.0)
    assert row.makespan_s == pytest.approx(15.0)


def test_act_counts_the_wait_and_failures_are_told() -> None:
    row = summary("elastic", [([a_short_life()], 10.0)])
    assert (row.act_mean_s, row.act_p99_s, row.wait_mean_s) == pytest.approx((2.0, 3.0, 1.0))
    assert (row.failed, row.why_failed) == (1, "failed: out of luck")


def test_trajectory_is_active_while_something_runs() -> None:
    assert summary("elastic", [([a_short_life()], 10.0)]).active_share == pytest.approx(2 / 8)


def test_ratios_are_against_pods_and_missing_without_them() -> None:
    pods, ours = (summary(name, [([a_short_life()], 10.0)]) for name in ("pods:1", "elastic"))
    figures = figures_of(DUTIES["family"], [pods, ours])
    assert (figures.better, figures.reserved_share) == pytest.approx((1.0, 3 / 8))
    assert figures_of(DUTIES["family"], [ours]).better is None


def test_same_seed_gives_every_policy_the_same_trajectories() -> None:
    one, again, other = (
        plans(DUTIES["family"], count=8, turns=12.8, rng=random.Random(seed)) for seed in (7, 7, 8)
    )
    assert one == again
    assert one != other
    assert all(len(plan.thinks) == len(plan.tools) for plan in one)


def test_small_batch_has_the_turns_and_suites_of_a_large_one() -> None:
    rng = random.Random(1)
    batches = [plans(DUTIES["paper"], count=8, turns=12.8, rng=rng) for _ in range(20)]
    for batch in batches:
        # Half of them on each side of the medians, but for one that is rounded across.
        assert 3 <= sum(len(plan.tools) <= 12.8 for plan in batch) <= 5
        assert 3 <= sum(plan.tests <= 20 for plan in batch) <= 5


def test_idle_and_answer_are_added_per_action_before_the_median() -> None:
    added = Added(journal="memory", idle_ms=[1.0, 5.0, 2.0], answer_ms=[9.0, 0.0, 4.0])
    assert added.p50_ms() == pytest.approx(6.0)
