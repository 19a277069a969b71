"""Does it scale? A day of a million actions on 1,280 cores, in bounded memory."""

import resource
from time import process_time
from typing import Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, stream
from artangram.sim.report import report
from artangram_bench.result import Origin


class Day(Struct, frozen=True, kw_only=True):
    actions: int
    simulated_s: float
    cpu_s: float
    peak_memory_mb: float
    act_mean_s: float
    decision_us: float


def day(
    steps: Annotated[int, typer.Option(help="Steps of each of the three jobs.")] = 82,
    policy: Annotated[str, typer.Option(help="Any policy of `simulate`.")] = "elastic",
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Simulate a day of about 1,000,000 actions on 1,280 cores and say what it cost."""
    output, origin = Printer(json), Origin()
    trace = stream("coding", seed=0, steps=steps)
    cluster = cluster_for("coding", cores=1280, squeeze_penalty=0.1)
    simulation = Simulation(trace, cluster, policy_named(policy), beliefs("learned", 0))
    with output.progress() as progress:
        task = progress.add_task("a day")
        began = process_time()
        simulation.run(
            lambda done, now: progress.update(
                task, description=f"{done} actions, {now / 3600:.1f} h simulated"
            )
        )
    one = report(simulation, policy=policy, trace=trace, cluster=cluster)
    figures = Day(
        actions=one.actions,
        simulated_s=one.simulated_s,
        cpu_s=process_time() - began,
        peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        act_mean_s=one.act.mean_s,
        decision_us=one.decision_us.mean,
    )
    output.table(
        f"{figures.simulated_s / 3600:.1f} hours under {policy}",
        ["actions", "CPU s", "peak MB", "mean ACT s", "decision us"],
        [
            [
                f"{figures.actions}",
                f"{figures.cpu_s:.0f}",
                f"{figures.peak_memory_mb:.0f}",
                f"{figures.act_mean_s:.2f}",
                f"{figures.decision_us:.0f}",
            ]
        ],
    )
    output.json(origin.result("Does a day of a million actions fit?", figures))
