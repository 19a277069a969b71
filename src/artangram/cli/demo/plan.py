"""`artangram demo --plan`: the scheduler against its peers on one small workload, in a minute."""

from pathlib import Path

from artangram.cli.output import Printer
from artangram.cli.replay import Replay, replay
from artangram.sim.families import cluster_for, stream

PODS = ["pods:1", "pods:0.5/4"]
POLICIES = ["elastic", "overcommit", "tangram", "fixed:4", *PODS]


def compare_policies(out: Path, output: Printer) -> None:
    """Two training runs of coding agents share 32 cores: which actions wait, and for how long?"""
    console = output.console
    console.print(
        "Two training runs of coding agents (64 trajectories each, two steps) share one node of "
        "32 cores. Tools run for fractions of a second, test suites for up to minutes on 1 to 16 "
        "cores. Everything is simulated by the scheduler that also runs live.\n",
        soft_wrap=True,
    )
    made = stream("coding", seed=0, tasks=2, batch=64, steps=2)
    cluster = cluster_for("coding", cores=32, squeeze_penalty=0.1)
    reports = replay(Replay(lambda: made, cluster), POLICIES, output=output, plot=out / "plan.svg")
    act_s = {r.policy: r.act.mean_s for r in reports}
    pods = min(PODS, key=lambda name: act_s[name])
    ratios = {name: act_s[name] / act_s["elastic"] for name in (pods, "tangram", "overcommit")}
    console.print(
        f"\nBeside elastic, actions take {ratios[pods]:.2f}x as long with the best pods ({pods}), "
        f"{ratios['tangram']:.2f}x under ARL-Tangram's algorithm, {ratios['overcommit']:.2f}x when "
        "the kernel shares the cores.",
        soft_wrap=True,
    )
