"""`artangram simulate`: replay a trace on a cluster that may not exist, under some policies."""

from pathlib import Path
from typing import Annotated

import typer

from artangram.cli.client import Token
from artangram.cli.fitting import FittingTrace
from artangram.cli.output import JsonFile, Printer, keep_apart, tell_ignored
from artangram.cli.replay import Replay, replay
from artangram.cli.tracesource import TraceOption, trace_file
from artangram.config.clusterfile import blaming, read_cluster
from artangram.core.scheduling.policies.catalog import policy as policy_named


def simulate(
    cluster: Annotated[
        Path,
        typer.Option(help="The cluster (YAML); the same file as for `up`.", show_default=False),
    ],
    trace: TraceOption,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="elastic, tangram, tangram:elastic, fcfs, fixed:N, pods:N, pods:REQUEST/LIMIT, "
            "overcommit, static:DEGREE, load-per-call, unmanaged. May be repeated to compare. "
            "Default: that of the cluster file."
        ),
    ] = None,
    estimates: Annotated[
        str,
        typer.Option(
            help="What the scheduler knows: learned (kind, task and problem, as live), "
            "learned:kinds, noisy:SIGMA, or exact (every duration: the ceiling)."
        ),
    ] = "learned",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise in the estimates.")] = 0,
    token: Token = None,
    json: JsonFile = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the comparison into this file (.svg or .png).")
    ] = None,
) -> None:
    """Replay a trace on a cluster and report action completion times, steps and utilisation.

    The scheduler is the one that runs live. Every report carries a lower bound on the mean ACT that
    no policy can beat, and for each step the critical path, its least possible duration. The
    cluster file is the one that `artangram up` takes.
    """
    output = Printer(json)
    keep_apart({"the cluster": cluster, "the trace": trace, "--json": json, "--plot": plot})
    described = read_cluster(cluster)
    with blaming(cluster, always=True):
        spec = described.simulated()
    with blaming(None if policy else cluster):
        policy_named(described.policy)
    tell_ignored(output.console, cluster, described.ignored_in_simulation(), verb="simulate")
    with trace_file(trace, token, output) as path:
        source = FittingTrace(path, spec)
        runs = Replay(lambda: source, spec, estimates=estimates, seed=seed)
        replay(runs, policy or [described.policy], output=output, plot=plot)
