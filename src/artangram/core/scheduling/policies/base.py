"""What the scheduler and its lanes say to each other.

A *lane* is the queue in front of one pool (a CPU node, the GPUs, an API) and the idea that empties
it. A *ticket* is an action's place in the scheduler from `Submitted` to `Report`. The *context* is
the scheduler's side: lanes start and resize actions only through it. Lanes in front of a CPU node
share `CpuLane`: cores that one action has alone.
"""

from enum import Enum
from typing import Protocol

from msgspec import Struct

from artangram.core.ids import JobId, NodeId, Resource, ServiceId
from artangram.core.scheduling.action import Action, ActionRecord, Outcome
from artangram.core.scheduling.distribution import Belief, KnownDuration
from artangram.core.scheduling.evidence import Cell
from artangram.core.scheduling.lease import Allocation, Cores
from artangram.core.scheduling.needs import Amounts
from artangram.core.scheduling.policies.width import Widths
from artangram.core.scheduling.pools.cpu import CpuNode, Resident
from artangram.core.scheduling.speedup import Speedup


class State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Form(Struct, frozen=True, kw_only=True):
    """An action's needs as this cluster can serve them; shared by actions that need the same."""

    resource: Resource
    """The resource whose lane the action waits in."""
    amounts: Amounts
    """What it can run with of that resource, on the largest node there is."""
    secondary: tuple[tuple[Resource, int], ...] = ()
    """Further resources, in one order for all actions, with the least amount of each."""
    is_elastic: bool = False
    service: ServiceId | None = None

    @property
    def resources(self) -> list[Resource]:
        """All that it needs."""
        return [self.resource, *(resource for resource, _ in self.secondary)]


_NO_BELIEF = KnownDuration(0.0)


class Ticket:
    """An action's place in the scheduler. Lanes read it; the fields below `lane` change."""

    __slots__ = (
        "action",
        "allocation",
        "area",
        "attempt",
        "began_at",
        "belief",
        "blocked_at",
        "cell",
        "curve",
        "done_s",
        "due_at",
        "due_from",
        "form",
        "held",
        "idle_s",
        "job",
        "key",
        "lane",
        "leveled_rank",
        "load_s",
        "node",
        "num_turned_away",
        "pace",
        "place",
        "place_number",
        "prepare_s",
        "rank",
        "resident",
        "secondary",
        "seq",
        "slack_s",
        "started_at",
        "state",
        "stopping",
        "submitted_at",
        "tokens_used",
        "unit_s",
        "units",
        "units_since",
        "updated_at",
        "widths",
        "work_s",
        "workers",
    )

    def __init__(self, action: Action, form: Form, *, seq: int, now: float) -> None:
        self.action = action
        self.form = form
        self.job: JobId = action.job
        #: Order of submission; breaks every tie, so the same events give the same decisions.
        self.seq = seq
        self.submitted_at = now
        self.attempt = 1
        #: Attempts that did nothing: being turned away leaves an action as good as new.
        self.num_turned_away = 0
        #: Believed duration on one unit, and how it shrinks with more; without a curve, on what it
        #: needs. Set before the lane sees it.
        self.work_s = 0.0
        self.curve: Speedup | None = None
        #: What was seen of actions like it, and how long it is believed to take on one unit.
        self.cell: Cell | None = None
        self.belief: Belief = _NO_BELIEF
        #: Seconds of that duration that pass in one second on the least amount.
        self.pace = 1.0
        #: What its sandbox and its dispatch are expected to cost before it runs.
        self.prepare_s = 0.0
        #: The virtual deadline lanes rank by: an action past it is overdue, and is not overtaken.
        self.key = now
        #: Its place among those of its own job; see `queue`.
        self.due_at = self.due_from = now
        self.leveled_rank = 0.0
        #: How long it goes without cores, at the most, because of work that came later.
        self.slack_s = 0.0
        #: The lane it waits in, or the lane of a secondary resource it is blocked at, or neither.
        self.lane: Lane | None = None
        self.blocked_at: Lane | None = None
        self.node: NodeId | None = None
        #: Its trajectory, once that lives on a node.
        self.resident: Resident | None = None
        self.state = State.WAITING
        self.stopping: Outcome | None = None
        self.allocation: Allocation | None = None
        self.secondary: tuple[Allocation, ...] = ()
        self.tokens_used: int | None = None
        #: Units it has, since when, the unit-seconds it held before that, and how long it had none.
        self.units = 0
        self.units_since = now
        self.unit_s = self.idle_s = 0.0
        self.workers = 0
        self.widths: Widths | None = None
        self.started_at = self.began_at = now
        #: Seconds that it ran on each number of cores, where these change while it runs.
        self.held: dict[float, float] = {}
        #: Core-seconds that were expected of it when it came.
        self.load_s = 0.0
        #: Seconds of its duration on one unit that are done, as of when.
        self.done_s = 0.0
        self.updated_at = now
        #: Core-seconds for a second of that duration at the least, and the core-seconds expected
        #: per chance to end: the ticket with the smallest rank goes first.
        self.area = 1.0
        self.rank = 0.0
        #: Where it stands while it wants cores and has none, and which entry there is its own.
        self.place: Place | None = None
        self.place_number = 0

    def __repr__(self) -> str:
        return f"<Ticket {self.action.id}: {self.state.value}, key {self.key:.3f}>"

    def count_units(self, now: float) -> None:
        """Sum up what it held since its units changed last."""
        assert self.allocation is not None
        held_s = now - self.units_since
        self.unit_s += held_s * self.allocation.units
        self.idle_s += 0.0 if self.allocation.units else held_s
        self.units_since = now

    def count_work(self, now: float) -> None:
        """Add what it has done since the last count to `done_s`."""
        elapsed_s = now - self.updated_at
        if elapsed_s > 0.0:
            if self.units:
                if self.widths is None:
                    self.done_s += elapsed_s * self.pace
                else:
                    self.done_s += elapsed_s * self.widths.speed[self.units]
                    self.held[self.units] = self.held.get(self.units, 0.0) + elapsed_s
            self.updated_at = now

    def had_s(self, now: float) -> float:
        """How long it has had cores since it started."""
        idle_s = self.idle_s if self.units else self.idle_s + now - self.units_since
        return max(0.0, now - self.started_at - idle_s)


