"""The scheduler: events in, decisions out.

- `handle` and `handle_all` are the only ways to change it; time is an argument and never goes back.
- Every submitted action is reported exactly once. A lease lasts until `Finished` (or the loss of
  its node) ends it; cores go to no other action before.
- The same events at the same times give the same decisions.

Lanes decide what starts, where and how wide; this module keeps the lives of actions and
trajectories, and gives all resources of an action together or none.
"""

from collections.abc import Callable, Iterable
from typing import Any

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, JobId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling import events, reconfigure
from artangram.core.scheduling.action import ActionRecord, Outcome, checked
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, GpuSpec
from artangram.core.scheduling.clusterevents import ClusterEvents
from artangram.core.scheduling.deadlines import Deadlines, Lifetimes, pace
from artangram.core.scheduling.deadlock import STUCK
from artangram.core.scheduling.decisions import (
    Decision,
    Release,
    Report,
    Resize,
    Start,
    Stop,
    StopReason,
    WakeAt,
)
from artangram.core.scheduling.estimates import Estimates, Learning
from artangram.core.scheduling.expected import ExpectedWait
from artangram.core.scheduling.explain import Explanation
from artangram.core.scheduling.forms import Forms
from artangram.core.scheduling.lanes import Lanes
from artangram.core.scheduling.lease import Allocation, Cores, Lease
from artangram.core.scheduling.policies.base import Form, State, Ticket, record_of
from artangram.core.scheduling.policies.policy import SchedulingPolicy
from artangram.core.scheduling.pools.cpu import CpuNode

MOST_ATTEMPTS = 3
"""How often a repeatable action is started before its infrastructure failures are final."""


