"""Do tests time out because cores are scarce? A limit that an idle node meets, under load.

Coding agents whose final tests have 150 seconds each. The longest takes 150 seconds on 16 idle
cores, so a test that is stopped is stopped because of load: a wrong reward.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Annotated

import typer
from msgspec import Struct, structs

from artangram.cli.output import Printer
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.observe.trace import Trace, TraceAction, TraceSource, TraceTurn
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.families import cluster_for, stream
from artangram_bench.result import PROCESSES, Origin, seeds_of

LIMIT_S = 150.0
CORES = (512, 128, 96, 80)
POLICIES = ("elastic", "overcommit")
PENALTY = 0.1


class TimeoutRow(Struct, frozen=True, kw_only=True):
    cores: int
    policy: str
    tests: int
    timed_out: int


def timeouts(
    seeds: Annotated[str, typer.Option(help="Seeds, with commas; each makes one trace.")] = "0,1",
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each job.")] = 3,
    processes: Annotated[int, typer.Option(min=1, help="Simulations at once.")] = PROCESSES,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Tests that time out although an idle node would finish them, on 80 to 512 cores."""
    output, origin = Printer(json), Origin()
    numbers, settings = seeds_of(seeds), [(cores, name) for cores in CORES for name in POLICIES]
    calls = [(seed, steps, *setting) for setting in settings for seed in numbers]
    rows = []
    with output.progress() as progress, ProcessPoolExecutor(processes) as pool:
        task = progress.add_task("timeouts")
        found = pool.map(_run, *zip(*calls, strict=True))
        for cores, name in settings:
            progress.update(task, description=f"{cores} cores, {name}")
            rows.append(_summed([next(found) for _ in numbers]))
    output.table(
        f"Coding agents whose tests have {LIMIT_S:g} s, enough for each of them on 16 idle cores",
        ["cores", "policy", "tests", "timed out"],
        [[str(r.cores), r.policy, str(r.tests), str(r.timed_out)] for r in rows],
    )
    output.json(origin.result("Do tests time out because cores are scarce?", rows))


def _run(seed: int, steps: int, cores: int, name: str) -> TimeoutRow:
    """One simulation; durations are learned."""
    cluster = cluster_for("coding", cores=cores, squeeze_penalty=PENALTY)
    simulation = Simulation(_trace(seed, steps), cluster, policy_named(name), beliefs("learned", 0))
    simulation.run()
    tally = simulation.tally
    return TimeoutRow(
        cores=cores,
        policy=name,
        tests=len(tally.by_kind["swe/test"].act),
        timed_out=tally.failed,
    )


@cache
def _trace(seed: int, steps: int) -> Trace:
    return limited(stream("coding", seed=seed, steps=steps))


def limited(trace: TraceSource) -> Trace:
    """The same trace, and no test may run for longer than the limit."""
    trajectories = tuple(
        structs.replace(one, turns=tuple(map(_with_limits, one.turns)))
        for one in trace.trajectories
    )
    return Trace(name=trace.name, train_s=trace.train_s, trajectories=trajectories)


def _with_limits(turn: TraceTurn) -> TraceTurn:
    return structs.replace(turn, actions=tuple(map(_with_limit, turn.actions)))


def _with_limit(action: TraceAction) -> TraceAction:
    return structs.replace(action, timeout_s=LIMIT_S) if action.reward else action


def _summed(runs: list[TimeoutRow]) -> TimeoutRow:
    return structs.replace(
        runs[0],
        tests=sum(run.tests for run in runs),
        timed_out=sum(run.timed_out for run in runs),
    )
