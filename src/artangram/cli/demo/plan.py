"""`artangram demo --plan`: the scheduler against its peers on one small workload, in a minute."""

from pathlib import Path

from artangram.cli.output import Output
from artangram.cli.replay import Replay, replay
from artangram.sim.families import cluster_for, stream

POLICIES = ["pods:1", "pods:0.5/4", "overcommit", "fixed:4", "tangram", "elastic"]


def compare_policies(out: Path) -> None:
    """Two training runs of coding agents share 32 cores: who waits, and for how long?"""
    output = Output(str(out / "plan.json"))
    console = output.console
    console.print(
        "Two training runs of coding agents (64 trajectories each, two steps) share one node of "
        "32 cores. Tools run for fractions of a second, test suites for up to minutes on 1 to 16 "
        "cores. Everything is simulated by the scheduler that also runs live.\n"
    )
    made = stream("coding", seed=0, tasks=2, batch=64, steps=2)
    cluster = cluster_for("coding", cores=32, squeeze_penalty=0.1)
    reports = replay(Replay(lambda: made, cluster), POLICIES, output=output, plot=out / "plan.svg")
    output.json(reports)
    by_name = {r.policy: r.act.mean_s for r in reports}
    ours = by_name["elastic"]
    pods, kernel, paper = (by_name[p] / ours for p in ("pods:1", "overcommit", "tangram"))
    console.print(
        f"\nMean ACT of elastic: {pods:.1f}x better than a reserved core per trajectory, "
        f"{paper:.2f}x better than ARL-Tangram's algorithm, {kernel:.2f}x better than letting the "
        "kernel share the cores."
    )