class Place(Protocol):
    """Where a ticket stands while it wants cores and has none."""

    def rerank(self, ticket: Ticket) -> None:
        """What is believed of `ticket`, which stands here, has changed."""


def record_of(
    ticket: Ticket, outcome: Outcome, reason: str, now: float, *, began_at: float | None
) -> ActionRecord:
    """How `ticket` ended, now."""
    started = ticket.state is State.RUNNING
    ticket.state = State.ENDED
    action = ticket.action
    return ActionRecord(
        action_id=action.id,
        job=action.job,
        task=action.task,
        kind=action.kind,
        trajectory=action.trajectory,
        outcome=outcome,
        reason=reason,
        submitted_at=ticket.submitted_at,
        started_at=ticket.started_at if started else None,
        began_at=began_at if started else None,
        ended_at=now,
        attempts=ticket.attempt,
        units=ticket.units,
    )


class WaitReason(Struct, frozen=True, kw_only=True):
    """Why an action does not start yet, seen from one resource."""

    resource: Resource
    needed: int
    free: int
    ahead: int
    """How many actions of the same queue go first."""
    because: str
    starts_when: str


class LaneContext(Protocol):
    """What a lane may ask of the scheduler."""

    def seize_secondary(self, ticket: Ticket, now: float) -> bool:
        """Take every further resource of `ticket`, or none.

        After `False` the ticket has left the lane: it waits for the missing resource and is pushed
        again when it is there.
        """

    def refusing(self, ticket: Ticket, now: float) -> Resource | None:
        """A further API that `ticket` needs and that would not take its calls now, if any."""

    def start(
        self,
        ticket: Ticket,
        allocation: Allocation,
        *,
        workers: int,
        prepare_s: float,
        now: float,
    ) -> None:
        """`ticket` runs on `allocation` from now on."""

    def resize(self, ticket: Ticket, cores: Cores, now: float) -> None:
        """A running `ticket` has these cores now."""

    def limit(self, ticket: Ticket, at: float) -> None:
        """The caller of `ticket` waits for it no longer than until `at`."""

    def give_up(self, ticket: Ticket, reason: str, now: float) -> None:
        """`ticket`, no longer waiting in its lane, failed without ever starting."""


class Lane(Protocol):
    """The queue in front of one pool and the idea that empties it."""

    wake_at: float | None
    """When `dispatch` has something to do although nothing happened."""

    def push(self, ticket: Ticket, now: float) -> None:
        """`ticket` waits here. Sets its key."""

    def withdraw(self, ticket: Ticket) -> None:
        """`ticket`, waiting here, was cancelled."""

    def dispatch(self, now: float) -> None:
        """Start and resize what can be, through the context."""

    def give_back(self, ticket: Ticket, now: float) -> None:
        """`ticket` no longer runs here."""

    def overdue(self, now: float) -> Ticket | None:
        """The first ticket of those that wait here past their key, if any does.

        Nothing it needs is lent to a ticket that comes after it.
        """

    def allows(self, job: JobId, units: int) -> bool:
        """Do the limits of jobs let `job` have `units` more?"""
        return True

    def bound_of(self, job: JobId) -> tuple[int | None, str]:
        """The maximum of `job`, if it has one here, and of what."""
        return None, "units"

    def reconfigure(self) -> None:
        """The limits of jobs have changed."""
        return

    def lends(self, units: int, now: float) -> bool:
        """Could `units` be lent now to an action that waits in another lane?

        A ticket that lends that many also lends fewer.
        """

    def lends_to(self, ticket: Ticket, units: int, now: float) -> bool:
        """Could they be lent to `ticket`, given what else counts there?"""
        return self.lends(units, now)

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        """Lend what `lends_to` promised."""

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        """A loan to `ticket` ended."""

    def num_waiting(self) -> int:
        """How many tickets wait here."""

    def hindrance(self, ticket: Ticket, now: float) -> WaitReason:
        """Why `ticket`, waiting here, does not start."""


class CpuLane(Lane):
    """The cores of one node: taken, lent and given back."""

    def __init__(self, node: CpuNode, context: LaneContext) -> None:
        self.wake_at: float | None = None
        self._node = node
        self._context = context

    def give_back(self, ticket: Ticket, now: float) -> None:
        assert isinstance(ticket.allocation, Cores)
        self._node.give_back(ticket.allocation.cores)

    def lends(self, units: int, now: float) -> bool:
        return units <= self._node.free

    def lend(self, ticket: Ticket, units: int, now: float) -> Allocation:
        return Cores(self._node.resource, self._node.id, self._node.take(units))

    def take_back(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        assert isinstance(allocation, Cores)
        self._node.give_back(allocation.cores)

    def _start_on(self, ticket: Ticket, units: int, now: float, *, workers: int) -> None:
        """Run `ticket`, whose further resources are seized, on `units` free cores."""
        node = self._node
        cores = Cores(node.resource, node.id, node.take(units))
        self._context.start(ticket, cores, workers=workers, prepare_s=ticket.prepare_s, now=now)
