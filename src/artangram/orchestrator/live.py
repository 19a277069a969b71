"""One record per action and one per trajectory that is alive, from the call to the answer.

Everything the orchestrator knows of an action hangs on its `LiveAction`: what it runs, its lease,
how its run ended, which callers wait for it. `LiveTrajectory` is the same for a trajectory. The
ledger moves them on; a snapshot keeps the fields that are not of this process.
"""

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from artangram.apis.usage import tokens_in
from artangram.core.ids import NodeId, TrajectoryId
from artangram.core.scheduling.action import Action, ActionRecord
from artangram.core.scheduling.decisions import Resize, Start, Stop
from artangram.core.scheduling.lease import Calls, Cores, CoreShare, Lease, is_on
from artangram.managers.agent import OnPrinted, RunId, RunResult
from artangram.managers.calls import RunningCall
from artangram.orchestrator.records import ActionResult, Opening, Queueing, Receipt, Submission
from artangram.sandbox.protocol import Snapshot

if TYPE_CHECKING:
    from artangram.orchestrator.heartbeats import Owner

Promise = asyncio.Future[None]


class Phase(IntEnum):
    """How far a record is."""

    POSTED = 0
    """The scheduler has not heard of it yet."""
    ALIVE = 1
    OVER = 2
    """The scheduler is done with it; an answer has to be written, or a sandbox to be closed."""


class ExecutorVerbs(Protocol):
    """See `driver.Executor`."""

    def start(self, live: "LiveAction") -> None: ...

    def resize(self, live: "LiveAction", cores: Cores, pace: float) -> None: ...

    def stop(self, live: "LiveAction") -> None: ...


class FoundRun:
    """A run found on a node after a restart whose start is not in the journal."""

    __slots__ = ("ended", "id", "node")

    def __init__(self, id: RunId, node: NodeId) -> None:
        self.id = id
        self.node = node
        self.ended: RunResult | None = None


class _Kept:
    """A record of which a snapshot keeps some fields."""

    __slots__ = ()
    KEPT: ClassVar[tuple[str, ...]]

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.KEPT])

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self.KEPT, state, strict=True):
            setattr(self, name, value)
        self._begin_here()

    def _begin_here(self) -> None:
        """Set the other fields, which belong to this process."""
        raise NotImplementedError


