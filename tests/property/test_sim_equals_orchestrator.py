"""The two drivers of one scheduler: the same workload ends every action at the same instant.

The simulator carries decisions out in a loop of its own; the orchestrator does it through asyncio,
its ledger, its journal, the CPU manager and node agents. Only the physics is shared.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_run import (
    ANY_S,
    CPU,
    LINEAR,
    MIXED,
    NEEDS,
    Ended,
    LiveRun,
    a_mixed_cluster,
    on_virtual_time,
    traces,
    with_tokens,
)
from msgspec import structs

from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.action import ActionRecord
from artangram.core.scheduling.cluster import (
    CallWindow,
    ClusterSpec,
    CpuSpec,
    QuotaSpec,
)
from artangram.core.scheduling.policies.catalog import policy
from artangram.observe.journal import replay
from artangram.observe.trace import Trace
from artangram.orchestrator.recovery import Setup
from artangram.sim.beliefs import beliefs
from artangram.sim.driver import Simulation
from artangram.sim.tally import SimTally


class Records(SimTally):
    """A tally that keeps every record."""

    def __init__(self) -> None:
        super().__init__()
        self.records: Ended = {}

    def record(self, record: ActionRecord) -> None:
        assert record.action_id not in self.records
        self.records[record.action_id] = record


def simulated(trace: Trace, setup: Setup, believed: str) -> Ended:
    tally = Records()
    simulation = Simulation(trace, setup.cluster, policy(setup.policy), beliefs(believed, 0))
    simulation.tally = tally
    simulation.run()
    return tally.records


def assert_same(trace: Trace, setup: Setup, believed: str) -> None:
    expected = simulated(trace, setup, believed)
    live = LiveRun(trace, setup, believed)
    records = on_virtual_time(live.run())
    assert {name: structs.asdict(record) for name, record in records.items()} == {
        name: structs.asdict(record) for name, record in expected.items()
    }
    assert list(replay(live.journal.entries, setup.scheduler())) == live.journal.entries


#: Sums of these are exact: many things happen at the same instant.
ROUND_S = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def a_cluster(cpu: CpuSpec) -> ClusterSpec:
    search = QuotaSpec(concurrency=2, limit=5, window_s=4.0)
    return ClusterSpec(pools={CPU: cpu, Resource("search"): search}, shares={JobId("red"): 2.0})


POLICIES = ["elastic", "tangram", "fcfs", "fixed:2", "pods:1/4", "overcommit"]


@settings(max_examples=25, deadline=None)
@given(
    trace=traces(NEEDS, seconds=ANY_S),
    believed=st.sampled_from(["exact", "learned"]),
    nodes=st.integers(1, 2),
)
@pytest.mark.parametrize("name", POLICIES)
def test_random_workloads_end_at_the_same_instants(
    name: str, trace: Trace, believed: str, nodes: int
) -> None:
    cpu = CpuSpec(
        nodes=nodes, cores=4, memory_mb=1000, create_s=0.3, overhead_s=0.01, squeeze_penalty=0.05
    )
    assert_same(trace, Setup(cluster=a_cluster(cpu), policy=name), believed)


@settings(max_examples=60, deadline=None)
@given(trace=traces([*NEEDS, LINEAR], seconds=ROUND_S))
@pytest.mark.parametrize("name", ["elastic", "tangram"])
def test_ties_are_decided_the_same_way(name: str, trace: Trace) -> None:
    # Memory for all: whether a sandbox is gone before or after another event of the same instant is
    # the machine's doing, and no decision.
    cpu = CpuSpec(nodes=1, cores=2, memory_mb=100_000)
    assert_same(trace, Setup(cluster=a_cluster(cpu), policy=name), "exact")


@settings(max_examples=25, deadline=None)
@given(
    trace=traces(MIXED, seconds=ANY_S, limits=st.none()),
    tokens=st.lists(st.sampled_from([0, 20, 60, 150]), min_size=1, max_size=5),
    believed=st.sampled_from(["exact", "learned"]),
)
def test_calls_that_use_tokens_end_at_the_same_instants(
    trace: Trace, tokens: list[int], believed: str
) -> None:
    cluster = a_mixed_cluster()
    windows = (CallWindow(limit=100, window_s=4.0, unit="tokens"),)
    search = structs.replace(cluster.pools[Resource("search")], windows=windows)
    limited = structs.replace(cluster, pools={**cluster.pools, Resource("search"): search})
    assert_same(with_tokens(trace, tokens), Setup(cluster=limited), believed)


@settings(max_examples=25, deadline=None)
@given(trace=traces(MIXED, seconds=ANY_S, limits=st.none()))
@pytest.mark.parametrize("name", ["elastic", "tangram", "fcfs", "static", "load-per-call"])
def test_calls_of_every_kind_end_at_the_same_instants(name: str, trace: Trace) -> None:
    assert_same(trace, Setup(cluster=a_mixed_cluster(), policy=name), "exact")
