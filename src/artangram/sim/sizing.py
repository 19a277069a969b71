"""How large a cluster has to be: one size is varied, every size is simulated, goals decide.

- Sizes double from the least to the most; between the largest that misses a goal and the smallest
  that meets all, the search halves until the two are neighbours. More is taken to be no worse; the
  sizes that were tried are all reported, so that one can see it.
- Nothing is read or printed here: `simulate` gives the report of one size, or why it cannot run.
"""

import re
from collections.abc import Callable, Sequence
from math import inf
from operator import attrgetter

from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, FunctionsSpec, GpuSpec
from artangram.orchestrator.use import Prices
from artangram.sim.report import SimReport

MOST_SIZE = 1 << 20
_SWEEP = re.compile(r"(?P<pool>[^.=]+)\.(?P<field>\w+)=(?P<low>\d+)\.\.(?P<high>\d+)")
_GOAL = re.compile(r"(?P<measure>\w+)\s*<=?\s*(?P<most>[\d.eE+-]+)")

MEASURES: dict[str, tuple[str, Callable[[SimReport], float]]] = {
    "step": ("mean step, s", lambda report: _mean_step(report)),
    "act": ("mean ACT, s", lambda report: report.act.mean_s),
    "p99": ("ACT p99, s", lambda report: report.act.p99_s),
    "wait": ("mean wait, s", lambda report: report.act.wait_mean_s),
}


class Sweep(Struct, frozen=True, kw_only=True):
    """One number of one pool, from `low` to `high`."""

    pool: Resource
    field: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.pool}.{self.field}"

    def sized(self, cluster: ClusterSpec, size: int) -> ClusterSpec:
        """`cluster` of that size. Raises `BadInput` if it has no such number."""
        spec = cluster.pools.get(self.pool)
        if spec is None:
            known = ", ".join(sorted(cluster.pools))
            raise BadInput(
                "sweep", f"the cluster has no pool {self.pool!r}", f"name one of: {known}"
            )
        if not isinstance(getattr(spec, self.field, None), int):
            fields = (f for f in structs.fields(spec) if isinstance(getattr(spec, f.name), int))
            known = ", ".join(f.name for f in fields)
            problem = f"{self.pool} has no whole number {self.field!r}"
            raise BadInput("sweep", problem, f"name one of: {known}")
        pools = dict(cluster.pools)
        pools[self.pool] = structs.replace(spec, **{self.field: size})
        return structs.replace(cluster, pools=pools)


def parse_sweep(text: str) -> Sweep:
    """A sweep as `cpu.cores=32..512`. Raises `BadInput`."""
    found, fix = _SWEEP.fullmatch(text.strip()), "write it as cpu.cores=32..512"
    if found is None:
        raise BadInput("sweep", f"{text!r} is not a range of sizes", fix)
    low, high = int(found["low"]), int(found["high"])
    if not 1 <= low <= high <= MOST_SIZE:
        raise BadInput("sweep", f"{text!r} has no sizes from 1 to {MOST_SIZE}", fix)
    return Sweep(pool=Resource(found["pool"]), field=found["field"], low=low, high=high)


class Goal(Struct, frozen=True, kw_only=True):
    """A measure of a report stays below `most`."""

    measure: str
    most: float

    def __str__(self) -> str:
        return f"{MEASURES[self.measure][0]} below {self.most:g}"


def parse_goal(text: str) -> Goal:
    """A goal as `step<600`. Raises `BadInput`."""
    found = _GOAL.fullmatch(text.strip())
    measures = ", ".join(MEASURES)
    if found is None or found["measure"] not in MEASURES:
        raise BadInput("slo", f"{text!r} is not a goal", f"write one as step<600; of: {measures}")
    try:
        most = float(found["most"])
    except ValueError:
        most = inf
    if not 0 < most < inf:
        raise BadInput("slo", f"{text!r} has no limit in seconds", "write it as step<600")
    return Goal(measure=found["measure"], most=most)


class SizeResult(Struct, frozen=True, kw_only=True):
    """One policy on one size."""

    policy: str
    size: int
    step_s: float | None
    act_s: float | None
    p99_s: float | None
    cost: float
    """Of the whole trace at the given prices: the cluster for as long as it took."""
    meets: bool
    misses: str = ""
    """Which goal it misses, and by how much; empty if it meets all."""


def judged(
    report: SimReport,
    *,
    size: int,
    goals: Sequence[Goal],
    cluster: ClusterSpec,
    prices: Prices,
) -> SizeResult:
    """What the report of one size means for the goals."""
    missed = [
        f"{MEASURES[goal.measure][0]} is {value:.3g}, not below {goal.most:g}"
        for goal in goals
        if (value := MEASURES[goal.measure][1](report)) >= goal.most
    ]
    if report.refused:
        missed.insert(0, f"{report.refused} actions can never run")
    if report.given_up:
        missed.insert(0, f"{report.given_up} actions were given up")
    return SizeResult(
        policy=report.policy,
        size=size,
        step_s=_mean_step(report) if report.steps else None,
        act_s=report.act.mean_s,
        p99_s=report.act.p99_s,
        cost=cost(cluster, report.simulated_s, prices),
        meets=not missed,
        misses="; ".join(missed),
    )


def impossible(policy: str, size: int, why: str) -> SizeResult:
    """A size on which the trace cannot run."""
    return SizeResult(
        policy=policy,
        size=size,
        step_s=None,
        act_s=None,
        p99_s=None,
        cost=0.0,
        meets=False,
        misses=why,
    )


def cost(cluster: ClusterSpec, lasted_s: float, prices: Prices) -> float:
    """The whole cluster for that long, whether it is used or not."""
    cores = memory_mb = devices = slots = 0
    for spec in cluster.pools.values():
        match spec:
            case CpuSpec():
                cores += spec.nodes * spec.cores
                memory_mb += spec.nodes * spec.memory_mb
            case GpuSpec():
                devices += spec.nodes * spec.devices
            case FunctionsSpec():
                slots += spec.ceiling
    return (
        prices.reserved(
            core_s=cores * lasted_s, memory_mb_s=memory_mb * lasted_s, device_s=devices * lasted_s
        )
        + prices.slot * slots * lasted_s / 3600.0
    )


def searched(simulate: Callable[[int], SizeResult], sweep: Sweep) -> list[SizeResult]:
    """The sizes that were tried, ascending; the first that meets all goals is the smallest."""
    tried: dict[int, SizeResult] = {}

    def meets(size: int) -> bool:
        if size not in tried:
            tried[size] = simulate(size)
        return tried[size].meets

    size = sweep.low
    misses: int | None = None
    while not meets(size):
        misses = size
        if size == sweep.high:
            return sorted(tried.values(), key=attrgetter("size"))
        size = min(2 * size, sweep.high)
    enough = size
    while misses is not None and enough - misses > 1:
        middle = (misses + enough) // 2
        if meets(middle):
            enough = middle
        else:
            misses = middle
    return sorted(tried.values(), key=attrgetter("size"))


def smallest(results: Sequence[SizeResult]) -> SizeResult | None:
    """The smallest size that meets all goals; `None` if none was tried that does."""
    return next((one for one in results if one.meets), None)


def _mean_step(report: SimReport) -> float:
    return sum(step.duration_s for step in report.steps) / max(1, len(report.steps))
