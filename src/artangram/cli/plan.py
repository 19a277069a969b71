"""`artangram plan`: the smallest cluster on which a trace meets its goals, per policy.

`artangram plan affinity` is another question, in `plan_affinity`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct
from typer.core import TyperGroup

from artangram.cli.client import Token
from artangram.cli.fitting import FittingTrace
from artangram.cli.output import JsonFile, Printer, claim_picture, keep_apart, tell_ignored, writing
from artangram.cli.plan_affinity import affinity
from artangram.cli.replay import Replay
from artangram.cli.tracesource import TraceOption, trace_file
from artangram.config.clusterfile import blaming, read_cluster
from artangram.core.errors import BadInput
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.orchestrator.use import Prices, parse_prices
from artangram.sim.report import report
from artangram.sim.sizeplot import draw_sizes
from artangram.sim.sizing import (
    Goal,
    SizeResult,
    Sweep,
    impossible,
    judged,
    parse_goal,
    parse_sweep,
    searched,
    smallest,
)


class PolicyPlan(Struct, frozen=True, kw_only=True):
    """What one policy needs."""

    policy: str
    smallest: int | None
    """The smallest size that meets all goals; `None` if no size of the sweep does."""
    sizes: tuple[SizeResult, ...]


class SizePlan(Struct, frozen=True, kw_only=True):
    """What `--json` writes."""

    sweep: str
    goals: tuple[str, ...]
    step_bound_s: float
    """Mean step that no policy can beat on the largest size."""
    act_bound_s: float
    policies: tuple[PolicyPlan, ...]


def sizes(
    cluster: Annotated[Path, typer.Option(help="The cluster (YAML) to vary.", show_default=False)],
    trace: TraceOption,
    sweep: Annotated[
        str, typer.Option(help="What to vary, as in cpu.cores=32..512.", show_default=False)
    ],
    slo: Annotated[
        list[str],
        typer.Option(help="A goal, as in step<600; of step, act, p99, wait. May be repeated."),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policies to compare, as for `simulate`. Default: that of the file."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(help="What a unit costs, as in cpu=0.04: cpu, memory, gpu, slot, per hour."),
    ] = None,
    estimates: Annotated[
        str, typer.Option(help="What the scheduler knows, as for `simulate`.")
    ] = "learned",
    token: Token = None,
    json: JsonFile = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw times and cost over size (.svg or .png).")
    ] = None,
) -> None:
    """Find the smallest cluster on which a trace meets its goals, per policy.

    Every size is simulated with the scheduler that runs live. Of the smallest size that is named,
    the next smaller one was simulated, too, and misses a goal. Only the number that `--sweep` names
    is varied: `cpu.nodes` takes memory along, `cpu.cores` does not.
    """
    output = Printer(json)
    keep_apart({"the cluster": cluster, "the trace": trace, "--json": json, "--plot": plot})
    wanted, goals, prices = parse_sweep(sweep), [*map(parse_goal, slo)], parse_prices(price or ())
    if plot is not None:
        claim_picture(plot)
    described = read_cluster(cluster)
    with blaming(cluster, always=True):
        spec = described.simulated()
    names = policy or [described.policy]
    with blaming(None if policy else cluster):
        for name in names:
            policy_named(name)
    wanted.sized(spec, wanted.high)
    tell_ignored(output.console, cluster, described.ignored_in_simulation(), verb="plan")
    with trace_file(trace, token, output) as path:
        search = _Search(path, spec, wanted, goals, prices, estimates, output)
        _report(search, names, plot=plot, output=output, sweep=sweep)


def _report(
    search: "_Search", names: Sequence[str], *, plot: Path | None, output: Printer, sweep: str
) -> None:
    """Search for every policy; print, draw and write what was found."""
    (step_s, act_s), sizes, goals = search.bounds(), search.sweep, search.goals
    is_priced = search.prices != Prices()
    found = [search.of(name) for name in names]
    for results in found:
        _show(output, sizes, results, is_priced=is_priced)
    if plot is not None:
        bounds = {"step": step_s, "act": act_s}
        with writing(plot):
            draw_sizes(found, plot, sweep=sizes, goals=goals, bounds=bounds, is_priced=is_priced)
        output.console.print(f"Picture: {plot}", soft_wrap=True)
    output.json(
        SizePlan(
            sweep=sweep,
            goals=tuple(map(str, goals)),
            step_bound_s=step_s,
            act_bound_s=act_s,
            policies=tuple(map(_planned, found)),
        )
    )


class _Search:
    """Simulates sizes of one cluster."""

    def __init__(
        self,
        trace: Path,
        cluster: ClusterSpec,
        sweep: Sweep,
        goals: Sequence[Goal],
        prices: Prices,
        estimates: str,
        output: Printer,
    ) -> None:
        self._trace = trace
        self._cluster = cluster
        self.sweep = sweep
        self.goals = goals
        self.prices = prices
        self._estimates = estimates
        self._output = output

    def bounds(self) -> tuple[float, float]:
        """A mean step and a mean ACT that no policy can beat on the largest size."""
        largest = self.sweep.sized(self._cluster, self.sweep.high)
        source = FittingTrace(self._trace, largest)  # A trace that fits nowhere is said here.
        bound, paths = Replay(lambda: source, largest, estimates=self._estimates).bounds()
        return sum(paths.values()) / max(1, len(paths)), bound.act_mean_s

    def of(self, policy: str) -> list[SizeResult]:
        with self._output.progress() as progress:
            task = progress.add_task(policy)

            def simulate(size: int) -> SizeResult:
                progress.update(task, description=f"{policy}: {self.sweep} = {size}")
                return self._simulated(policy, size)

            return searched(simulate, self.sweep)

    def _simulated(self, policy: str, size: int) -> SizeResult:
        cluster = self.sweep.sized(self._cluster, size)
        try:
            source = FittingTrace(self._trace, cluster)
            runs = Replay(lambda: source, cluster, estimates=self._estimates)
            simulation = runs.simulation(policy)
            simulation.run()
        except BadInput as error:
            return impossible(policy, size, f"the trace cannot run on it: {error}")
        told = report(
            simulation, policy=policy, trace=source, cluster=cluster, estimates=self._estimates
        )
        return judged(told, size=size, goals=self.goals, cluster=cluster, prices=self.prices)


def _planned(results: list[SizeResult]) -> PolicyPlan:
    best = smallest(results)
    return PolicyPlan(
        policy=results[0].policy,
        smallest=None if best is None else best.size,
        sizes=tuple(results),
    )


def _show(output: Printer, sweep: Sweep, results: list[SizeResult], *, is_priced: bool) -> None:
    policy, best = results[0].policy, smallest(results)
    rows = [
        [
            str(one.size),
            *("-" if x is None else f"{x:.2f}" for x in (one.step_s, one.act_s, one.p99_s)),
            *([f"{one.cost:.4f}"] if is_priced else []),
            "all goals" if one.meets else one.misses,
        ]
        for one in results
    ]
    columns = [str(sweep), "step", "ACT", "p99", *(["cost"] if is_priced else []), "meets"]
    output.table(policy, columns, rows)
    if best is None:
        told = f"{policy}: no size up to {sweep.high} is enough."
    else:
        below = next((one for one in reversed(results) if one.size < best.size), None)
        smaller = (
            "; it is the least that was allowed"
            if below is None
            else (f"; {below.size} is not enough: {below.misses}")
        )
        told = f"{policy}: the smallest that is enough has {sweep} = {best.size}{smaller}."
    output.console.print(told, soft_wrap=True)


class _SizesFirst(TyperGroup):
    """`artangram plan --cluster ...` is `artangram plan sizes --cluster ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if is_named else ["sizes", *args])


plan = typer.Typer(
    cls=_SizesFirst,
    help="Find the smallest cluster on which a trace meets its goals, per policy.",
)
plan.command("sizes")(sizes)
plan.command("affinity")(affinity)
