"""What is alive, by id: the records of `live`, moved on as the scheduler decides.

- `submit` and `open` make a record before the scheduler hears of it; `apply` moves it on as events
  and decisions say, live and when a journal is replayed; `delivered` and `gone` remove it.
- A snapshot holds the records that the scheduler knows, without futures and callbacks.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from artangram.aio import fail
from artangram.core.ids import ActionId, TrajectoryId
from artangram.core.scheduling.action import ActionRecord, Outcome
from artangram.core.scheduling.decisions import Decision, Report, Resize, Start, Stop, StopReason
from artangram.core.scheduling.events import (
    Cancelled,
    Event,
    Finished,
    NodeLost,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.lease import Cores, Lease
from artangram.managers.cpu import cores_of
from artangram.observe.journal import Entry
from artangram.orchestrator.accounts import Accounts
from artangram.orchestrator.live import LiveAction, LiveTrajectory, Phase
from artangram.orchestrator.records import Opening, Submission
from artangram.orchestrator.tally import QueueLengths, Tally

MOST_RECENT = 10_000
"""Instants that are remembered, whatever the journal does: some minutes of a busy cluster."""


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
        self.accounts = Accounts()
        self.tally = Tally()
        #: The latest instants, for readers that only look; the driver adds them.
        self.recent: deque[Entry] = deque(maxlen=MOST_RECENT)

    def __getstate__(self) -> dict[str, Any]:
        """For a snapshot: what is posted is in no journal yet, what is over needs nothing."""
        return {
            "trajectories": {live.id: live for live in self.open_trajectories()},
            "actions": {live.action.id: live for live in self.alive()},
            "keys": {},
            "num_running": self.num_running,
            "num_ended": self.num_ended,
            "accounts": self.accounts,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"accounts": Accounts()} | state)
        self.recent = deque(maxlen=MOST_RECENT)
        self.queue = QueueLengths(one.action.job for one in self.alive() if one.lease is None)
        self.tally = Tally.of(self.alive(), self.open_trajectories())

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
                    self._hold(self.actions[action_id], len(cores.cores), at)
                case Stop(action_id, reason):
                    self._on_stop(self.actions[action_id], reason)
        for event in events:
            if isinstance(event, TrajectoryClosed):
                self._leave_if_idle(self.trajectory(event.trajectory), changes)
        self.accounts.decided()
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
                self.accounts.submitted(live, at)
                self.tally.submitted(live)
            case Finished():
                self._on_finished(event, at)
            case TrajectoryOpened(name):
                opened = self.trajectories[name]
                opened.phase = Phase.ALIVE
                self.tally.opened(opened)
                self.accounts.opened(event, opened.opening.task, at)
            case TrajectoryGone(name):
                self.accounts.gone(name, at)
            case TrajectoryClosed(name):
                trajectory = self.trajectory(name)
                if trajectory is not None:
                    trajectory.is_closed = True
            case Cancelled(action_id, reason):
                if action_id in self.actions:
                    self.actions[action_id].stop_reason = reason
            case NodeLost():
                for live in self.actions.values():
                    if live.is_on(event.node):
                        self._end_lease(live, at)
                self.accounts.lost(event, at)

    def _on_finished(self, event: Finished, at: float) -> None:
        live = self.actions.get(event.action_id)
        if live is None or live.lease is None or live.lease.attempt != event.attempt:
            return
        is_place = live.submission.call is None
        if live.trajectory is not None and is_place and event.outcome is not Outcome.INFRA_FAILED:
            live.trajectory.has_files = True
        self._end_lease(live, at)

    def _end_lease(self, live: LiveAction, at: float) -> None:
        allocations = () if live.lease is None else live.lease.allocations
        self.accounts.holds(live, 0)
        self.tally.ended(live)
        live.hold(0, at)
        live.lease = live.cores = None
        self.accounts.ended(live, allocations, at)
        self.num_running -= 1
        self.queue.add(live.action.job)

    def _on_start(self, lease: Lease, at: float) -> None:
        live = self.actions[lease.action_id]
        self.num_running += 1
        self.queue.remove(live.action.job)
        cores = cores_of(lease)
        live.lease, live.cores, live.started_at = lease, cores, at
        self.accounts.began(live, at)
        self.tally.began(live)
        if cores is None:
            self._hold(live, 0, at)
            return
        self._hold(live, len(cores.cores) if isinstance(cores, Cores) else cores.units, at)
        if live.trajectory is not None:
            if live.trajectory.node is None:
                self.tally.settled(live.trajectory)
            live.trajectory.node = cores.node

    def _hold(self, live: LiveAction, units: int, at: float) -> None:
        self.accounts.holds(live, units)
        self.tally.holds(live, units)
        live.hold(units, at)

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
        self.tally.reported(live)
        self.accounts.reported(live, record)
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
            self.tally.left(live)
            changes.left.append(live)
