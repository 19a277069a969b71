"""Where tickets stand: every lane of the cluster, and the ways between them.

- A ticket is in exactly one place: unplaced (no node has memory for its trajectory), in its lane,
  or blocked at the lane of a secondary resource that is missing.
- All resources of an action are taken together or not at all, so nothing waits while holding.
- A blocked ticket that is overdue claims all lanes it needs: no ticket with a later key starts
  there before it. The smallest key wins every claim, so claims cannot block each other for ever.
"""

from collections import OrderedDict
from collections.abc import Iterable

from artangram.core.ids import NodeId, Resource, ServiceId
from artangram.core.scheduling.blocked import Blocked, Claims, is_before
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    GpuSpec,
    NodeSpec,
    QuotaSpec,
    ServiceSpec,
    node_ids,
)
from artangram.core.scheduling.cpupools import CpuPools
from artangram.core.scheduling.events import Reconfigured, ServiceLost
from artangram.core.scheduling.explain import (
    Explanation,
    claimed,
    explanation,
    of_side,
    unanswered,
)
from artangram.core.scheduling.lease import is_on
from artangram.core.scheduling.nodeslots import NodeSlots
from artangram.core.scheduling.placement import Placement
from artangram.core.scheduling.policies.base import Lane, LaneContext, State, Ticket, WaitReason
from artangram.core.scheduling.policies.gpulane import GpuLane
from artangram.core.scheduling.policies.policy import QuotaLane, SchedulingPolicy
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.pools.functions import FunctionPool
from artangram.core.scheduling.pools.gpu import GpuPool
from artangram.core.scheduling.pools.quota import QuotaPool
from artangram.core.scheduling.reconfigure import changed_in_place
from artangram.core.scheduling.wakes import Wakes


