"""Who starts before whom on cores: what only somebody beside the lanes can see."""

from dataclasses import replace
from operator import attrgetter

from artangram.core.ids import ActionId
from artangram.core.scheduling.lease import Allocation
from artangram.core.scheduling.policies.base import Lane, LaneContext, State, Ticket
from artangram.core.scheduling.policies.elastic import ElasticLane
from artangram.core.scheduling.policies.policy import SchedulingPolicy
from artangram.core.scheduling.policies.ranking import NodeUse
from artangram.core.scheduling.pools.cpu import CpuNode

QUEUED_BY_KEY = {"elastic"}
IN_LINE = {"fcfs", "fixed", "tangram", "static", "load-per-call", "unmanaged"}
"""Policies whose cores are given in order of a virtual deadline, and strictly in line."""


_order = attrgetter("key", "seq")


class Watch:
    """Sees every ticket that waits in a lane of cores, and who starts before it."""

    def __init__(self, policy_name: str) -> None:
        self._base = policy_name.partition(":")[0]
        self._num_pushed = 0
        #: Waiting tickets by the order in which they came to their lane.
        self._pushed: dict[Ticket, int] = {}
        #: Tickets started since the last check, their keys and order, and how many had come then.
        self._started: list[tuple[Ticket, float, int, int]] = []
        #: Tickets that were lent cores since, by which lane, and how many had come by then.
        self._lent: list[tuple[Ticket, Lane, int]] = []
        self._lanes: list[Lane] = []
        #: The virtual deadlines of all that ever waited for cores.
        self.keys: dict[ActionId, float] = {}

    def watched(self, chosen: SchedulingPolicy) -> SchedulingPolicy:
        """The same policy, with lanes of cores that are watched."""
        return replace(chosen, cpu=lambda *args: self._lane(chosen, *args))

    def is_elastic(self) -> bool:
        return all(isinstance(lane, ElasticLane) for lane in self._lanes)

    def starts(self, ticket: Ticket) -> None:
        self._started.append((ticket, ticket.key, self._pushed.pop(ticket), self._num_pushed))

    def check(self, now: float) -> None:
        """Nobody who still waits was passed by those who started, unless the policy allows it."""
        started, self._started = self._started, []
        self._pushed = {t: n for t, n in self._pushed.items() if t.state is State.WAITING}
        for ticket, key, order, num_come in started:
            for other, its_order in self._pushed.items():
                if other.lane is ticket.lane and its_order <= num_come:
                    if self._base in QUEUED_BY_KEY:
                        self._check_overdue(ticket, key, other, now)
                    if self._base in IN_LINE:
                        is_first = order < its_order
                        assert is_first, f"{ticket} passed {other}, which came first"

        lent, self._lent = self._lent, []
        for ticket, lane, num_come in lent:
            waiting = [t for t, n in self._pushed.items() if t.lane is lane and n <= num_come]
            if self._base in QUEUED_BY_KEY and len({t.job for t in waiting}) == 1:
                self._check_loan(ticket, min(waiting, key=_order), now)

    def _check_loan(self, ticket: Ticket, first: Ticket, now: float) -> None:
        is_before = now < first.key or _order(ticket) < _order(first)
        assert is_before, f"{ticket}, which was lent cores, passed the overdue {first}"

    def _check_overdue(self, ticket: Ticket, key: float, other: Ticket, now: float) -> None:
        """`ticket` started with `key`, and `other` still waits."""
        if other.job == ticket.job and now >= other.key:
            is_before = (key, ticket.seq) < (other.key, other.seq)
            assert is_before, f"{ticket} passed the overdue {other}"

    def _lane(
        self, chosen: SchedulingPolicy, node: CpuNode, context: LaneContext, use: NodeUse
    ) -> Lane:
        lane = chosen.cpu(node, _Spy(context, self), use)
        push, lend = lane.push, lane.lend

        def pushed(ticket: Ticket, now: float) -> None:
            push(ticket, now)
            self._num_pushed += 1
            self._pushed[ticket] = self._num_pushed
            self.keys[ticket.action.id] = ticket.key

        def lent(ticket: Ticket, units: int, now: float) -> Allocation:
            self._lent.append((ticket, lane, self._num_pushed))
            return lend(ticket, units, now)

        lane.push, lane.lend = pushed, lent
        self._lanes.append(lane)
        return lane


class _Spy:
    """A desk that lets `Watch` see every start."""

    def __init__(self, context: LaneContext, watch: Watch) -> None:
        self._desk = context
        self._watch = watch

    def __getattr__(self, name: str) -> object:
        return getattr(self._desk, name)

    def start(self, ticket: Ticket, *args: object, **fields: object) -> None:
        self._watch.starts(ticket)
        self._desk.start(ticket, *args, **fields)
