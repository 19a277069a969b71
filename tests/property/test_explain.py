"""What `explain` says is free of a side, against asking for every number of units in turn."""

from hypothesis import given
from hypothesis import strategies as st

from artangram.core.cluster import FunctionsSpec, QuotaSpec
from artangram.core.explain import lendable
from artangram.core.ids import NodeId, Resource
from artangram.core.policies.base import Lane
from artangram.core.policies.fcfs import FcfsLane
from artangram.core.policies.malleable import MalleableLane
from artangram.core.policies.paced import PacedLane
from artangram.core.policies.queue import Served
from artangram.core.policies.residency import ResidencyLane
from artangram.core.policies.slots import SlotLane
from artangram.core.policies.static import StaticLane
from artangram.core.policies.unmanaged import UnmanagedLane
from artangram.core.pools.cpu import CpuNode
from artangram.core.pools.functions import FunctionPool
from artangram.core.pools.gpu import Fence
from artangram.core.pools.quota import QuotaPool
from builders import CPU, a_cpu, a_waiting_ticket
from gpu_support import FakeDesk, a_pool
from scheduler_world import examples

NAME = Resource("side")


def a_quota(**fields: object) -> QuotaPool:
    return QuotaPool(NAME, QuotaSpec(**fields))


def a_fenced_lane() -> Lane:
    lane = ResidencyLane(a_pool(nodes=2, devices=11), FakeDesk())
    lane.fence = Fence(NodeId("gpu-0"), 4, 4)
    return lane


LANES = {
    "calls": lambda: PacedLane(a_quota(concurrency=9), FakeDesk(), Served({})),
    "window": lambda: PacedLane(a_quota(limit=9, window_s=5.0), FakeDesk(), Served({})),
    "clients": lambda: UnmanagedLane(a_quota(concurrency=7, limit=9), FakeDesk()),
    "slots": lambda: SlotLane(FunctionPool(NAME, FunctionsSpec(ceiling=9)), FakeDesk(), Served({})),
    "cores": lambda: FcfsLane(CpuNode(CPU, NodeId("n"), a_cpu(cores=9)), FakeDesk()),
    "squeezed": lambda: MalleableLane(
        CpuNode(CPU, NodeId("n"), a_cpu(cores=9)), FakeDesk(), Served({})
    ),
    "devices": a_fenced_lane,
    "deployed": lambda: StaticLane(a_pool(), FakeDesk()),
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
            loans.append(lane.lend(a_waiting_ticket(now), units, now))
        elif loans:
            lane.take_back(loans.pop(index % len(loans)), now)
        for wanted in range(1, 14):
            assert lendable(lane, wanted, now) == scanned(lane, wanted, now)
