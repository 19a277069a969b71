"""What is alive: one record per action and one per trajectory, from the call to the answer.

- Everything the orchestrator knows of an action hangs on its `LiveAction`: what it runs, its lease,
  how its run ended, which callers wait for it. `LiveTrajectory` is the same for a trajectory.
- `submit` and `open` make a record before the scheduler hears of it; `apply` moves it on as events
  and decisions say, live and when a journal is replayed; `delivered` and `gone` remove it.
- A snapshot holds the records that the scheduler knows, without futures and callbacks.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from artangram.aio import fail
from artangram.core.ids import ActionId, NodeId, TrajectoryId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.decisions import Decision, Report, Resize, Start, Stop, StopReason
from artangram.core.scheduling.events import (
    Cancelled,
    Event,
    Finished,
    NodeLost,
    Submitted,
    TrajectoryClosed,
    TrajectoryOpened,
)
from artangram.core.scheduling.lease import Cores, CoreShare, Lease
from artangram.core.scheduling.records import ActionRecord, Outcome
from artangram.managers.agent import OnPrinted, RunId, RunResult
from artangram.managers.calls import RunningCall
from artangram.managers.cpu import cores_of
from artangram.orchestrator.records import (
    ActionResult,
    Opening,
    Queueing,
    QueueLengths,
    Receipt,
    Submission,
)

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
        #: Decisions about it that wait until the journal has its start; `None` if none has to.
        self.held: list[Start | Resize | Stop] | None = None
        self.found: list[FoundRun] = []
        #: One future for each caller who asked for its result.
        self.waiting: list[asyncio.Future[ActionResult]] = []

    def __repr__(self) -> str:
        return f"<LiveAction {self.action.id}: {self.phase.name}>"

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
        return submission.call is not None and not submission.action.repeatable

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


class Changes:
    """What ended at one instant."""

    __slots__ = ("ended", "left")

    def __init__(self) -> None:
        self.ended: list[tuple[LiveAction, ActionRecord]] = []
        self.left: list[LiveTrajectory] = []


class Ledger:
    """The records by their ids."""

    def __init__(self) -> None:
        self.trajectories: dict[TrajectoryId, LiveTrajectory] = {}
        self.actions: dict[ActionId, LiveAction] = {}
        #: The actions that callers gave a key of their own.
        self.keys: dict[str, LiveAction] = {}
        self.num_running = 0
        self.num_ended = 0
        self.queue = QueueLengths()

    def __getstate__(self) -> dict[str, Any]:
        """For a snapshot: what is posted is in no journal yet, what is over needs nothing."""
        return {
            "trajectories": {live.id: live for live in self.open_trajectories()},
            "actions": {live.action.id: live for live in self.alive()},
            "keys": {},
            "num_running": self.num_running,
            "num_ended": self.num_ended,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.queue = QueueLengths(one.action.job for one in self.alive() if one.lease is None)

    def __repr__(self) -> str:
        return f"<Ledger: {self.queue.total} queued, {self.num_running} running>"

    def alive(self) -> Iterator[LiveAction]:
        """The actions that the scheduler knows."""
        return (live for live in self.actions.values() if live.phase is Phase.ALIVE)

    def open_trajectories(self) -> Iterator[LiveTrajectory]:
        """The trajectories that the scheduler knows, those included that are being closed."""
        return (live for live in self.trajectories.values() if live.phase is Phase.ALIVE)

    def trajectory(self, name: TrajectoryId) -> LiveTrajectory | None:
        """The record of a trajectory that the scheduler knows."""
        live = self.trajectories.get(name)
        return live if live is not None and live.phase is Phase.ALIVE else None

    def submit(self, submission: Submission) -> LiveAction:
        """An action that the scheduler is about to hear of."""
        live = self.actions[submission.action.id] = LiveAction(submission)
        if submission.key is not None:
            self.keys[submission.key] = live
        self.queue.add(live.action.job)
        return live

    def open(self, opening: Opening) -> LiveTrajectory:
        """A trajectory that the scheduler is about to hear of."""
        live = self.trajectories[opening.trajectory] = LiveTrajectory(opening)
        return live

    def delivered(self, live: LiveAction) -> None:
        """The end of an action is written down: forget it."""
        del self.actions[live.action.id]
        if live.submission.key is not None:
            self.keys.pop(live.submission.key, None)

    def gone(self, live: LiveTrajectory) -> None:
        """Nothing is left of a trajectory: forget it, and tell its closers."""
        del self.trajectories[live.id]
        if live.closing is not None and not live.closing.done():
            live.closing.set_result(None)

    def fail(self, error: Exception) -> None:
        """Tell every caller that no answer will come."""
        futures: list[asyncio.Future[Any]] = []
        for action in self.actions.values():
            futures += action.waiting
        futures += [one.closing for one in self.trajectories.values() if one.closing is not None]
        for future in futures:
            fail(future, error)

    def apply(
        self, events: Iterable[Event], decisions: Sequence[Decision], *, at: float
    ) -> Changes:
        """Move the records on by what was decided at one instant."""
        changes = Changes()
        for event in events:
            self._on_event(event, at)
        for decision in decisions:
            match decision:
                case Start(lease):
                    self._on_start(lease, at)
                case Report(record):
                    self._on_report(record, changes)
                case Resize(action_id, cores):
                    self.actions[action_id].hold(len(cores.cores), at)
                case Stop(action_id, reason):
                    self._on_stop(self.actions[action_id], reason)
        for event in events:
            if isinstance(event, TrajectoryClosed):
                self._leave_if_idle(self.trajectory(event.trajectory), changes)
        return changes

    def _on_event(self, event: Event, at: float) -> None:
        match event:
            case Submitted(action):
                live = self.actions[action.id]
                live.phase, live.submitted_at = Phase.ALIVE, at
                if action.trajectory is not None:
                    live.trajectory = self.trajectory(action.trajectory)
                    if live.trajectory is not None:
                        live.trajectory.actions.add(live)
            case Finished():
                self._on_finished(event, at)
            case TrajectoryOpened(name):
                self.trajectories[name].phase = Phase.ALIVE
            case TrajectoryClosed(name):
                trajectory = self.trajectory(name)
                if trajectory is not None:
                    trajectory.is_closed = True
            case Cancelled(action_id, reason):
                if action_id in self.actions:
                    self.actions[action_id].stop_reason = reason
            case NodeLost():
                for live in self.actions.values():
                    if live.cores is not None and live.cores.node == event.node:
                        self._end_lease(live, at)

    def _on_finished(self, event: Finished, at: float) -> None:
        live = self.actions.get(event.action_id)
        if live is None or live.lease is None or live.lease.attempt != event.attempt:
            return
        is_place = live.submission.call is None
        if live.trajectory is not None and is_place and event.outcome is not Outcome.INFRA_FAILED:
            live.trajectory.has_files = True
        self._end_lease(live, at)

    def _end_lease(self, live: LiveAction, at: float) -> None:
        live.lease = live.cores = None
        live.hold(0, at)
        self.num_running -= 1
        self.queue.add(live.action.job)

    def _on_start(self, lease: Lease, at: float) -> None:
        live = self.actions[lease.action_id]
        self.num_running += 1
        self.queue.remove(live.action.job)
        cores = cores_of(lease)
        live.lease, live.cores, live.started_at = lease, cores, at
        if cores is None:
            live.hold(0, at)
            return
        live.hold(len(cores.cores) if isinstance(cores, Cores) else cores.units, at)
        if live.trajectory is not None:
            live.trajectory.node = cores.node

    def _on_stop(self, live: LiveAction, reason: StopReason) -> None:
        trajectory = live.trajectory
        if reason is StopReason.EXPIRED:
            live.stop_reason = "its deadline passed"
        elif not live.stop_reason and trajectory is not None and trajectory.is_closed:
            live.stop_reason = "its trajectory was closed"

    def _on_report(self, record: ActionRecord, changes: Changes) -> None:
        live = self.actions[record.action_id]
        live.phase = Phase.OVER
        self.num_ended += 1
        if live.lease is not None:
            self._end_lease(live, record.ended_at)
        self.queue.remove(live.action.job)
        changes.ended.append((live, record))
        trajectory = live.trajectory
        if trajectory is not None:
            trajectory.actions.discard(live)
            has_started = record.started_at is not None
            trajectory.queued_s += live.queued_s(record.ended_at, has_started=has_started)
            self._leave_if_idle(trajectory, changes)

    def _leave_if_idle(self, live: LiveTrajectory | None, changes: Changes) -> None:
        if live is not None and live.is_closed and not live.actions and live.phase is Phase.ALIVE:
            live.phase = Phase.OVER
            changes.left.append(live)
