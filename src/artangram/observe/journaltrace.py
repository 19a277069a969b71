"""A trace from a journal: what a live run did, for the simulator to replay.

- The work of an action is what it did on the units it had: seconds, weighted by its speed-up.
- What a trajectory did between two actions is thinking; actions that follow each other at once
  belong to one turn, and so do those that ran in parallel: the trace has them in sequence.
- A call without a trajectory is a trajectory of its own that arrives when the call was made.
- Actions that never started, or that infrastructure failed, are left out; one that reached its time
  limit gets twice the work it did, since its true work is unknown but larger.
- A failed action did all its work and fails at its end on its least units. On more units the
  simulator finishes it before that time, as a success.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, ServiceId, TrajectoryId
from artangram.core.scheduling.action import Action, ActionRecord, Outcome
from artangram.core.scheduling.cluster import ServiceSpec
from artangram.core.scheduling.decisions import Decision, Report, Resize, Start
from artangram.core.scheduling.events import (
    Event,
    Finished,
    ServiceDeployed,
    Submitted,
    TrajectoryOpened,
)
from artangram.core.scheduling.speedup import DEFAULT
from artangram.observe.journal import Entry
from artangram.observe.trace import Trace, TraceAction, TraceTrajectory, TraceTurn

AT_ONCE_S = 0.005
"""Pauses above this are thinking; a program submits its next action sooner."""

LEFT_UNDONE = 1e-3
"""Of its work, when an action fails: the simulator calls it done if nothing is left."""


class _Work:
    """A running action: when it had how many units."""

    __slots__ = ("action", "since", "tokens")

    def __init__(self, action: Action) -> None:
        self.action = action
        self.tokens: int | None = None
        self.since: list[tuple[float, int]] = []

    def done(self, record: ActionRecord) -> float:
        """The work it did between its beginning and its end."""
        assert record.began_at is not None, f"{record.action_id} never began"
        work = 0.0
        ends = [*(at for at, _ in self.since[1:]), record.ended_at]
        for (at, units), end in zip(self.since, ends, strict=True):
            work += max(0.0, end - max(at, record.began_at)) * self._speed(units)
        return work

    def least_speed(self) -> float:
        """Where it is slowest."""
        needs = self.action.needs
        return 1.0 if needs.elastic is None else self._speed(needs.of(needs.elastic)[0])

    def _speed(self, units: int) -> float:
        needs = self.action.needs
        if units == 0:
            return 0.0  # It was preempted.
        if needs.elastic is None:
            return 1.0
        return (needs.speedup or DEFAULT).speed(units)


class _TracedTrajectory:
    """A trajectory as far as it is known."""

    def __init__(self, opened: TrajectoryOpened, at: float) -> None:
        self.opened = opened
        self.opened_at = at
        self.task = ""
        self.problem = ""
        self.turns: list[tuple[float, list[TraceAction]]] = []
        self._free_at = at

    def add(self, record: ActionRecord, action: TraceAction, *, problem: str) -> None:
        think_s = record.submitted_at - self._free_at
        if not self.turns or think_s > AT_ONCE_S:
            self.turns.append((max(0.0, think_s), []))
        self.turns[-1][1].append(action)
        self.task = record.task
        self.problem = problem
        self._free_at = record.ended_at


def trace_of(entries: Iterable[Entry], *, name: str) -> Trace:
    """The trace of a journal. Raises `BadInput` if nothing in it ever ran."""
    recorder = _Recorder()
    for entry in entries:
        for event in entry.events:
            recorder.on_event(event, entry.at)
        for decision in entry.decisions:
            recorder.on_decision(decision, entry.at)
    trajectories = recorder.trajectories()
    if not trajectories:
        raise BadInput("journal", "nothing in it ever ran", "run something first")
    return Trace(name=name, train_s=0.0, trajectories=trajectories)


class _Recorder:
    def __init__(self) -> None:
        #: In the order of their openings, also those whose name was given again.
        self._all: list[_TracedTrajectory] = []
        self._lives: dict[TrajectoryId, _TracedTrajectory] = {}
        self._working: dict[ActionId, _Work] = {}

    def on_event(self, event: Event, at: float) -> None:
        match event:
            case TrajectoryOpened():
                self._begin(event, at)
            case Submitted(action):
                self._working[action.id] = _Work(action)
                if action.trajectory is None:
                    alone = _alone(action.id)
                    self._begin(TrajectoryOpened(alone, 0, action.job), at)
            case Finished() if event.action_id in self._working:
                self._working[event.action_id].tokens = event.tokens

    def _begin(self, opened: TrajectoryOpened, at: float) -> None:
        life = self._lives[opened.trajectory] = _TracedTrajectory(opened, at)
        self._all.append(life)

    def on_decision(self, decision: Decision, at: float) -> None:
        match decision:
            case Start(lease) if lease.action_id in self._working:
                # Another attempt does all of the work again.
                self._working[lease.action_id].since = [(at, lease.allocations[0].units)]
            case Resize(action_id, cores) if action_id in self._working:
                self._working[action_id].since.append((at, cores.units))
            case Report(record) if record.action_id in self._working:
                self._on_report(record, self._working.pop(record.action_id))

    def _on_report(self, record: ActionRecord, work: _Work) -> None:
        life = self._lives.get(record.trajectory or _alone(record.action_id))
        if life is None or record.began_at is None or record.outcome is Outcome.INFRA_FAILED:
            return
        life.add(record, _as_it_ended(record, work), problem=work.action.problem)

    def trajectories(self) -> tuple[TraceTrajectory, ...]:
        lives = [life for life in self._all if life.turns]
        began_at = min((life.opened_at for life in lives), default=0.0)
        names = _told_apart(life.opened.trajectory for life in lives)
        return tuple(
            TraceTrajectory(
                trajectory=name,
                turns=tuple(TraceTurn(think_s=s, actions=tuple(acts)) for s, acts in life.turns),
                job=life.opened.job,
                task=life.task,
                problem=life.problem,
                arrive_s=life.opened_at - began_at,
                memory_mb=life.opened.memory_mb,
            )
            for name, life in zip(names, lives, strict=True)
        )


def _told_apart(names: Iterable[TrajectoryId]) -> Iterator[TrajectoryId]:
    """Give every trajectory of the trace a unique name."""
    taken, again = set[TrajectoryId](), Counter[TrajectoryId]()
    for name in names:
        own = name
        while own in taken:
            again[name] += 1
            own = TrajectoryId(f"{name}-{again[name] + 1}")
        taken.add(own)
        yield own


def _alone(action_id: ActionId) -> TrajectoryId:
    """The trajectory of a call that has none."""
    return TrajectoryId(f"call-{action_id}")


def _as_it_ended(record: ActionRecord, work: _Work) -> TraceAction:
    done_s, timeout_s, fail_at_s = work.done(record), work.action.timeout_s, None
    work_s = done_s
    if record.outcome is Outcome.TIMED_OUT:
        work_s, timeout_s = 2.0 * done_s, record.run_s
    elif record.outcome is Outcome.FAILED:
        work_s, fail_at_s = done_s * (1.0 + LEFT_UNDONE), done_s / work.least_speed()
    return TraceAction(
        kind=record.kind,
        needs=work.action.needs,
        work_s=work_s,
        fail_at_s=fail_at_s,
        timeout_s=timeout_s,
        repeatable=work.action.repeatable,
        priority=work.action.priority,
        tokens=work.tokens,
    )


def deployed_in(entries: Iterable[Entry]) -> dict[ServiceId, ServiceSpec]:
    """The services that were added while the run went on."""
    events = (event for entry in entries for event in entry.events)
    return {event.service: event.spec for event in events if isinstance(event, ServiceDeployed)}
