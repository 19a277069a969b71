"""The second driver of the scheduler: a trace, a virtual clock and a simulated machine.

- It is a body like the live orchestrator: it feeds events to the very same scheduler and carries
  out its decisions in order. Nothing here decides what runs.
- Trajectories are closed loops: a turn thinks, then runs its actions one after the other. A job's
  step k + 1 begins `train_s` after the last trajectory of its step k ended; a job that is not in
  step k + 1 rests until another job gets to a step it is in.
- The trace is read a step at a time, only as far ahead as the fastest job is.
- An action that failed does not end its trajectory: the model sees the failure and goes on.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from time import perf_counter

from artangram.core.ids import ActionId, JobId, TrajectoryId
from artangram.core.scheduling.action import Action, ActionRecord, Outcome
from artangram.core.scheduling.cluster import ClusterSpec
from artangram.core.scheduling.decisions import Decision, Report, Resize, Start, Stop, WakeAt
from artangram.core.scheduling.events import (
    ClockTicked,
    Event,
    Finished,
    Submitted,
    TrajectoryClosed,
    TrajectoryGone,
    TrajectoryOpened,
)
from artangram.core.scheduling.lease import Devices
from artangram.core.scheduling.policies.policy import SchedulingPolicy
from artangram.core.scheduling.scheduler import Scheduler
from artangram.observe.trace import TraceAction, TraceSource, TraceTrajectory
from artangram.sim.beliefs import Beliefs
from artangram.sim.machine import Machine
from artangram.sim.tally import SimTally

PROGRESS_EVERY = 4096
"""Decisions between two words about progress."""


class _SimTrajectory:
    """A trajectory under way: what is left of it to think and to do."""

    __slots__ = ("is_open", "script", "submitted", "trajectory")

    def __init__(self, trajectory: TraceTrajectory) -> None:
        self.trajectory = trajectory
        self.script = _script(trajectory)
        self.is_open = False
        self.submitted = 0


def _script(trajectory: TraceTrajectory) -> Iterator[float | TraceAction]:
    """Seconds to think and actions to run, in order."""
    for turn in trajectory.turns:
        if turn.think_s > 0:
            yield turn.think_s
        yield from turn.actions


class _JobSteps:
    """The steps of one job: one at a time, the next after the trainer is done."""

    __slots__ = ("began_at", "going", "is_resting", "step", "waiting")

    def __init__(self) -> None:
        self.step = -1
        self.began_at = 0.0
        self.going = 0
        #: Nothing that was read so far is left to do.
        self.is_resting = True
        #: Trajectories read from the trace whose step has not begun.
        self.waiting: deque[TraceTrajectory] = deque()


class Simulation:
    """One run of a trace on a cluster under a policy."""

    def __init__(
        self,
        trace: TraceSource,
        cluster: ClusterSpec,
        policy: SchedulingPolicy,
        beliefs: Beliefs,
    ) -> None:
        self.tally = SimTally()
        self.now = 0.0
        self._trace = trace
        self._beliefs = beliefs
        self._scheduler = Scheduler(cluster, policy)
        self.machine = Machine(cluster)
        self._unread: Iterator[TraceTrajectory] = iter(trace.trajectories)
        self._next: TraceTrajectory | None = next(self._unread, None)
        self._jobs: dict[JobId, _JobSteps] = {}
        self._timers: list[tuple[float, int, _SimTrajectory]] = []
        self._seq = 0
        self._lives: dict[ActionId, tuple[_SimTrajectory, TraceAction]] = {}
        self._wake_at: float | None = None
        self._events: list[Event] = []
        #: Closed at this instant: their sandboxes go as soon as that is decided.
        self._closed: list[TrajectoryId] = []

    def run(self, on_progress: Callable[[int, float], None] | None = None) -> None:
        """Until the last trajectory has ended.

        `on_progress` hears now and then how many decisions were made and what time it is.
        """
        self._read_step(0.0)
        while (now := self._next_instant()) is not None:
            self.now = now
            if on_progress is not None and len(self.tally.decisions_s) % PROGRESS_EVERY == 0:
                on_progress(self.tally.num_actions(), now)
            self._collect(now)
            self._decide(now)
        assert not self._lives, f"{len(self._lives)} actions never ended"

    def _next_instant(self) -> float | None:
        times = [self.machine.next_at(), self._wake_at if self._lives else None]
        if self._timers:
            times.append(self._timers[0][0])
        return min((t for t in times if t is not None), default=None)

    def _collect(self, now: float) -> None:
        """The events of this instant in a fixed order: ends, trajectories, the clock."""
        events = self._events
        for end in self.machine.ended(now):
            run, is_answered = end.run, end.outcome is Outcome.SUCCEEDED
            action = self._lives[run.action_id][1]
            events.append(
                Finished(
                    run.action_id,
                    end.outcome,
                    began_at=run.began_at,
                    attempt=run.attempt,
                    tokens=action.tokens if is_answered else None,
                )
            )
        while self._timers and self._timers[0][0] <= now:
            self._advance(heappop(self._timers)[2], now)
        if self._wake_at is not None and self._wake_at <= now:
            self._wake_at = None
            events.append(ClockTicked())

    def _decide(self, now: float) -> None:
        """Feed what happened, carry out what is decided, until this instant is over."""
        while self._events:
            events, self._events = self._events, []
            began = perf_counter()
            decisions = self._scheduler.handle_all(events, now)
            self.tally.decisions_s.append(perf_counter() - began)
            closed, self._closed = self._closed, []
            for decision in decisions:
                self._carry_out(decision, now)
            self._events += map(TrajectoryGone, closed)

    def _carry_out(self, decision: Decision, now: float) -> None:
        match decision:
            case Start(lease):
                run = self.machine.start(self._lives[lease.action_id][1], lease, now)
                devices = run.allocation
                self.tally.restores += isinstance(devices, Devices) and devices.restored
            case Resize(action_id, cores, pace):
                self.machine.resize(action_id, cores, now, pace=pace)
                self.tally.resizes += 1
            case Report(record):
                self._on_report(record, now)
            case WakeAt(at):
                self._wake_at = at
            case Stop(action_id, _):
                run = self.machine.stop(action_id, now)
                began_at = min(run.began_at, now)  # It may still have been in the making.
                self._events.append(
                    Finished(action_id, Outcome.CANCELLED, began_at=began_at, attempt=run.attempt)
                )

    def _on_report(self, record: ActionRecord, now: float) -> None:
        life, _ = self._lives.pop(record.action_id)
        self.tally.record(record)
        self._advance(life, now)

    def _advance(self, life: _SimTrajectory, now: float) -> None:
        """A trajectory arrives, has thought, or got a result: on to what comes next."""
        trajectory = life.trajectory
        if not life.is_open:
            life.is_open = True
            self._events.append(
                TrajectoryOpened(trajectory.trajectory, trajectory.memory_mb, trajectory.job)
            )
        match next(life.script, None):
            case None:
                self._events.append(TrajectoryClosed(trajectory.trajectory))
                self._closed.append(trajectory.trajectory)
                self._end_trajectory(trajectory, now)
            case TraceAction() as action:
                self._submit(life, action)
            case think_s:
                self._set_timer(now + think_s, life)

    def _set_timer(self, at: float, life: _SimTrajectory) -> None:
        self._seq += 1
        heappush(self._timers, (at, self._seq, life))

    def _submit(self, life: _SimTrajectory, action: TraceAction) -> None:
        trajectory = life.trajectory
        life.submitted += 1
        action_id = ActionId(f"{trajectory.trajectory}/{life.submitted}")
        self._lives[action_id] = (life, action)
        told = Action(
            id=action_id,
            kind=action.kind,
            needs=self._beliefs.needs(action),
            job=trajectory.job,
            task=trajectory.task,
            problem=self._beliefs.problem(trajectory),
            trajectory=trajectory.trajectory,
            work_s=self._beliefs.work_s(action),
            timeout_s=action.timeout_s,
            repeatable=action.repeatable,
            priority=action.priority,
            tokens=self._beliefs.tokens(action),
        )
        self._events.append(Submitted(told))

    def _read_step(self, at: float) -> None:
        """Read one more step. Resting jobs of it go on. Steps never decrease in a trace."""
        if self._next is None:
            return
        step = self._next.step
        rested: dict[JobId, None] = {}
        while self._next is not None and self._next.step == step:
            job_id = self._next.job
            job = self._jobs.setdefault(job_id, _JobSteps())
            job.waiting.append(self._next)
            if job.is_resting:
                rested[job_id] = None
            self._next = next(self._unread, None)
        for job_id in rested:
            # Its trainer is done by then: the job that reads on ended a step later than it did.
            self._begin_step(job_id, at)

    def _begin_step(self, job_id: JobId, at: float) -> None:
        job = self._jobs[job_id]
        job.is_resting = False
        job.step, job.began_at = job.waiting[0].step, at
        while job.waiting and job.waiting[0].step == job.step:
            trajectory = job.waiting.popleft()
            job.going += 1
            self._set_timer(at + trajectory.arrive_s, _SimTrajectory(trajectory))

    def _end_trajectory(self, trajectory: TraceTrajectory, now: float) -> None:
        job = self._jobs[trajectory.job]
        job.going -= 1
        if job.going > 0:
            return
        self.tally.steps.append((trajectory.job, job.step, now - job.began_at))
        trained_at = now + self._trace.train_s
        if job.waiting:
            self._begin_step(trajectory.job, trained_at)
        else:
            job.is_resting = True
            self._read_step(trained_at)
