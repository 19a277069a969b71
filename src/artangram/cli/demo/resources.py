"""What a run asked of its cluster, from the journal: how long actions took, what pods cost.

Static provisioning reserves a core for every sandbox as long as it lives. The simulator does the
recorded trace again under that policy, on more and more cores, until it is as fast as the run was.
"""

from collections.abc import Iterator
from math import inf
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from artangram.core.ids import Resource
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.events import TrajectoryClosed, TrajectoryOpened
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.observe.acts import KindAct, acts_by_kind
from artangram.observe.journaltrace import trace_of
from artangram.observe.recording import owner_of, recorded
from artangram.observe.trace import Trace, TraceTrajectory
from artangram.orchestrator.recovery import Setup
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.report import report

CPU = Resource("cpu")
MOST_CORES = 512
CLOSE = 1.05
"""Within this factor two times are the same."""


class Static(Struct, frozen=True, kw_only=True):
    """The recorded sandbox actions under a policy on `cores` cores."""

    policy: str
    cores: int
    act_mean_s: float


class SandboxUse(Struct, frozen=True, kw_only=True):
    """How much of a core the sandboxes of a run used."""

    most_open: int
    """Open at the same time."""
    lived_s: float
    """How long one was open, on average."""
    used_s: float
    """Core-seconds of one, on average."""


class Resources(Struct, frozen=True, kw_only=True):
    kinds: tuple[KindAct, ...]
    cores: int
    """That the run had."""
    sandboxes: SandboxUse
    ours: Static
    kernel: Static
    """The kernel shares the cores among all that runs; nothing waits for one."""
    static: tuple[Static, ...]
    """A core per sandbox, on growing numbers of cores, until it is as fast or more do not help."""

    @property
    def is_reached(self) -> bool:
        """Whether pods became as fast as the run was."""
        return self.static[-1].act_mean_s <= CLOSE * self.ours.act_mean_s


def resources_of(state_dir: Path) -> Resources:
    """Read the journal and replay its trace."""
    setup = msgspec.json.decode(owner_of(state_dir), type=Setup)
    trace = trace_of(recorded(state_dir), name="demo")
    spec = setup.cluster.pools[CPU]
    assert isinstance(spec, CpuSpec)
    ours = _replayed(trace, spec, "elastic", spec.cores)
    return Resources(
        kinds=tuple(acts_by_kind(state_dir)),
        cores=spec.cores,
        sandboxes=_sandbox_use(state_dir, trace),
        ours=ours,
        kernel=_replayed(trace, spec, "overcommit", spec.cores),
        static=tuple(_grown(trace, spec, ours.act_mean_s)),
    )


def _sandbox_use(state_dir: Path, trace: Trace) -> SandboxUse:
    """Of trajectories that have ended; those that ran nothing on cores had no sandbox."""
    ran = {life.trajectory: _core_s(life) for life in trace.trajectories}
    ran = {name: core_s for name, core_s in ran.items() if core_s}
    opened: dict[str, float] = {}
    lived: list[float] = []
    most = 0
    for entry in recorded(state_dir):
        for event in entry.events:
            if isinstance(event, TrajectoryOpened) and event.trajectory in ran:
                opened[event.trajectory] = entry.at
            elif isinstance(event, TrajectoryClosed) and event.trajectory in opened:
                lived.append(entry.at - opened.pop(event.trajectory))
        most = max(most, len(opened))
    return SandboxUse(
        most_open=most,
        lived_s=sum(lived) / max(1, len(lived)),
        used_s=sum(ran.values()) / max(1, len(ran)),
    )


def _core_s(life: TraceTrajectory) -> float:
    """What its actions used of one core."""
    actions = (action for turn in life.turns for action in turn.actions)
    return sum(action.work_s for action in actions if action.needs.of(CPU))


def _grown(trace: Trace, spec: CpuSpec, goal_s: float) -> Iterator[Static]:
    cores, before_s = spec.cores, inf
    while cores <= MOST_CORES:
        found = _replayed(trace, spec, "pods:1", cores)
        yield found
        if found.act_mean_s <= CLOSE * goal_s or found.act_mean_s > before_s / CLOSE:
            return
        cores, before_s = 2 * cores, found.act_mean_s


def _replayed(trace: Trace, spec: CpuSpec, policy: str, cores: int) -> Static:
    # Memory is not what is compared: as much per core as there was.
    grown = structs.replace(spec, cores=cores, memory_mb=spec.memory_mb * cores // spec.cores)
    cluster = ClusterSpec(pools={CPU: grown})
    simulation = Simulation(trace, cluster, policy_named(policy), beliefs("exact", 0))
    simulation.run()
    found = report(simulation, policy=policy, trace=trace, cluster=cluster, estimates="exact")
    return Static(policy=policy, cores=cores, act_mean_s=found.act.mean_s)