class LiveAction(_Kept):
    """An action between its submission and the delivery of its result."""

    KEPT = (
        *("action", "core_s", "cores", "lease", "phase", "started_at", "stop_reason"),
        *("submission", "submitted_at", "trajectory", "units", "units_since"),
    )
    __slots__ = (*KEPT, "call", "end", "found", "held", "on_output", "waiting")

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.action: Action = submission.action
        self.phase = Phase.POSTED
        self.submitted_at = 0.0
        self.trajectory: LiveTrajectory | None = None
        self.lease: Lease | None = None
        #: The part of its lease that a CPU node gives.
        self.cores: Cores | CoreShare | None = None
        self.started_at = 0.0
        #: Why it has to stop; empty while it may run.
        self.stop_reason = ""
        self.core_s = 0.0
        self.units = 0
        self.units_since = 0.0
        self._begin_here()

    def _begin_here(self) -> None:
        #: How its current attempt ended.
        self.end: RunResult | None = None
        #: Its call, if it makes one and that is under way.
        self.call: RunningCall | None = None
        #: Called with what it prints.
        self.on_output: OnPrinted | None = None
        #: Decisions about it that wait until it may start; `None` if they are carried out at once.
        self.held: list[Start | Resize | Stop] | None = None
        self.found: list[FoundRun] = []
        #: One future for each caller that asked for its result.
        self.waiting: list[asyncio.Future[ActionResult]] = []

    def __repr__(self) -> str:
        return f"<LiveAction {self.action.id}: {self.phase.name}>"

    def tokens_used(self) -> int | None:
        """What its answer says of tokens, if the API that it calls limits them."""
        allocations = () if self.lease is None else self.lease.allocations
        if self.end is None or self.end.answer is None:
            return None
        if not any(isinstance(one, Calls) and one.tokens for one in allocations):
            return None
        return tokens_in(self.end.answer.body)

    @property
    def is_awaited(self) -> bool:
        """Does a caller still wait for its result?"""
        return any(not ended.done() for ended in self.waiting)

    @property
    def starts_once(self) -> bool:
        """Must it not be started twice, whatever dies?"""
        submission = self.submission
        if submission.key is not None:
            return True
        if submission.call is not None:
            return not submission.action.repeatable
        # The next process has to know where its sandbox is, or it would make another one.
        return self.trajectory is not None and not self.trajectory.has_files

    def is_on(self, node: NodeId) -> bool:
        """Does its lease give it anything of a node?"""
        return self.lease is not None and any(is_on(a, node) for a in self.lease.allocations)

    @property
    def snapshot(self) -> Snapshot | None:
        """What the sandbox of its trajectory starts from, if that is a snapshot."""
        source = self.trajectory.opening.place.source if self.trajectory is not None else None
        return source if isinstance(source, Snapshot) else None

    @property
    def expects_files(self) -> bool:
        """Must it fail without the very sandbox that its trajectory has?"""
        has_files = self.trajectory is not None and self.trajectory.has_files
        return has_files and not self.action.repeatable

    def perform(self, decision: Start | Resize | Stop, executor: ExecutorVerbs) -> None:
        """Carry a decision out, or keep it until the start before it is released."""
        if self.held is not None:
            self.held.append(decision)
            return
        if self.lease is None:
            return  # Its node was lost at the same instant.
        match decision:
            case Start():
                executor.start(self)
            case Resize(_, cores, pace):
                executor.resize(self, cores, pace)
            case Stop():
                executor.stop(self)

    def release(self, executor: ExecutorVerbs) -> None:
        """It may start: carry out what was held back."""
        decisions, self.held = self.held or [], None
        is_current = False
        for decision in decisions:
            if self.lease is None:
                return  # It was lost with its node meanwhile.
            if isinstance(decision, Start):
                is_current = decision.lease.attempt == self.lease.attempt
            if is_current:  # Else it is about an attempt that was lost.
                self.perform(decision, executor)

    def receipt(self) -> Receipt:
        """For one more caller."""
        ended: asyncio.Future[ActionResult] = asyncio.Future()
        self.waiting.append(ended)
        return Receipt(action_id=self.action.id, ended=ended)

    def settle(self, result: ActionResult) -> None:
        """Give every caller the result, which is written down."""
        for ended in self.waiting:
            if not ended.done():
                ended.set_result(result)

    def queued_s(self, now: float, *, has_started: bool) -> float:
        """How long it has waited for its lease, or did before it got one."""
        return (self.started_at if has_started else now) - self.submitted_at

    def hold(self, units: int, at: float) -> None:
        """From `at` on it holds this many cores."""
        self.core_s += self.units * (at - self.units_since)
        self.units, self.units_since = units, at

    def result(self, record: ActionRecord) -> ActionResult:
        """Its report, and what its program or its call left."""
        end, core_s = self.end, self.core_s
        if end is None:
            return ActionResult(record=record, core_s=core_s)
        return ActionResult(record=record, command=end.result, answer=end.answer, core_s=core_s)


class LiveTrajectory(_Kept):
    """A trajectory between its opening and the end of its sandbox."""

    KEPT = ("actions", "has_files", "is_closed", "node", "opening", "queued_s", "phase")
    __slots__ = (*KEPT, "closing", "making", "owner")

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.phase = Phase.POSTED
        self.actions: set[LiveAction] = set()
        self.node: NodeId | None = None
        #: Has an action run in its sandbox? From then on only that very sandbox will do.
        self.has_files = False
        self.is_closed = False
        #: How long the actions that have ended waited.
        self.queued_s = 0.0
        self._begin_here()

    def _begin_here(self) -> None:
        #: Whose heartbeats keep it open; `None` if it needs none.
        self.owner: Owner | None = None
        #: Done when nothing of it is left; `None` until it is closed.
        self.closing: Promise | None = None
        #: The action that makes its sandbox, while that is under way.
        self.making: Receipt | None = None

    def __repr__(self) -> str:
        return f"<LiveTrajectory {self.id}: {self.phase.name}>"

    @property
    def id(self) -> TrajectoryId:
        return self.opening.trajectory

    def queueing(self, now: float) -> Queueing:
        """How long its actions have waited."""
        running = [(live, live.lease is not None) for live in self.actions]
        waits = sum(live.queued_s(now, has_started=is_running) for live, is_running in running)
        num_waiting = sum(not is_running for _, is_running in running)
        return Queueing(queued_s=self.queued_s + waits, num_waiting=num_waiting)
