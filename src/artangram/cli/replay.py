"""Simulations side by side: the same trace under several policies, as a table and a plot."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.progress import Progress, TaskID

from artangram.cli.output import Printer, claim_picture, writing
from artangram.core.ids import JobId
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.observe.trace import TraceSource
from artangram.sim.beliefs import beliefs
from artangram.sim.bounds import LowerBound, critical_path_s, lower_bound
from artangram.sim.driver import Simulation
from artangram.sim.plot import Curves, curves, plot
from artangram.sim.report import SimReport, report


class Replay:
    """One trace on one cluster, to be run as often as there are policies.

    `source` is asked anew for every pass, so a trace of any length is streamed, never kept.
    """

    def __init__(
        self,
        source: Callable[[], TraceSource],
        cluster: ClusterSpec,
        *,
        estimates: str = "learned",
        seed: int = 0,
    ) -> None:
        self.source = source
        self.cluster = cluster
        self.estimates = estimates
        self.seed = seed
        beliefs(estimates, seed)  # A wrong name is said before the first long run, not after.

    def bounds(self) -> tuple[LowerBound, dict[tuple[JobId, int], float]]:
        """What no policy can beat: a mean ACT, and a duration for each step of each job."""
        bound = lower_bound(self.source(), self.cluster)
        return bound, critical_path_s(self.source(), self.cluster)

    def simulation(self, name: str) -> Simulation:
        told = beliefs(self.estimates, self.seed)
        return Simulation(self.source(), self.cluster, policy_named(name), told)


def replay(
    runs: Replay, policies: Sequence[str], *, output: Printer, plot: Path | None = None
) -> list[SimReport]:
    """Run every policy, print the comparison, write it as JSON and draw it if asked."""
    for name in policies:
        policy_named(name)
    if plot is not None:
        claim_picture(plot)
    reports, drawn = [], []
    with output.progress() as progress:
        task = progress.add_task("lower bound")
        bound, paths = runs.bounds()
        for name in policies:
            simulation = runs.simulation(name)
            simulation.run(partial(_show, progress, task, name))
            reports.append(
                report(
                    simulation,
                    policy=name,
                    trace=runs.source(),
                    cluster=runs.cluster,
                    estimates=runs.estimates,
                    bound=bound,
                    critical_paths=paths,
                )
            )
            drawn.append(curves(simulation, name))
    print_reports(reports, output=output)
    output.json(reports[0] if len(reports) == 1 else reports)
    if plot is not None:
        _draw(drawn, plot, bound=bound, title=reports[0].trace, output=output)
    return reports


def _show(progress: Progress, task: TaskID, name: str, done: int, now: float) -> None:
    progress.update(task, description=f"{name}: {done} actions, {now:.0f} s simulated")


def print_reports(reports: Sequence[SimReport], *, output: Printer) -> None:
    """The comparison as a table, the bounds below it."""
    first = reports[0]
    columns = ["policy", "mean", "p99", "wait", "over", "run", "step", "failed"]
    pools = list(first.utilisation)
    rows = [
        [
            r.policy,
            *(f"{x:.2f}" for x in (r.act.mean_s, r.act.p99_s)),
            *(f"{x:.2f}" for x in (r.act.wait_mean_s, r.act.overhead_mean_s, r.act.run_mean_s)),
            f"{_mean_step(r):.0f}",
            str(r.failed),
            *(f"{100 * r.utilisation[pool]:.0f} %" for pool in pools),
            f"{r.decision_us.mean:.0f} us",
        ]
        for r in reports
    ]
    title = f"{first.trace}: action completion time of {first.actions} actions, in seconds"
    output.table(title, [*columns, *pools, "decide"], rows)
    for line in (*_left_undone(reports), *_bounds(first)):
        output.console.print(line, soft_wrap=True)


def _left_undone(reports: Sequence[SimReport]) -> Iterator[str]:
    """Policies that did not run every action, and may so be faster than the bounds."""
    for one in reports:
        if one.refused:
            yield (
                f"{one.policy} can never run {one.refused} of them on this cluster: they failed at "
                "once and have no times; bounds do not hold for it."
            )
        if one.given_up:
            yield (
                f"{one.policy} gave up {one.given_up} of them before they were done: "
                "bounds do not hold for it."
            )


def _bounds(one: SimReport) -> Iterator[str]:
    if one.lower_bound is not None:
        kind, act = one.lower_bound.kind, one.lower_bound.act_mean_s
        yield f"No policy has a mean ACT below {act:.2f} s ({kind} bound)."
    paths = [s.critical_path_s for s in one.steps if s.critical_path_s is not None]
    if paths:
        yield f"No policy has a mean step below {sum(paths) / len(paths):.0f} s (critical path)."


def _mean_step(one: SimReport) -> float:
    return sum(step.duration_s for step in one.steps) / max(1, len(one.steps))


def _draw(
    drawn: Sequence[Curves], path: Path, *, bound: LowerBound, title: str, output: Printer
) -> None:
    with writing(path):
        plot(drawn, path, lower_bound_s=bound.act_mean_s, title=title)
    output.console.print(f"Picture: {path}", soft_wrap=True)
