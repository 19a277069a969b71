"""What a page shows, made at most once per `FRESH_S`, however many pages are open.

Every list has a longest length and every name a longest one, so that a page of a large or hostile
cluster stays as small as that of a friendly one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct, structs

from artangram.core.scheduling.action import ActionRecord
from artangram.core.scheduling.decisions import Report
from artangram.dashboard.timeline import Bar, timeline
from artangram.observe.journal import Entry
from artangram.orchestrator.embedded import Embedded
from artangram.orchestrator.live import LiveTrajectory
from artangram.orchestrator.orchestrator import Orchestrator
from artangram.orchestrator.records import ClusterStatus
from artangram.orchestrator.use import Alternative, JobUse, Prices, alternatives, by_job

FRESH_S = 0.5
SAMPLE_S = 1.0
MOST_SAMPLES = 600
MOST_KINDS = 12
MOST_NODES = 200
MOST_TRAJECTORIES = 50
MOST_JOBS = 30
MOST_NAME_CHARACTERS = 200
RECENT_S = 300.0
"""How far back the times of kinds go."""


class RecentKind(Struct, frozen=True, kw_only=True):
    """Mean times of the actions of one kind that ended lately: ACT = wait + overhead + run."""

    kind: str
    count: int
    wait_s: float
    overhead_s: float
    run_s: float


class UseSample(Struct, frozen=True, array_like=True):
    """How full the cluster was at one moment."""

    at: float
    used: int
    capacity: int
    wanted: int
    """Cores that are held or waited for."""
    pods: int
    """Cores that a pod per trajectory would hold."""
    queued: int
    running: int


class OpenTrajectory(Struct, frozen=True, kw_only=True):
    trajectory: str
    job: str
    task: str
    node: str
    running: int
    waiting: int
    queued_s: float


class View(Struct, frozen=True, kw_only=True):
    """Everything that a page shows at one moment."""

    at: float
    run: str
    """The run whose curves there are; empty if the cluster serves many."""
    status: ClusterStatus
    num_nodes: int
    node_states: dict[str, int]
    use: tuple[JobUse, ...]
    alternatives: tuple[Alternative, ...]
    kinds: tuple[RecentKind, ...]
    samples: tuple[UseSample, ...]
    bars: tuple[Bar, ...]
    trajectories: tuple[OpenTrajectory, ...]


class Viewer:
    """Looks at one orchestrator."""

    def __init__(self, orchestrator: Orchestrator, run: str = "") -> None:
        self._orchestrator = orchestrator
        self._run = run
        self._backend = Embedded(orchestrator)
        self._samples: deque[UseSample] = deque(maxlen=MOST_SAMPLES)
        self._made = b""
        self._made_at = float("-inf")
        self._making = asyncio.Lock()

    @property
    def backend(self) -> Embedded:
        return self._backend

    async def encoded(self) -> bytes:
        """The view as JSON, made anew if it is old."""
        async with self._making:
            now = asyncio.get_running_loop().time()
            if now - self._made_at >= FRESH_S:
                self._made = msgspec.json.encode(await self.view())
                self._made_at = now
            return self._made

    async def view(self) -> View:
        status, report = await self._backend.status(), self._backend.use_now()
        ledger, now = self._orchestrator.ledger, report.at
        states: dict[str, int] = {}
        for node in status.nodes:
            states[node.state.value] = states.get(node.state.value, 0) + 1
        ended = _ended(ledger.recent, now - RECENT_S)
        return View(
            at=now,
            run=self._run,
            status=structs.replace(
                status, nodes=status.nodes[:MOST_NODES], jobs=status.jobs[:MOST_JOBS]
            ),
            num_nodes=len(status.nodes),
            node_states=states,
            use=tuple(by_job(report.rows)[:MOST_JOBS]),
            alternatives=alternatives(report, Prices()),
            kinds=tuple(_kinds(ended)[:MOST_KINDS]),
            samples=tuple(self._samples),
            bars=timeline(ledger.recent, ledger.alive(), now=now),
            trajectories=tuple(_trajectories(ledger.open_trajectories(), now)),
        )

    def sample(self) -> None:
        """Note how full the cluster is."""
        ledger = self._orchestrator.ledger
        accounts = ledger.accounts
        self._samples.append(
            UseSample(
                at=round(self._orchestrator.now(), 3),
                used=accounts.held,
                capacity=sum(node.cores for node in self._orchestrator.executor.scheduler.nodes()),
                wanted=accounts.held + accounts.wanted,
                pods=accounts.pod_cores(),
                queued=ledger.queue.total,
                running=ledger.num_running,
            )
        )


@asynccontextmanager
async def viewing(orchestrator: Orchestrator, run: str = "") -> AsyncIterator[Viewer]:
    """A viewer that takes samples while the block lasts."""
    viewer = Viewer(orchestrator, run)
    sampling = asyncio.create_task(_sample(viewer))
    try:
        yield viewer
    finally:
        sampling.cancel()
        await asyncio.wait({sampling})


async def _sample(viewer: Viewer) -> None:
    while True:
        viewer.sample()
        await asyncio.sleep(SAMPLE_S)


def _ended(entries: Iterable[Entry], since: float) -> list[ActionRecord]:
    return [
        decision.record
        for entry in entries
        if entry.at >= since
        for decision in entry.decisions
        if isinstance(decision, Report) and decision.record.began_at is not None
    ]


def _kinds(records: Iterable[ActionRecord]) -> list[RecentKind]:
    """Those that took most time first."""
    found: dict[str, list[ActionRecord]] = {}
    for record in records:
        found.setdefault(record.kind, []).append(record)
    kinds = [
        RecentKind(
            kind=kind[:MOST_NAME_CHARACTERS],
            count=len(those),
            wait_s=sum(one.wait_s for one in those) / len(those),
            overhead_s=sum(one.overhead_s for one in those) / len(those),
            run_s=sum(one.run_s for one in those) / len(those),
        )
        for kind, those in found.items()
    ]
    return sorted(kinds, key=lambda k: -k.count * (k.wait_s + k.overhead_s + k.run_s))


def _trajectories(lives: Iterable[LiveTrajectory], now: float) -> Iterable[OpenTrajectory]:
    """The first that were opened."""
    for number, live in enumerate(lives):
        if number == MOST_TRAJECTORIES:
            return
        queueing = live.queueing(now)
        yield OpenTrajectory(
            trajectory=live.id[:MOST_NAME_CHARACTERS],
            job=live.opening.job[:MOST_NAME_CHARACTERS],
            task=live.opening.task[:MOST_NAME_CHARACTERS],
            node=live.node or "",
            running=len(live.actions) - queueing.num_waiting,
            waiting=queueing.num_waiting,
            queued_s=queueing.queued_s,
        )