class Scheduler:
    """Decides; never acts."""

    def __init__(self, cluster: ClusterSpec, policy: SchedulingPolicy) -> None:
        self.policy = policy
        self._learning = Learning()
        self._pools = cluster.pools
        self._forms = Forms(cluster)
        self._lanes = Lanes(cluster, policy, self)
        self._cluster_events = ClusterEvents(cluster.pools, self._forms, self._lanes)
        self._tickets: dict[ActionId, Ticket] = {}
        #: Trajectories and their live actions; closed ones stay while an action still has to stop.
        self._open: dict[TrajectoryId, dict[ActionId, Ticket]] = {}
        self._closing: dict[TrajectoryId, dict[ActionId, Ticket]] = {}
        self._deadlines = Deadlines()
        self._lifetimes = Lifetimes()
        self._seq = 0
        self._out: list[Decision] = []
        self._announced: float | None = None
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            events.Submitted: self._on_submitted,
            events.Finished: self._on_finished,
            events.Cancelled: self._on_cancelled,
            events.ClockTicked: self._on_clock_ticked,
            events.TrajectoryOpened: self._on_trajectory_opened,
            events.TrajectoryClosed: self._on_trajectory_closed,
            events.TrajectoryGone: self._on_trajectory_gone,
            events.NodeLost: self._on_node_lost,
            events.Reconfigured: self._on_reconfigured,
            **self._cluster_events.handlers(),
        }

    @property
    def estimates(self) -> Estimates:
        """What it has learned; a scheduler that is made anew may go on with it."""
        return self._learning.estimates

    @estimates.setter
    def estimates(self, estimates: Estimates) -> None:
        self._learning.estimates = estimates

    @property
    def cluster(self) -> ClusterSpec:
        """The cluster as it was described, with what was changed since."""
        return self._lanes.cluster

    def handle(self, event: events.Event, now: float) -> list[Decision]:
        """What is to be done now that `event` has happened."""
        self._handlers[type(event)](event, now)
        return self._decide(now)

    def handle_all(self, happened: Iterable[events.Event], now: float) -> list[Decision]:
        """As `handle`, for events of one instant: decides once, knowing all of them."""
        self.take_in(happened, now)
        return self._decide(now)

    def take_in(self, happened: Iterable[events.Event], now: float) -> None:
        """Note events without deciding yet; `handle_all` of the same instant has to follow."""
        handlers = self._handlers
        for event in happened:
            handlers[type(event)](event, now)

    def explain(self, action_id: ActionId, now: float) -> Explanation:
        """Why an action waits, or that it does not. `KeyError` if it is unknown or has ended."""
        return self._lanes.explain(self._tickets[action_id], now)

    def expected_wait(self, job: JobId, now: float) -> ExpectedWait:
        """How long a trajectory and an action of `job` that come now are expected to wait."""
        waiting = (t for t in self._tickets.values() if t.job == job and t.state is State.WAITING)
        return self._lanes.cpu.expected_wait(job, waiting, now)

    def num_waiting(self) -> int:
        """How many actions wait for anything."""
        return sum(t.state is State.WAITING for t in self._tickets.values())

    def has_node(self, resource: Resource, node: NodeId) -> bool:
        """Is it there? So is every node until its loss is told, and again when it has joined."""
        return self._lanes.has_node(resource, node)

    def nodes(self) -> list[CpuNode]:
        """The CPU nodes that are there, to look at."""
        return self._lanes.cpu.nodes()

    def leaving(self, resource: Resource, node: NodeId) -> list[TrajectoryId]:
        """The closed trajectories whose sandboxes are not known to be gone from a node."""
        return self._lanes.cpu.leaving(resource, node)

    def seize_secondary(self, ticket: Ticket, now: float) -> bool:
        """For lanes: see `LaneContext`."""
        return self._lanes.seize_secondary(ticket, now)

    def refusing(self, ticket: Ticket, now: float) -> Resource | None:
        """For lanes: see `LaneContext`."""
        return self._lanes.refusing(ticket, now)

    def start(
        self,
        ticket: Ticket,
        allocation: Allocation,
        *,
        workers: int,
        prepare_s: float,
        now: float,
    ) -> None:
        """For lanes: see `LaneContext`."""
        ticket.state = State.RUNNING
        ticket.allocation = allocation
        ticket.units = allocation.units
        ticket.workers = workers
        ticket.started_at = ticket.units_since = now
        ticket.unit_s = ticket.idle_s = 0.0
        if ticket.resident is not None:
            ticket.resident.has_sandbox = True
        action, is_limited = ticket.action, ticket.action.timeout_s is not None
        # A sandbox on the side is made while the lane prepares the rest.
        lease = Lease(
            action_id=action.id,
            allocations=(allocation, *ticket.secondary) if ticket.secondary else (allocation,),
            workers=workers,
            prepare_s=max(prepare_s, ticket.prepare_s),
            attempt=ticket.attempt,
            pace=pace(ticket, allocation, workers, self._pools) if is_limited else 1.0,
        )
        self._out.append(Start(lease))

    def resize(self, ticket: Ticket, cores: Cores, now: float) -> None:
        """For lanes: see `LaneContext`."""
        ticket.count_units(now)
        ticket.allocation = cores
        ticket.units = cores.units
        is_limited = ticket.action.timeout_s is not None
        passing = pace(ticket, cores, ticket.workers, self._pools) if is_limited else 1.0
        self._out.append(Resize(ticket.action.id, cores, passing))

    def limit(self, ticket: Ticket, at: float) -> None:
        """For lanes: see `LaneContext`."""
        self._deadlines.add(at, ticket)

    def give_up(self, ticket: Ticket, reason: str, now: float) -> None:
        """For lanes: see `LaneContext`."""
        ticket.lane = None
        self._lanes.withdraw(ticket, now)
        self._end(ticket, Outcome.INFRA_FAILED, reason, now)

    def _decide(self, now: float) -> list[Decision]:
        lanes, deadlines, lifetimes = self._lanes, self._deadlines, self._lifetimes
        if deadlines.heap:
            for ticket in deadlines.take_due(now):
                self._cancel(ticket, Outcome.EXPIRED, "its deadline passed", now)
        while lanes.cpu.has_families and (stuck := lanes.cpu.stuck()):
            for ticket in stuck:
                self._cancel(ticket, Outcome.REFUSED, STUCK, now)
        if lifetimes.heap:
            self._out += lifetimes.take_due(now)
        wake = lanes.dispatch(now)
        if deadlines.heap or lifetimes.heap:
            times = (wake, deadlines.next_at(), lifetimes.next_at())
            wake = min((at for at in times if at is not None), default=None)
        if wake is not None and wake != self._announced:
            self._announced = wake
            self._out.append(WakeAt(wake))
        if lanes.cpu.has_drained:
            self._out += [Release(pool, node) for pool, node in lanes.cpu.take_emptied()]
        out, self._out = self._out, []
        return out

    def _on_submitted(self, event: events.Submitted, now: float) -> None:
        action = checked(event.action)
        if action.id in self._tickets:
            raise BadInput("id", f"{action.id!r} is already known", "give every action its own id")
        self._seq += 1
        try:
            ticket = Ticket(
                action, self._forms.of(action.needs, action.job), seq=self._seq, now=now
            )
            self._lanes.check(ticket)
            self._join_trajectory(ticket)
        except BadInput as error:
            ticket = Ticket(action, _NO_FORM, seq=self._seq, now=now)
            self._report(record_of(ticket, Outcome.REFUSED, str(error), now, began_at=None))
            return
        self._tickets[action.id] = ticket
        if action.deadline_at is not None:
            self.limit(ticket, action.deadline_at)
        self._queue(ticket, now)

    def _join_trajectory(self, ticket: Ticket) -> None:
        trajectory = ticket.action.trajectory
        if trajectory is None:
            return
        tickets = self._open.get(trajectory)
        if tickets is None:
            raise BadInput("trajectory", f"{trajectory!r} is not open", "open it first")
        tickets[ticket.action.id] = ticket
        if self._lifetimes.limited:
            self._lifetimes.goes_on(trajectory)

    def _queue(self, ticket: Ticket, now: float) -> None:
        self._learning.expect(ticket)
        self._lanes.admit(ticket, now)

    def _on_finished(self, event: events.Finished, now: float) -> None:
        ticket = self._tickets.get(event.action_id)
        if ticket is None or ticket.state is not State.RUNNING or ticket.attempt != event.attempt:
            return  # Late: it was already given up and reported.
        began_at = ticket.started_at if event.began_at is None else min(event.began_at, now)
        ticket.tokens_used = 0 if event.turned_away else event.tokens
        told = self._learning.learn(ticket, event.outcome, began_at=began_at, now=now)
        self._lanes.release(ticket, now)
        self._lanes.touch(told)
        failed, is_new = event.outcome is Outcome.INFRA_FAILED, event.turned_away
        if failed and self._may_repeat(ticket, now, is_new=is_new):
            ticket.num_turned_away += event.turned_away
            self._repeat(ticket, now)
            return
        outcome, reason = event.outcome, event.reason
        if ticket.stopping is not None and outcome is not Outcome.SUCCEEDED:
            outcome, reason = ticket.stopping, reason or f"stopped: {ticket.stopping}"
        self._end(ticket, outcome, reason, now, began_at=began_at)

    def _may_repeat(self, ticket: Ticket, now: float, *, is_new: bool = False) -> bool:
        """May it start again? One that is as good as `is_new` may, however often it did."""
        deadline = ticket.action.deadline_at
        failures = ticket.attempt - ticket.num_turned_away
        return (
            (is_new or (ticket.action.repeatable and failures < MOST_ATTEMPTS))
            and ticket.stopping is None
            and (deadline is None or now < deadline)
        )

    def _repeat(self, ticket: Ticket, now: float) -> None:
        ticket.attempt += 1
        ticket.state = State.WAITING
        ticket.lane = ticket.node = None
        ticket.form = self._forms.of(ticket.action.needs, ticket.job)
        self._queue(ticket, now)

    def _on_cancelled(self, event: events.Cancelled, now: float) -> None:
        ticket = self._tickets.get(event.action_id)
        if ticket is not None:
            self._cancel(ticket, Outcome.CANCELLED, event.reason, now)

    def _cancel(self, ticket: Ticket, outcome: Outcome, reason: str, now: float) -> None:
        """End a waiting ticket at once; ask for a running one to be stopped, once."""
        if ticket.state is State.WAITING:
            self._lanes.withdraw(ticket, now)
            self._end(ticket, outcome, reason, now)
        elif ticket.stopping is None:
            ticket.stopping = outcome
            self._out.append(Stop(ticket.action.id, StopReason(outcome.value)))

    def _on_clock_ticked(self, event: events.ClockTicked, now: float) -> None:
        self._announced = None

    def _on_trajectory_opened(self, event: events.TrajectoryOpened, now: float) -> None:
        name = event.trajectory
        if name in self._open or name in self._closing or self._lanes.cpu.is_leaving(name):
            raise BadInput("trajectory", f"{event.trajectory!r} is already open", "use a new id")
        self._open[name] = {}
        self._lifetimes.open(event, now)
        self._lanes.cpu.open(event)

    def _on_trajectory_closed(self, event: events.TrajectoryClosed, now: float) -> None:
        tickets = self._open.pop(event.trajectory, None)
        if tickets is None:
            return  # It was closed before.
        self._closing[event.trajectory] = tickets
        self._lifetimes.end(event.trajectory)
        for ticket in list(tickets.values()):
            self._cancel(ticket, Outcome.CANCELLED, "its trajectory was closed", now)
        self._leave_if_idle(event.trajectory, now)

    def _leave_if_idle(self, trajectory: TrajectoryId, now: float) -> None:
        """A closed trajectory keeps its memory until the last of its actions has stopped."""
        if not self._closing.get(trajectory, True):
            del self._closing[trajectory]
            self._lanes.cpu.close(trajectory, now)

    def _on_trajectory_gone(self, event: events.TrajectoryGone, now: float) -> None:
        self._lanes.cpu.trajectory_gone(event.trajectory, now)

    def _on_node_lost(self, event: events.NodeLost, now: float) -> None:
        self._cluster_events.expect(event.resource, CpuSpec, GpuSpec)
        if not self._lanes.has_node(event.resource, event.node):
            return  # It was lost before.
        hit = [t for t in self._tickets.values() if self._lanes.depends_on(t, event.node)]
        harmed = {t: t.state is State.RUNNING or self._lanes.cpu.has_files(t) for t in hit}
        for ticket in hit:
            if ticket.state is State.RUNNING:
                self._lanes.release(ticket, now, lost=event.node)
            else:
                self._lanes.withdraw(ticket, now)
            ticket.lane = ticket.node = None
            ticket.form = self._forms.of(ticket.action.needs, ticket.job)
        self._lanes.node_lost(event.resource, event.node, now)
        for ticket, is_harmed in harmed.items():
            if not is_harmed:
                self._queue(ticket, now)
            elif self._may_repeat(ticket, now):
                self._repeat(ticket, now)
            else:
                outcome = ticket.stopping or Outcome.INFRA_FAILED
                self._end(ticket, outcome, event.reason, now, began_at=ticket.started_at)

    def _on_reconfigured(self, event: events.Reconfigured, now: float) -> None:
        reconfigure.checked(event, self._lanes.cluster)
        jobs = reconfigure.relimited(event, self._lanes.cluster)
        self._forms.reconfigure(event)
        self._lanes.reconfigure(event, now)
        changed = [
            ticket
            for ticket in (self._tickets.values() if event.pools or jobs else ())
            if ticket.state is State.WAITING
            and (ticket.job in jobs or not event.pools.keys().isdisjoint(ticket.form.resources))
        ]
        for ticket in changed:
            self._lanes.withdraw(ticket, now)
            ticket.lane = ticket.node = None
            try:
                ticket.form = self._forms.of(ticket.action.needs, ticket.job)
            except BadInput as error:  # It asks for more than the pool has now.
                self._end(ticket, Outcome.REFUSED, str(error), now)
            else:
                self._queue(ticket, now)

    def _end(
        self,
        ticket: Ticket,
        outcome: Outcome,
        reason: str,
        now: float,
        *,
        began_at: float | None = None,
    ) -> None:
        action, name = ticket.action, ticket.action.trajectory
        del self._tickets[action.id]
        if action.problem:
            self._learning.forget(ticket)
        self._report(record_of(ticket, outcome, reason, now, began_at=began_at))
        if name is not None:
            tickets = self._open[name] if name in self._open else self._closing[name]
            del tickets[action.id]
            if not tickets and self._lifetimes.limited:
                self._lifetimes.rests(name, now)
            if self._closing:
                self._leave_if_idle(name, now)

    def _report(self, record: ActionRecord) -> None:
        self._out.append(Report(record))


_NO_FORM = Form(resource=Resource(""), amounts=(1,))
"""The form of an action that was refused: it stands nowhere."""
