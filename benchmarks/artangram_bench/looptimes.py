"""How long a look at a large cluster, and a snapshot of its journal, hold the event loop.

The cluster is the real scheduler and the real ledger, fed with events; nothing is carried out.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from artangram.core.ids import ActionId, JobId, Resource, TrajectoryId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec
from artangram.core.scheduling.events import Event, Submitted
from artangram.core.scheduling.needs import parse_needs
from artangram.observe.journal import Entry, KeptRecord
from artangram.observe.journalfile import FileJournal, open_journal
from artangram.orchestrator.ledger import Ledger
from artangram.orchestrator.records import Opening, Submission, encoded
from artangram.orchestrator.recovery import Setup
from artangram.orchestrator.snapshots import Snapshots
from artangram.orchestrator.status import cluster_status

NODES, CORES, MEMORY_MB = 1_000, 64, 512_000
TRAJECTORIES, ACTIONS = 100_000, 40_000
AT_ONCE = 500
"""Events of one entry of the journal."""


class LoopTimes(Struct, frozen=True, kw_only=True):
    nodes: int
    trajectories: int
    actions: int
    status_ms: float
    """Of one call of `status()`: the median of several."""
    snapshot_hold_ms: float
    """The most CPU time of the loop's thread between two turns, while a snapshot was taken."""
    snapshot_late_ms: float
    """The same by the clock: what other processes of the machine take is in it, too."""
    snapshot_s: float
    """From its beginning until the journal has it."""
    snapshot_mb: float


class LargeCluster:
    """Scheduler and ledger with much alive, and the journal of it."""

    def __init__(self, journal: FileJournal, setup: Setup) -> None:
        self.setup = setup
        self.journal = journal
        self.scheduler = setup.scheduler()
        self.ledger = Ledger()

    def tell(self, events: list[Event], kept: list[KeptRecord], now: float) -> None:
        decisions = self.scheduler.handle_all(events, now)
        self.ledger.apply(events, decisions, at=now)
        entry = Entry(at=now, events=tuple(events), decisions=tuple(decisions))
        self.journal.append(entry, kept=kept)

    def fill(self, trajectories: int, actions: int) -> Iterator[None]:
        """Open trajectories, and submit the first action of some of them."""
        needs = parse_needs({"cpu": 1})
        for first in range(0, trajectories, AT_ONCE):
            events: list[Event] = []
            kept = []
            for number in range(first, min(trajectories, first + AT_ONCE)):
                name, job = TrajectoryId(f"t{number}"), JobId(f"job-{number % 8}")
                opening = Opening(trajectory=name, job=job, memory_mb=512)
                self.ledger.open(opening)
                events.append(opening.event())
                kept.append(KeptRecord(id=f"trajectory:{name}", body=encoded(opening)))
                if number < actions:
                    action = Action(
                        id=ActionId(f"a{number}"), kind="t", needs=needs, job=job, trajectory=name
                    )
                    submission = Submission(action=action, command=None)
                    self.ledger.submit(submission)
                    events.append(Submitted(action))
                    kept.append(KeptRecord(id=f"action:{action.id}", body=encoded(submission)))
            self.tell(events, kept, now=first / AT_ONCE)
            yield


def loop_times(
    *,
    nodes: int = NODES,
    trajectories: int = TRAJECTORIES,
    actions: int = ACTIONS,
    repeats: int = 5,
) -> LoopTimes:
    """Measure in a new journal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        return asyncio.run(_measured(path, nodes, trajectories, actions, repeats))


async def _measured(
    path: Path, nodes: int, trajectories: int, actions: int, repeats: int
) -> LoopTimes:
    journal, _ = await open_journal(path)
    pool = CpuSpec(nodes=nodes, cores=CORES, memory_mb=MEMORY_MB)
    setup = Setup(cluster=ClusterSpec(pools={Resource("cpu"): pool}))
    cluster = LargeCluster(journal, setup)
    snapshots = Snapshots(journal, cluster.scheduler, cluster.ledger)
    snapshots.take(0.0, lasting=set(), owner=setup.encoded())
    for _ in cluster.fill(trajectories, actions):
        await asyncio.sleep(0)
    looks = [_look_ms(cluster) for _ in range(repeats)]
    began = time.perf_counter()
    hold_s, late_s = await _longest_hold(snapshots)
    took_s = time.perf_counter() - began
    snapshots.close()
    await journal.close()
    return LoopTimes(
        nodes=nodes,
        trajectories=trajectories,
        actions=actions,
        status_ms=statistics.median(looks),
        snapshot_hold_ms=1000 * hold_s,
        snapshot_late_ms=1000 * late_s,
        snapshot_s=took_s,
        snapshot_mb=snapshots.size_bytes / 1e6,
    )


def _look_ms(cluster: LargeCluster) -> float:
    began = time.perf_counter()
    found = cluster_status(
        cluster.ledger,
        {},
        nodes=[node.id for node in cluster.scheduler.nodes()],
        node_books=cluster.scheduler.nodes(),
        policy="elastic",
        abandoned=0,
        began_at=0.0,
        is_draining=False,
        now=1000.0,
        cluster=cluster.setup.cluster,
    )
    assert len(found.nodes) == len(cluster.scheduler.nodes())
    return 1000 * (time.perf_counter() - began)


async def _longest_hold(snapshots: Snapshots) -> tuple[float, float]:
    """Take a snapshot while a task asks for the loop again and again: CPU and clock time."""
    hold_s = late_s = 0.0
    cpu, clock = time.thread_time(), time.perf_counter()
    snapshots.take(1000.0, lasting=set())
    while snapshots.is_taking:
        await asyncio.sleep(0)
        hold_s = max(hold_s, time.thread_time() - cpu)
        late_s = max(late_s, time.perf_counter() - clock)
        await asyncio.sleep(0.001)
        cpu, clock = time.thread_time(), time.perf_counter()
    return hold_s, late_s
