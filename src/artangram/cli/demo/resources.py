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
from artangram.core.scheduling.policies.catalog import policy as policy_named
from artangram.observe.acts import KindAct, acts_by_kind
from artangram.observe.journaltrace import trace_of
from artangram.observe.recording import owner_of, recorded
from artangram.observe.trace import Trace
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


class Resources(Struct, frozen=True, kw_only=True):
    kinds: tuple[KindAct, ...]
    cores: int
    """That the run had."""
    ours: Static
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
        ours=ours,
        static=tuple(_grown(trace, spec, ours.act_mean_s)),
    )


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
