"""What `explain` says is free of a side, against asking for every number of units in turn."""

from builders import CPU, a_cpu, a_waiting_ticket
from gpu_support import FakeLaneContext, a_pool
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import examples

from artangram.core.ids import NodeId, Resource
from artangram.core.scheduling.baselines.fcfs import FcfsLane
from artangram.core.scheduling.baselines.static import StaticLane
from artangram.core.scheduling.baselines.unmanaged import UnmanagedLane
from artangram.core.scheduling.cluster import FunctionsSpec, QuotaSpec
from artangram.core.scheduling.explain import lendable
from artangram.core.scheduling.policies.base import Lane
from artangram.core.scheduling.policies.elastic import ElasticLane
from artangram.core.scheduling.policies.paced import PacedLane
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.policies.ranking import CoreUse, NodeUse
from artangram.core.scheduling.policies.residency import ResidencyLane
from artangram.core.scheduling.policies.slots import SlotLane
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.pools.gpu import Fence
from artangram.core.scheduling.pools.quota import QuotaPool

NAME = Resource("side")


def a_quota(**fields: object) -> QuotaPool:
    return QuotaPool(NAME, QuotaSpec(**fields))


def a_fenced_lane() -> Lane:
    lane = ResidencyLane(a_pool(nodes=2, devices=11), FakeLaneContext())
    lane.fence = Fence(NodeId("gpu-0"), 4, 4)
    return lane


LANES = {
    "calls": lambda: PacedLane(a_quota(concurrency=9), FakeLaneContext(), FairUsage({})),
    "window": lambda: PacedLane(a_quota(limit=9, window_s=5.0), FakeLaneContext(), FairUsage({})),
    "clients": lambda: UnmanagedLane(a_quota(concurrency=7, limit=9), FakeLaneContext()),
    "slots": lambda: SlotLane(
        FunctionPool(NAME, FunctionsSpec(ceiling=9)), FakeLaneContext(), FairUsage({})
    ),
    "cores": lambda: FcfsLane(CpuNode(CPU, NodeId("n"), a_cpu(cores=9)), FakeLaneContext()),
    "squeezed": lambda: ElasticLane(
        CpuNode(CPU, NodeId("n"), a_cpu(cores=9)), FakeLaneContext(), NodeUse(CoreUse({}), 9)
    ),
    "devices": a_fenced_lane,
    "deployed": lambda: StaticLane(a_pool(), FakeLaneContext()),
}


def scanned(lane: Lane, units: int, now: float) -> int:
    return next((n for n in range(units - 1, 0, -1) if lane.lends(n, now)), 0)


@examples(150)
@given(
    name=st.sampled_from(sorted(LANES)),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 8), st.integers(0, 7)), max_size=20),
)
def test_what_can_be_lent_is_what_a_scan_finds(name, steps):
    lane, loans = LANES[name](), []
    for now, (is_loan, units, index) in enumerate(steps):
        if is_loan and lane.lends(units, now):
            ticket = a_waiting_ticket(now)
            loans.append((ticket, lane.lend(ticket, units, now)))
        elif loans:
            lane.take_back(*loans.pop(index % len(loans)), now)
        for wanted in range(1, 14):
            assert lendable(lane, wanted, now) == scanned(lane, wanted, now)
