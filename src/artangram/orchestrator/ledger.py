"""What is alive: trajectories and actions, as events and decisions tell it.

Pure, and rebuilt by `apply` from a journal. The scheduler knows who may run; the ledger knows what
they are to run, where they are, and what they have used.
"""

from collections.abc import Iterable, Sequence

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
from artangram.core.scheduling.lease import Lease
from artangram.core.scheduling.records import ActionRecord, Outcome
from artangram.managers.cpu import cores_of
from artangram.orchestrator.records import Opening, Queueing, Submission


class LiveAction:
    """An action between its submission and its report."""

    __slots__ = (
        "action",
        "core_s",
        "lease",
        "started_at",
        "stop_reason",
        "submission",
        "submitted_at",
        "units",
        "units_since",
    )

    def __init__(self, submission: Submission, *, at: float) -> None:
        self.submission = submission
        self.action: Action = submission.action
        self.submitted_at = at
        self.lease: Lease | None = None
        self.started_at = 0.0
        #: Why it is to stop; empty if it is not.
        self.stop_reason = ""
        self.core_s = 0.0
        self.units = 0
        self.units_since = 0.0

    def queued_s(self, now: float) -> float:
        """How long it has waited for its lease."""
        return (now if self.lease is None else self.started_at) - self.submitted_at

    def hold(self, units: int, at: float) -> None:
        """From `at` on it holds so many cores."""
        self.core_s += self.units * (at - self.units_since)
        self.units, self.units_since = units, at


class LiveTrajectory:
    """A trajectory between its opening and the end of its last action after it was closed."""

    __slots__ = ("actions", "has_files", "is_closed", "node", "opening", "queued_s")

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.actions: set[ActionId] = set()
        self.node: NodeId | None = None
        #: Has an action run in its sandbox? From then on only that very sandbox will do.
        self.has_files = False
        self.is_closed = False
        #: How long the actions that have ended waited.
        self.queued_s = 0.0


class Changes:
    """What an instant brought to an end."""

    __slots__ = ("ended", "left")

    def __init__(self) -> None:
        self.ended: list[tuple[LiveAction, ActionRecord]] = []
        self.left: list[LiveTrajectory] = []


class Ledger:
    """Trajectories and actions by their ids."""

    def __init__(self) -> None:
        self.trajectories: dict[TrajectoryId, LiveTrajectory] = {}
        self.actions: dict[ActionId, LiveAction] = {}
        self.num_running = 0
        self.num_ended = 0
        #: Said before the event that tells of it: what an id stands for.
        self._openings: dict[TrajectoryId, Opening] = {}
        self._submissions: dict[ActionId, Submission] = {}

    def __repr__(self) -> str:
        return f"<Ledger: {self.num_queued} queued, {self.num_running} running>"

    @property
    def num_queued(self) -> int:
        """Actions that wait, those included that are about to."""
        return len(self.actions) - self.num_running + len(self._submissions)

    def expect(self, what: Opening | Submission) -> None:
        """The next event of this id is about `what`."""
        if isinstance(what, Opening):
            self._openings[what.trajectory] = what
        else:
            self._submissions[what.action.id] = what

    def forget_expected(self) -> None:
        """What was said to come did not come in that life."""
        self._openings.clear()
        self._submissions.clear()

    def knows(self, action_id: ActionId) -> bool:
        """Is or will be alive."""
        return action_id in self.actions or action_id in self._submissions

    def has(self, trajectory: TrajectoryId) -> bool:
        """Is or will be open, or has not quite left."""
        return trajectory in self._openings or trajectory in self.trajectories

    def trajectory_of(self, live: LiveAction) -> LiveTrajectory | None:
        """Where an action lives, as long as that does."""
        trajectory = live.action.trajectory
        return None if trajectory is None else self.trajectories.get(trajectory)

    def queueing(self, trajectory: TrajectoryId, now: float) -> Queueing:
        """How long the actions of an open trajectory have waited. `KeyError` if it is not open."""
        live = self.trajectories[trajectory]
        actions = [self.actions[action_id] for action_id in live.actions]
        return Queueing(
            queued_s=live.queued_s + sum(action.queued_s(now) for action in actions),
            num_waiting=sum(action.lease is None for action in actions),
        )

    def apply(
        self, events: Iterable[Event], decisions: Sequence[Decision], *, at: float
    ) -> Changes:
        """An instant has been decided."""
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
                    self.actions[action_id].hold(cores.units, at)
                case Stop(action_id, reason):
                    self._on_stop(self.actions[action_id], reason)
        for event in events:
            if isinstance(event, TrajectoryClosed):
                self._leave_if_idle(event.trajectory, changes)
        return changes

    def _on_event(self, event: Event, at: float) -> None:
        match event:
            case Submitted(action):
                self.actions[action.id] = LiveAction(self._submissions.pop(action.id), at=at)
                if action.trajectory in self.trajectories:
                    self.trajectories[action.trajectory].actions.add(action.id)
            case Finished():
                self._on_finished(event, at)
            case TrajectoryOpened(trajectory):
                opening = self._openings.pop(trajectory)
                self.trajectories[trajectory] = LiveTrajectory(opening)
            case TrajectoryClosed(trajectory):
                if trajectory in self.trajectories:
                    self.trajectories[trajectory].is_closed = True
            case Cancelled(action_id, reason):
                if action_id in self.actions:
                    self.actions[action_id].stop_reason = reason
            case NodeLost():
                for live in self.actions.values():
                    cores = cores_of(live.lease) if live.lease is not None else None
                    if cores is not None and cores.node == event.node:
                        self._end_lease(live, at)

    def _on_finished(self, event: Finished, at: float) -> None:
        live = self.actions.get(event.action_id)
        if live is None or live.lease is None or live.lease.attempt != event.attempt:
            return
        trajectory = self.trajectory_of(live)
        is_place = live.submission.call is None
        if trajectory is not None and is_place and event.outcome is not Outcome.INFRA_FAILED:
            trajectory.has_files = True
        self._end_lease(live, at)

    def _end_lease(self, live: LiveAction, at: float) -> None:
        live.lease = None
        live.hold(0, at)
        self.num_running -= 1

    def _on_start(self, lease: Lease, at: float) -> None:
        live = self.actions[lease.action_id]
        self.num_running += 1
        live.lease, live.started_at = lease, at
        allocation, trajectory = cores_of(lease), self.trajectory_of(live)
        live.hold(0 if allocation is None else allocation.units, at)
        if allocation is not None and trajectory is not None:
            trajectory.node = allocation.node

    def _on_stop(self, live: LiveAction, reason: StopReason) -> None:
        trajectory = self.trajectory_of(live)
        if reason is StopReason.EXPIRED:
            live.stop_reason = "its deadline passed"
        elif not live.stop_reason and trajectory is not None and trajectory.is_closed:
            live.stop_reason = "its trajectory was closed"

    def _on_report(self, record: ActionRecord, changes: Changes) -> None:
        live = self.actions.pop(record.action_id)
        self.num_ended += 1
        if live.lease is not None:
            self._end_lease(live, record.ended_at)
        changes.ended.append((live, record))
        trajectory = self.trajectory_of(live)
        if trajectory is not None:
            trajectory.actions.discard(record.action_id)
            trajectory.queued_s += record.wait_s
            if trajectory.is_closed:
                self._leave_if_idle(trajectory.opening.trajectory, changes)

    def _leave_if_idle(self, trajectory: TrajectoryId, changes: Changes) -> None:
        live = self.trajectories.get(trajectory)
        if live is not None and live.is_closed and not live.actions:
            changes.left.append(self.trajectories.pop(trajectory))
