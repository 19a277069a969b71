"""How do the ratios of `artangram bench live` depend on thinking and on how many agents there are?

Claim: pods lose with thinking and with the number of trajectories; the duty decides by how much.
The plans of the live bench go through the simulator, on as many cores, with durations to be
learned. Python's start-up is added to every tool and suite; everything else is the plan.

    python benchmarks/experiments/live_sensitivity.py --seeds 8
"""

from __future__ import annotations

import argparse
import random
from statistics import mean

from artangram.core.ids import Resource, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.needs import parse_needs
from artangram.core.scheduling.policies.catalog import policy
from artangram.observe.trace import Trace, TraceAction, TraceTrajectory, TraceTurn
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.report import report
from artangram_bench.live_plans import DUTIES, TEST_S, Duty, Plan, plans

AMPLE = 64
"""Cores on which no action waits: a batch lasts as long as its longest trajectory."""
POLICIES = ("pods:1", "pods:0.5/4", "tangram", "overcommit", "elastic")
TRAJECTORIES = (4, 6, 8, 12, 16)
TURNS = 12.8
PYTHON_S, PYTEST_S = 0.025, 0.3
"""Until a tool or a suite begins with its work; a suite does that on one core."""
CREATE_S, OVERHEAD_S = 0.02, 0.005


def trajectory(plan: Plan, name: str, *, cores: int) -> TraceTrajectory:
    """The plan as the simulator takes it."""
    one_core = parse_needs({"cpu": 1})
    actions = [
        TraceAction(kind="swe/tool", needs=one_core, work_s=s + PYTHON_S) for s in plan.tools
    ]
    suite_s = plan.tests * TEST_S + PYTEST_S
    needs = parse_needs(
        {"cpu": {"min": 1, "max": cores}},
        elastic="cpu",
        speedup={"amdahl": round(PYTEST_S / suite_s, 2)},
    )
    actions.append(TraceAction(kind="swe/test", needs=needs, work_s=suite_s, reward=True))
    turns = [
        TraceTurn(think_s=think_s, actions=(action,))
        for think_s, action in zip((0.0, *plan.thinks), actions, strict=True)
    ]
    return TraceTrajectory(
        trajectory=TrajectoryId(name), turns=tuple(turns), task="swe", memory_mb=512
    )


def traces(duty: Duty, *, count: int, cores: int, seeds: int) -> list[Trace]:
    batches = (plans(duty, count=count, turns=TURNS, rng=random.Random(s)) for s in range(seeds))
    return [
        Trace(
            name=duty.name,
            train_s=0.0,
            trajectories=tuple(
                trajectory(plan, f"t{index}", cores=cores) for index, plan in enumerate(batch)
            ),
        )
        for batch in batches
    ]


def simulated(
    trace: Trace, name: str, *, cores: int, estimates: str = "learned"
) -> tuple[float, float]:
    """Mean ACT, and how long the whole batch took."""
    spec = CpuSpec(
        nodes=1, cores=cores, memory_mb=1 << 20, create_s=CREATE_S, overhead_s=OVERHEAD_S
    )
    cluster = ClusterSpec(pools={Resource("cpu"): spec})
    simulation = Simulation(trace, cluster, policy(name), beliefs(estimates, 0))
    simulation.run()
    found = report(simulation, policy=name, trace=trace, cluster=cluster)
    return found.act.mean_s, found.steps[0].duration_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    told = parser.parse_args()
    columns = [*(f"`{name}`" for name in POLICIES), "`elastic`, told", "`pods:1` / `elastic`"]
    print("| duty | trajectories (the longest) |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 2) + "|")
    for duty in DUTIES.values():
        for count in TRAJECTORIES:
            drawn = traces(duty, count=count, cores=told.cores, seeds=told.seeds)
            rows = {n: [simulated(one, n, cores=told.cores) for one in drawn] for n in POLICIES}
            acts = {name: mean(act_s for act_s, _ in runs) for name, runs in rows.items()}
            cells = [_cell(rows[name]) for name in POLICIES]
            exactly = [simulated(t, "elastic", cores=told.cores, estimates="exact") for t in drawn]
            cells.append(_cell(exactly))
            longest_s = mean(simulated(one, "elastic", cores=AMPLE)[1] for one in drawn)
            ratio = f"{acts['pods:1'] / acts['elastic']:.1f}"
            begin = f"| {duty.name} | {count} ({longest_s:.0f} s) |"
            print(begin, " | ".join(cells), f"| {ratio} |", flush=True)


def _cell(runs: list[tuple[float, float]]) -> str:
    return f"{mean(act_s for act_s, _ in runs):.2f} s ({mean(s for _, s in runs):.0f} s)"


if __name__ == "__main__":
    main()