class Lanes:
    """Lanes by resource, and what moves tickets between them."""

    def __init__(
        self, cluster: ClusterSpec, policy: SchedulingPolicy, context: LaneContext
    ) -> None:
        self.cluster = changed_in_place(Reconfigured(), cluster, is_first=True)
        #: Had any job ever limits? Most clusters know none, and need not look what they hold back.
        self._has_limits = bool(cluster.limits)
        self._policy = policy
        self._context = context
        self.placement: dict[Resource, Placement] = {}
        self.cpu = CpuPools(self.placement, self._push)
        self._gpu: dict[Resource, GpuLane] = {}
        self._quota: dict[Resource, QuotaLane] = {}
        self._lanes: dict[Resource, Lane] = {}
        self._counted: dict[Resource, QuotaPool | FunctionPool] = {}
        #: Lanes to dispatch, in the order they were touched.
        self._touched: OrderedDict[Lane, None] = OrderedDict()
        self.slots = NodeSlots(self._counted, self._lanes, self.placement, self._touched)
        self._wakes, self._blocked, self._claims = Wakes(), Blocked(), Claims()
        #: Of nodes that do not answer: nothing starts there.
        self._suspects: set[Lane] = set()
        for resource in cluster.pools:
            self._add_pool(resource)

    def admit(self, ticket: Ticket, now: float) -> None:
        """`ticket` waits from now on, somewhere."""
        placement = self.placement.get(ticket.form.resource) or self.cpu.of(ticket)
        if placement is not None and not placement.place(ticket, now):
            self.cpu.place_waiting(placement, now)
            return
        self._push(ticket, now)

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """`ticket` waits no longer, wherever it stood."""
        placement = self.cpu.of(ticket)
        if ticket.lane is not None:
            ticket.lane.withdraw(ticket)
            self._touched[ticket.lane] = None
            ticket.lane = None
        elif ticket.blocked_at is not None:
            self._blocked.withdraw(ticket)
        elif placement is not None and ticket.node is None:
            placement.withdraw(ticket)
            self.cpu.place_waiting(placement, now)
        self.cpu.lone_ended(ticket)
        self._unclaim(ticket, now)

    def touch(self, tickets: Iterable[Ticket]) -> None:
        """What is believed of `tickets`, candidates of their lanes, has changed."""
        for ticket in tickets:
            assert ticket.lane is not None, f"{ticket} stands in no lane"
            self._touched[ticket.lane] = None

    def release(self, ticket: Ticket, now: float, *, lost: NodeId | None = None) -> None:
        """A running ticket gives back what it holds, except what a lost node took with it."""
        allocation, lane = ticket.allocation, self._lane_of(ticket, ticket.form.resource)
        if lane is not None and allocation is not None and not (lost and is_on(allocation, lost)):
            lane.give_back(ticket, now)
            self._touched[lane] = None
        for side in ticket.secondary:
            lender = self._lane_of(ticket, side.resource)
            if lender is not None and not (lost and is_on(side, lost)):
                lender.take_back(ticket, side, now)
                self._touched[lender] = None
        ticket.allocation, ticket.secondary = None, ()
        if ticket.action.trajectory is None:
            self.cpu.lone_ended(ticket)

    def check(self, ticket: Ticket) -> None:
        """`BadInput` if no node or device could ever serve `ticket`."""
        placement = self.placement.get(ticket.form.resource) or self.cpu.of(ticket)
        if placement is not None:
            placement.check(ticket)
            if len(self.placement) > 1:
                self.cpu.check_home(ticket, placement)
        for resource, gpu in self._gpu.items():
            if ticket.action.needs.of(resource):
                gpu.check(ticket)

    def dispatch(self, now: float) -> float | None:
        """Let every lane act that something happened to, or whose time has come.

        Returns when it has something to do again although nothing happens.
        """
        touched, wakes = self._touched, self._wakes
        if wakes.heap and wakes.heap[0][0] <= now:
            for lane in wakes.take_due(now):
                touched[lane] = None
        while (self._blocked.lacking and self._unblock(now)) or touched or self._ease(now):
            while touched:
                lane, _ = touched.popitem(last=False)
                if lane in self._suspects:
                    continue
                lane.dispatch(now)
                if lane.wake_at is not None:
                    wakes.ask(lane, lane.wake_at)
        return wakes.next_at() if wakes.heap else None

    def seize_secondary(self, ticket: Ticket, now: float) -> bool:
        """Take all secondary resources of `ticket`, or block it at the first that is missing."""
        if not ticket.form.secondary and not self._claims.claimants:
            return True
        lane = ticket.lane
        assert lane is not None
        ticket.lane = None
        sides = [(self._side_lane(ticket, name), units) for name, units in ticket.form.secondary]
        for side, units in sides:
            if not side.allows(ticket.job, units):
                self._blocked.hold_back(ticket, side)
                self._unclaim(ticket, now)
                return False
        for side, units in sides:
            if not self._is_lent(side, ticket, units, now):
                self._blocked.add(ticket, side)
                self._await(ticket, side, now)
                return False
        if self._claims.keep_out(lane, ticket):
            self._blocked.bar(ticket, lane)
            self._await(ticket, lane, now)
            return False
        ticket.lane = lane
        ticket.secondary = tuple(side.lend(ticket, units, now) for side, units in sides)
        self._unclaim(ticket, now)
        return True

    def refusing(self, ticket: Ticket, now: float) -> Resource | None:
        for api, units in ticket.form.secondary:
            if api in self._quota and not self._is_lent(self._quota[api], ticket, units, now):
                return api
        return None

    def node_joined(
        self, resource: Resource, node: NodeId, spec: NodeSpec | None, now: float
    ) -> None:
        if resource in self._gpu:
            self._gpu[resource].node_joined(node)
            self._touched[self._gpu[resource]] = None
        else:
            self.cpu.join(resource, node, spec, now)

    def suspect(self, resource: Resource, node: NodeId, now: float, *, is_on: bool) -> None:
        """A node does not answer, or does again; nothing happens without it."""
        placement = self.placement[resource]
        lane = placement.lanes.get(node)
        if lane is None:
            return
        placement.suspect(node, is_on=is_on)
        if is_on:
            self._suspects.add(lane)
        else:
            self._suspects.discard(lane)
            self._touched[lane] = None
            self.cpu.place_waiting(placement, now)

    def node_lost(self, resource: Resource, node: NodeId, now: float) -> None:
        """Forget a node; no ticket waits or runs there any more."""
        if resource in self._gpu:
            self._gpu[resource].node_lost(node)
            self._touched[self._gpu[resource]] = None
            return
        lane = self.placement[resource].lanes[node]
        self.placement[resource].lose(node, now)
        self.slots.lose(node)
        self._touched.pop(lane, None)
        self._wakes.forget(lane)
        self._claims.forget(lane)
        self._suspects.discard(lane)

    def has_node(self, resource: Resource, node: NodeId) -> bool:
        return resource in self._gpu or node in self.placement[resource].lanes

    def depends_on(self, ticket: Ticket, node: NodeId) -> bool:
        """Would the loss of `node` touch `ticket`?"""
        if ticket.node == node:
            return True
        held = (ticket.allocation, *ticket.secondary)
        return any(a is not None and is_on(a, node) for a in held)

    def deploy(self, service: ServiceId, spec: ServiceSpec) -> None:
        """From now on there is such a service; `Forms` has checked it."""
        self._gpu[spec.pool].deploy(service, spec)

    def service_lost(self, event: ServiceLost) -> None:
        lane = self._gpu[event.resource]
        lane.service_lost(event.node, first=event.first, degree=event.degree, service=event.service)
        self._touched[lane] = None

    def throttled(self, resource: Resource, until: float) -> None:
        self._quota[resource].throttled(until)
        self._touched[self._quota[resource]] = None

    def reconfigure(self, event: Reconfigured, now: float) -> None:
        """Shares, limits of jobs or pools are others now."""
        self.cluster = changed_in_place(event, self.cluster)
        self._has_limits |= bool(event.limits)
        for name, spec in event.pools.items():
            self._counted[name].reconfigure(spec, now)
        for lane in self._lanes.values():
            lane.reconfigure()
            self._touched[lane] = None
        self.cpu.reconfigure(now)

    def explain(self, ticket: Ticket, now: float) -> Explanation:
        """Why `ticket` waits, if it does."""
        hindrances = self._hindrances(ticket, now) if ticket.state is State.WAITING else []
        return explanation(ticket, hindrances)

    def _hindrances(self, ticket: Ticket, now: float) -> list[WaitReason]:
        hindrances: list[WaitReason] = []
        placement = self.cpu.of(ticket)
        if ticket.lane in self._suspects:
            hindrances.append(unanswered(ticket))
        elif ticket.lane is not None:
            hindrances.append(ticket.lane.hindrance(ticket, now))
        elif placement is not None and ticket.node is None:
            hindrances.append(placement.hindrance(ticket))
        for resource, units in ticket.form.secondary:
            lane = self._lane_of(ticket, resource)
            ahead = 0 if lane is None else self._blocked.num_before(ticket, lane)
            hindrances += of_side(ticket, lane, resource, units, ahead=ahead, now=now)
        if ticket.blocked_at is not None and not hindrances:
            hindrances.append(claimed(*self._need_at(ticket, ticket.blocked_at)))
        return hindrances

    def _add_pool(self, resource: Resource) -> None:
        spec, policy = self.cluster.pools[resource], self._policy
        served = FairUsage(self.cluster.shares, self.cluster.limits)
        match spec:
            case CpuSpec():
                placement = Placement(resource, spec, policy, self._context, self.cluster)
                self.placement[resource] = placement
                for node in node_ids(resource, spec.nodes):
                    placement.add(node)
            case GpuSpec():
                gpus = GpuPool(resource, spec, self.cluster.services)
                gpu = policy.gpu(gpus, self._context, served)
                self._gpu[resource] = self._lanes[resource] = gpu
            case QuotaSpec():
                self._counted[resource] = calls = QuotaPool(resource, spec)
                quota = policy.quota(calls, self._context, served)
                self._quota[resource] = self._lanes[resource] = quota
            case _:
                self._counted[resource] = pool = FunctionPool(resource, spec)
                self._lanes[resource] = policy.functions(pool, self._context, served)

    def _lane_of(self, ticket: Ticket, resource: Resource) -> Lane | None:
        placement = self.placement.get(resource)
        if placement is None:
            return self._lanes[resource]
        return placement.lanes.get(ticket.node) if ticket.node is not None else None

    def _side_lane(self, ticket: Ticket, resource: Resource) -> Lane:
        lane = self._lane_of(ticket, resource)
        assert lane is not None, f"{ticket} has no node for {resource}"
        return lane

    def _push(self, ticket: Ticket, now: float) -> None:
        lane = self._lane_of(ticket, ticket.form.resource)
        assert lane is not None, f"{ticket} has no lane"
        ticket.lane = lane
        lane.push(ticket, now)
        self._touched[lane] = None

    def _ease(self, now: float) -> bool:
        """Let go on what waited for its own job to give something back. Was there any?"""
        if not self._has_limits:
            return False
        for lane in self.cpu.take_eased():
            self._touched[lane] = None
        for lane, ticket in self._blocked.held_back():
            if lane.allows(ticket.job, self._need_at(ticket, lane)[1]):
                self._blocked.withdraw(ticket)
                self._push(ticket, now)
        return bool(self._touched)

    def _await(self, ticket: Ticket, lane: Lane, now: float) -> None:
        """A blocked ticket has to wait; once overdue, it claims what it needs."""
        if now >= ticket.key:
            self._claim(ticket)
        at = self._lends_at(ticket, lane, now)
        if at is not None:
            self._wakes.ask(lane, at)

    def _lends_at(self, ticket: Ticket, lane: Lane, now: float) -> float | None:
        """When time alone may help a blocked ticket: a window moves on, or it becomes overdue."""
        times = [ticket.key] if now < ticket.key else []
        for resource, units in ticket.form.secondary:
            quota = self._quota.get(resource)
            if quota is lane and quota is not None:
                at = quota.lends_at(ticket, units, now)
                times += [] if at is None else [at]
        return min(times, default=None)

    def _unblock(self, now: float) -> bool:
        """Push the blocked tickets that find now what was missing. Were there any?"""
        return any([self._unblock_at(lane, now) for lane in self._blocked.lanes()])

    def _unblock_at(self, lane: Lane, now: float) -> bool:
        """As many of the first blocked at `lane` as it could serve together."""
        is_pushed = False
        units = 0
        while (ticket := self._blocked.first(lane)) is not None:
            units += self._need_at(ticket, lane)[1]
            if not self._is_lent(lane, ticket, units, now):
                self._await(ticket, lane, now)
                break
            self._blocked.withdraw(ticket)
            self._push(ticket, now)
            is_pushed = True
        return is_pushed

    def _need_at(self, ticket: Ticket, lane: Lane) -> tuple[Resource, int]:
        """What `ticket` needs of `lane`, which is one of its own."""
        for resource, units in ticket.form.secondary:
            if self._lane_of(ticket, resource) is lane:
                return resource, units
        return ticket.form.resource, ticket.form.amounts[0]

    def _is_lent(self, lane: Lane, ticket: Ticket, units: int, now: float) -> bool:
        """May `ticket` have `units` of `lane` now? Not what the overdue there needs before it."""
        if (
            self._claims.keep_out(lane, ticket)
            or lane in self._suspects
            or not lane.lends_to(ticket, units, now)
        ):
            return False
        first = lane.overdue(now)
        if first is None or not is_before(first, ticket):
            return True
        # A lane that has yet to act may have enough for several: it serves overdue tickets first.
        return lane not in self._touched and lane.lends(units + first.form.amounts[0], now)

    def _claim(self, ticket: Ticket) -> None:
        resources = (ticket.form.resource, *(resource for resource, _ in ticket.form.secondary))
        self._claims.add(ticket, [self._side_lane(ticket, resource) for resource in resources])

    def _unclaim(self, ticket: Ticket, now: float) -> None:
        if not self._claims.claimants:
            return
        lanes = self._claims.give_up(ticket)
        if lanes:
            self._claim_next(now)
        for lane in lanes:
            self._touched[lane] = None
            for barred in self._blocked.unbar(lane, self._claims.of(lane)):
                self._push(barred, now)

    def _claim_next(self, now: float) -> None:
        """A claim was given up: overdue tickets that had to leave it to another one claim now."""
        for ticket in self._blocked.firsts():
            if now >= ticket.key:
                self._claim(ticket)
