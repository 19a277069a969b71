"""What a decision costs: microseconds of CPU for a no-op action from submission to report.

A full cycle is submit, decide, finish, report, with a given number of actions waiting all the time.
CPU time of this thread is counted, not wall time: these machines are shared.
"""

from statistics import median
from time import thread_time

from msgspec import Struct

from artangram.core.ids import ActionId, Resource
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.decisions import Decision, Start
from artangram.core.scheduling.events import Event, Finished, Submitted
from artangram.core.scheduling.lease import Lease
from artangram.core.scheduling.needs import Needs
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler
from artangram.core.scheduling.speedup import Amdahl

CPU = Resource("cpu")
RIGID = Needs(amounts=((CPU, (1,)),))
ELASTIC = Needs(amounts=((CPU, (1, 2, 4, 8, 16)),), elastic=CPU, speedup=Amdahl(0.05))
CYCLES = 4000
"""Actions measured at each number of waiting ones."""


class CycleCost(Struct, frozen=True, kw_only=True):
    """Microseconds per action, by how many were waiting."""

    policy: str
    elastic_share: float
    us_by_waiting: dict[int, float]


class BurstCost(Struct, frozen=True, kw_only=True):
    """Milliseconds to decide a burst of 2,048 actions onto 1,024 idle cores."""

    policy: str
    elastic_share: float
    whole_ms: float
    """With taking in all 2,048 events, 1,024 starts and the queue of the rest."""
    decide_ms: float
    """The decision alone, once all are known."""


def a_cluster(nodes: int, cores: int) -> ClusterSpec:
    return ClusterSpec(pools={CPU: CpuSpec(nodes=nodes, cores=cores, memory_mb=1)})


class Feed:
    """An endless supply of actions; every n-th is elastic."""

    def __init__(self, elastic_share: float) -> None:
        self._share = elastic_share
        self._owed = 0.0
        self._count = 0

    def next(self) -> Submitted:
        self._count += 1
        self._owed += self._share
        is_elastic = self._owed >= 1.0
        self._owed -= is_elastic
        # Works differ, or all keys would tie and the heaps would be spared.
        work_s = (1 + self._count * 7919 % 1000 / 1000) * (30.0 if is_elastic else 0.4)
        kind, needs = ("test", ELASTIC) if is_elastic else ("tool", RIGID)
        action_id = ActionId(str(self._count))
        return Submitted(Action(id=action_id, kind=kind, needs=needs, work_s=work_s))


def started(decisions: list[Decision]) -> list[Lease]:
    return [decision.lease for decision in decisions if type(decision) is Start]


def cycle_cost(
    name: str, *, elastic_share: float, waiting: tuple[int, ...] = (1_000, 10_000, 100_000)
) -> CycleCost:
    """Cost of a cycle on 16 nodes of 64 cores."""
    costs = {count: _cycle_us(name, elastic_share, count) for count in waiting}
    return CycleCost(policy=name, elastic_share=elastic_share, us_by_waiting=costs)


def _cycle_us(name: str, elastic_share: float, waiting: int) -> float:
    scheduler = Scheduler(a_cluster(16, 64), policy(name))
    feed = Feed(elastic_share)
    running = started(scheduler.handle_all([feed.next() for _ in range(waiting + 1024)], 0.0))
    samples = []
    now = 0.0
    for _ in range(8):
        began = thread_time()
        for _ in range(CYCLES // 8):
            now += 0.0005
            done = running.pop(0)
            for event in (Finished(done.action_id), feed.next()):
                running += started(scheduler.handle(event, now))
        samples.append((thread_time() - began) / (CYCLES // 8))
    return 1e6 * median(samples)


def burst_cost(name: str, *, elastic_share: float) -> BurstCost:
    """The best of some bursts: noise only ever adds."""
    whole, decide = [], []
    for _ in range(7):
        feed = Feed(elastic_share)
        events: list[Event] = [feed.next() for _ in range(2048)]
        scheduler = Scheduler(a_cluster(4, 256), policy(name))
        began = thread_time()
        scheduler.take_in(events, 0.0)
        known = thread_time()
        scheduler.handle_all([], 0.0)
        ended = thread_time()
        whole.append(ended - began)
        decide.append(ended - known)
    return BurstCost(
        policy=name,
        elastic_share=elastic_share,
        whole_ms=1e3 * min(whole),
        decide_ms=1e3 * min(decide),
    )
