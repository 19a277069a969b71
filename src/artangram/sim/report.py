"""What a simulation found out, as a record whose JSON is the contract of `artangram simulate`.

Times are over every action that was not refused: a refused one never had a completion time.
Utilisation is of every pool that has a capacity, over the whole simulated time.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, GpuSpec, PoolSpec
from artangram.observe.trace import TraceSource
from artangram.sim.bounds import LowerBound
from artangram.sim.driver import Simulation
from artangram.sim.machine import capacity_of
from artangram.sim.tally import SimTally, Times

US = 1e6


class ActTimes(Struct, frozen=True, kw_only=True):
    """ACT = wait + overhead + run, over some actions, in seconds."""

    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float
    wait_mean_s: float
    overhead_mean_s: float
    run_mean_s: float

    @classmethod
    def of(cls, times: Iterable[Times], **more: Any) -> Self:
        groups = list(times)
        act = _joined(group.act for group in groups)
        p50, p99 = np.quantile(act, [0.5, 0.99]) if len(act) else (0.0, 0.0)
        return cls(
            mean_s=_mean(act),
            p50_s=float(p50),
            p99_s=float(p99),
            max_s=float(act.max(initial=0.0)),
            wait_mean_s=_mean(_joined(group.wait for group in groups)),
            overhead_mean_s=_mean(_joined(group.overhead for group in groups)),
            run_mean_s=_mean(_joined(group.run for group in groups)),
            **more,
        )


class KindTimes(ActTimes, frozen=True, kw_only=True):
    """The same for the actions of one kind."""

    count: int


class StepReport(Struct, frozen=True, kw_only=True):
    step: int
    duration_s: float
    job: JobId
    critical_path_s: float | None
    """What the step would last if nothing ever waited; `None` if it was not computed."""


class DecisionCost(Struct, frozen=True, kw_only=True):
    """What deciding cost, in microseconds of this machine."""

    mean: float
    """All decision time over all actions."""
    p99: float
    """Of single decisions."""


class PoolSummary(Struct, frozen=True, kw_only=True):
    kind: str
    nodes: int | None
    units: int | None
    """Cores, devices, calls or slots that can be in use at once; `None` if nothing limits them."""


class SimReport(Struct, frozen=True, kw_only=True):
    """One policy on one trace and one cluster."""

    policy: str
    trace: str
    estimates: str
    cluster: dict[Resource, PoolSummary]
    actions: int
    act: ActTimes
    by_kind: dict[str, KindTimes]
    steps: tuple[StepReport, ...]
    failed: int
    """Actions that neither succeeded nor were cancelled, the refused and given up among them."""
    refused: int
    given_up: int
    """Actions that the policy ended before they were done. It may fall below the bounds so."""
    utilisation: dict[Resource, float]
    lower_bound: LowerBound | None
    decision_us: DecisionCost
    resizes: int
    restores: int
    simulated_s: float


def report(
    simulation: Simulation,
    *,
    policy: str,
    trace: TraceSource,
    cluster: ClusterSpec,
    estimates: str = "exact",
    bound: LowerBound | None = None,
    critical_paths: Mapping[tuple[JobId, int], float] | None = None,
) -> SimReport:
    """The report of a simulation that has run; `critical_paths` are those of `critical_path_s`."""
    tally, use = simulation.tally, simulation.machine.use
    return SimReport(
        policy=policy,
        trace=trace.name,
        estimates=estimates,
        cluster={name: _summary(spec) for name, spec in cluster.pools.items()},
        actions=tally.num_actions(),
        act=ActTimes.of(tally.by_kind.values()),
        by_kind={
            kind: KindTimes.of([times], count=len(times.act))
            for kind, times in sorted(tally.by_kind.items())
        },
        steps=_steps(tally, critical_paths or {}),
        failed=tally.failed,
        refused=tally.refused,
        given_up=tally.given_up,
        utilisation={name: line.mean_share(simulation.now) for name, line in use.items()},
        lower_bound=bound,
        decision_us=_decision_cost(tally),
        resizes=tally.resizes,
        restores=tally.restores,
        simulated_s=simulation.now,
    )


def _steps(
    tally: SimTally, critical_paths: Mapping[tuple[JobId, int], float]
) -> tuple[StepReport, ...]:
    return tuple(
        StepReport(
            step=step,
            duration_s=duration_s,
            job=job,
            critical_path_s=critical_paths.get((job, step)),
        )
        for job, step, duration_s in tally.steps
    )


def _decision_cost(tally: SimTally) -> DecisionCost:
    seconds = np.asarray(tally.decisions_s)
    return DecisionCost(
        mean=US * float(seconds.sum()) / max(1, tally.num_actions()),
        p99=US * float(np.quantile(seconds, 0.99)) if len(seconds) else 0.0,
    )


def _summary(spec: PoolSpec) -> PoolSummary:
    nodes = spec.nodes if isinstance(spec, CpuSpec | GpuSpec) else None
    kind = str(spec.__struct_config__.tag)
    return PoolSummary(kind=kind, nodes=nodes, units=capacity_of(spec))


def _joined(columns: Iterable[Any]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *(np.asarray(column) for column in columns)])


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0
