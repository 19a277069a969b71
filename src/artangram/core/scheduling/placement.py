"""Which node a trajectory lives on.

- A trajectory gets a node at its first cpu action and stays: its files and memory are there. A
  node is eligible when it has its labels, cores for its actions and memory for the whole trajectory
  (and, with pods, the pod's request); `poolnodes` finds the best of them.
- A trajectory that fits no node waits; `unplaced` orders them. The first few that wait get
  a node reserved: nothing that takes room comes there any more, so what lives there ends and the
  node is theirs, while all other nodes go on serving those that fit. Nothing waits for ever.
- Memory is held until the sandbox is gone, not only until the trajectory is closed.
"""

from collections.abc import Iterator

from artangram.core.ids import NodeId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import ClusterSpec, CpuSpec, NodeSpec
from artangram.core.scheduling.deadlock import stuck
from artangram.core.scheduling.events import TrajectoryOpened
from artangram.core.scheduling.forms import clipped
from artangram.core.scheduling.policies.base import Lane, LaneContext, Ticket, WaitReason
from artangram.core.scheduling.policies.policy import SchedulingPolicy
from artangram.core.scheduling.policies.ranking import CoreUse, NodeUse
from artangram.core.scheduling.poolnodes import PoolNodes, SandboxCreation
from artangram.core.scheduling.pools.cpu import NOTHING, CpuNode, Resident
from artangram.core.scheduling.shapes import KnownShapes
from artangram.core.scheduling.unplaced import JobMemory, PartyKey, PlacementUnit, Unplaced
from artangram.core.scheduling.withoutnode import without_node

NODES_PER_RESERVED = 16
MOST_RESERVED = 8
"""One node in sixteen, at least one and at most eight, is reserved for those that wait."""


class Placement:
    """The nodes of one CPU pool, their lanes, where trajectories live, which wait for memory."""

    def __init__(
        self,
        resource: Resource,
        spec: CpuSpec,
        policy: SchedulingPolicy,
        context: LaneContext,
        cluster: ClusterSpec,
    ) -> None:
        self.lanes: dict[NodeId, Lane] = {}
        self._unplaced = Unplaced()
        self.children, self.lines = self._unplaced.children, self._unplaced.lines  # To look at.
        self._jobs = JobMemory(cluster.shares, cluster.limits)
        self._resource = resource
        self._spec = spec
        self._policy = policy
        self._context = context
        self.use = CoreUse(cluster.shares, cluster.limits)
        self._uses: dict[NodeId, NodeUse] = {}
        self._limits = cluster.limits
        self._nodes = PoolNodes(policy.request_milli)
        self.books = self._nodes.by_id  # To look at.
        self.images = self._nodes.images
        self._num_joined = 0
        #: Draining nodes that became empty.
        self._emptied: list[NodeId] = []
        self._shapes = KnownShapes(resource, spec)
        self._residents: dict[TrajectoryId, Resident] = {}
        self._num_holding = 0  # Residents that hold memory.
        self._creation = SandboxCreation(spec, has_rate=policy.has_control_plane)

    def add(self, node_id: NodeId, spec: NodeSpec | None = None) -> None:
        """A node joins, empty."""
        self._num_joined += 1
        node = CpuNode(self._resource, node_id, self._spec, spec, seq=self._num_joined)
        self._shapes.add(node.spec)
        use = self._uses[node_id] = NodeUse(self.use, node.cores)
        lane = self.lanes[node_id] = self._policy.cpu(node, self._context, use)
        self._nodes.add(node, lane)

    def lose(self, node_id: NodeId, now: float) -> None:
        """A node is gone with all trajectories that live there."""
        node = self._nodes.by_id[node_id]
        self._unreserve(node)
        self._nodes.remove(node)
        del self.lanes[node_id]
        self._uses.pop(node_id).lose(now)
        for trajectory in node.trajectories:
            resident = self._residents[trajectory]
            self._num_holding -= resident.memory_mb > 0
            self._jobs.give_back(resident)
            resident.node, resident.has_sandbox = None, False
            if resident.is_leaving:
                del self._residents[trajectory]

    def reconfigure(self, now: float) -> None:
        """What jobs may have is different now; `place_waiting` follows."""
        self._jobs.reconfigure()
        self.use.reconfigure(now)

    def take_eased(self) -> list[Lane]:
        """Where jobs wait that had their maximum and gave cores back since the last call."""
        jobs, self.use.eased = self.use.eased, {}
        return [self.lanes[name] for name, use in self._uses.items() if any(map(use.wants, jobs))]

    def take_emptied(self) -> list[NodeId]:
        """Draining nodes that became empty since the last call, and still are."""
        emptied, self._emptied = self._emptied, []
        return [
            name for name in emptied if name in self.lanes and self._nodes.by_id[name].is_drained()
        ]

    def drain(self, node_id: NodeId, *, is_on: bool) -> None:
        """The node gets no new trajectories, or takes them again.

        `take_emptied` tells when the last has gone.
        """
        node = self._nodes.by_id[node_id]
        if node.is_draining == is_on:
            return
        node.is_draining = is_on
        self._unreserve(node)
        self._nodes.refile(node)
        self._note_if_empty(node)

    def suspect(self, node_id: NodeId, *, is_on: bool) -> None:
        """The node gets no new trajectories while it does not answer."""
        node = self._nodes.by_id[node_id]
        node.is_suspect = is_on
        self._nodes.refile(node)
        if not is_on:
            self._note_if_empty(node)  # An orchestrator that was restarted has not let it go yet.

    def open(self, opened: TrajectoryOpened) -> None:
        """A trajectory will need what `opened` says once it has a first action here."""
        self._residents[opened.trajectory] = Resident(
            opened.job,
            memory_mb=opened.memory_mb,
            selector=frozenset(opened.selector.items()) if opened.selector else NOTHING,
            image=opened.image,
        )
        self._residents[opened.trajectory].parent = opened.parent

    def close(self, trajectory: TrajectoryId) -> bool:
        """`trajectory` has nothing left to run. Is it gone? Else its sandbox is still there."""
        resident = self._residents[trajectory]
        if not resident.has_sandbox:
            self.leave(trajectory)
            return True
        assert resident.node is not None, f"{trajectory} has a sandbox and lives on no node"
        node = self._nodes.by_id[resident.node]
        resident.is_leaving = True
        node.leaving_mb += resident.memory_mb
        node.num_leaving += 1
        return False

    def is_leaving(self, trajectory: TrajectoryId) -> bool:
        resident = self._residents.get(trajectory)
        return resident is not None and resident.is_leaving

    def leaving(self, node_id: NodeId) -> list[TrajectoryId]:
        """The closed trajectories whose sandboxes are not known to be gone from a node."""
        node = self._nodes.by_id[node_id]
        return [name for name in node.trajectories if self._residents[name].is_leaving]

    def leave(self, trajectory: TrajectoryId) -> None:
        """Nothing is left of `trajectory`."""
        resident = self._residents.pop(trajectory)
        if resident.node is not None:
            node = self._nodes.by_id[resident.node]
            self._num_holding -= resident.memory_mb > 0
            node.give_back_memory(trajectory)
            node.reserved_milli -= self._policy.request_milli
            if resident.is_leaving:
                node.leaving_mb -= resident.memory_mb
                node.num_leaving -= 1
            self._jobs.give_back(resident)
            self._nodes.refile(node)
            self._note_if_empty(node)

    def lone_ended(self, node_id: NodeId) -> None:
        """An action without a trajectory no longer waits or runs on a node."""
        node = self._nodes.by_id[node_id]
        node.num_lone -= 1
        self._note_if_empty(node)

    def check(self, ticket: Ticket) -> None:
        """`BadInput` if no node could ever hold the trajectory of `ticket`."""
        trajectory, cores = ticket.action.trajectory, self._cores_of(ticket)
        asked = frozenset(ticket.action.selector.items()) if ticket.action.selector else NOTHING
        resident = self._residents.get(trajectory) if trajectory is not None else None
        if resident is None:
            self._shapes.check(cores, 0, asked, self._policy)
            return
        if resident.node is not None and cores <= resident.cores and not asked:
            return  # It lives on a node that was chosen for as much.
        selector, cores = resident.selector | asked, max(cores, resident.cores)
        if resident.node is not None:
            self._nodes.by_id[resident.node].check(cores, selector)
        else:
            self._shapes.check(cores, resident.memory_mb, selector, self._policy)
        # Should it need another node, then one for all that it has asked for.
        resident.cores, resident.selector = cores, selector

    def lives_here(self, trajectory: TrajectoryId | None) -> bool:
        """Has `trajectory` a node here, or does it wait for one?"""
        resident = self._residents.get(trajectory) if trajectory is not None else None
        return resident is not None and (resident.node is not None or trajectory in self._unplaced)

    def place(self, ticket: Ticket, now: float) -> bool:
        """Give `ticket` a node; `False` if it has to wait for one, and now does."""
        resident, key = self._resident_of(ticket), _key(ticket)
        node = self._nodes.by_id[resident.node] if resident.node is not None else None
        if node is None and not (self._unplaced and self._waits_behind(resident, key)):
            node = self._choose(resident)
        if node is None:
            promised = self._unplaced.add(key, resident, ticket, now)
            if promised is not None:
                self._jobs.promise(resident, -1)
                promised.is_reserved = False
                self._nodes.refile(promised)
            return False
        self._assign(ticket, resident, node, now)
        return True

    def withdraw(self, ticket: Ticket) -> None:
        """`ticket`, which has no node, waits no longer."""
        party = self._unplaced.withdraw(_key(ticket), ticket)
        if party is not None:
            self._free_reserved(party)

    def has_files(self, trajectory: TrajectoryId | None) -> bool:
        """Would the loss of its node cost `trajectory` anything?"""
        resident = self._residents.get(trajectory) if trajectory is not None else None
        return resident is not None and resident.has_sandbox

    def place_waiting(self, now: float) -> list[Ticket]:
        """Something changed: the tickets that have a node now, in the order they got it."""
        placed: list[Ticket] = []
        while self._unplaced and (found := self._next()) is not None:
            party, node = found
            self._unplaced.serve(party, now)
            self._free_reserved(party)
            for ticket in party.tickets:
                self._assign(ticket, party.resident, node, now)
            placed += party.tickets
        if self._unplaced:
            self._reserve()
        return placed

    def stuck(self) -> list[Ticket]:
        """What has to be refused, because nothing will ever be freed for it; see `kin`."""
        return stuck(self._unplaced, self._residents, self.books.values(), self._num_holding)

    def hindrance(self, ticket: Ticket) -> WaitReason:
        """Why `ticket` has no node."""
        party = self._unplaced.get(_key(ticket))
        return without_node(
            self._resource,
            party,
            nodes=list(self._nodes.index(party.resident.selector).nodes()),
            ahead=self._unplaced.num_before(party),
            is_within=self._jobs.is_within(party.resident),
            has_nodes=bool(self._nodes),
        )

    def _takes_room(self, resident: Resident) -> bool:
        """Would it take room that a waiting trajectory may need?"""
        return resident.memory_mb > 0 or self._policy.request_milli > 0

    def _waits_behind(self, resident: Resident, key: PartyKey) -> bool:
        """Must it stand in line although it might fit?"""
        if key in self._unplaced:
            return True
        # A limited one waits behind the others of its job; `place_waiting` follows.
        return bool(self._limits) and not resident.is_lone

    def _next(self) -> tuple[PlacementUnit, CpuNode] | None:
        """The first of those that fit somewhere, and its node."""
        for party in self._unplaced.reserved.values():
            resident, node = party.resident, party.reserved
            assert node is not None
            if self._nodes.fits(resident, node):
                if self._leaves_minimums(resident, beside_mb=node.memory_free_mb):
                    return party, node
            elif (found := self._choose(resident, is_promised=True)) is not None:
                return party, found
        for party in self._in_order():
            found = self._choose(party.resident)
            if found is not None:
                return party, found
        return None

    def _in_order(self) -> Iterator[PlacementUnit]:
        """Those that may have a node, in order; one of all that ask for the same."""
        held_back = set()
        for party in self._unplaced.heads(self._jobs.rank):
            job = party.resident.job
            if not self._jobs.is_within(party.resident):
                held_back.add(job)  # Else smaller ones of the same job would pass it for ever.
            elif job not in held_back:
                yield party

    def _reserve(self) -> None:
        """Those that go first and fit nowhere get a node of their own to wait for."""
        most = min(MOST_RESERVED, max(1, len(self._nodes) // NODES_PER_RESERVED))
        while len(self._unplaced.reserved) < most:
            for party in self._in_order():
                resident = party.resident
                index = self._nodes.index(resident.selector)
                is_short = self._takes_room(resident) and not index.has_room(resident.memory_mb)
                node = self._nodes.to_reserve(resident) if is_short else None
                if node is not None:
                    break
            else:
                return
            self._unplaced.reserve(party, node)
            self._jobs.promise(resident, 1)
            node.is_reserved = True
            self._nodes.refile(node)

    def _free_reserved(self, party: PlacementUnit) -> None:
        """A party has a node or waits no longer: others may come to the one it was promised."""
        if party.reserved is not None:
            self._jobs.promise(party.resident, -1)
            party.reserved.is_reserved = False
            self._nodes.refile(party.reserved)
            party.reserved = None

    def _unreserve(self, node: CpuNode) -> None:
        """A node is lost or drains: a trajectory that it was reserved for waits in line again."""
        for party in self._unplaced.reserved.values():
            if party.reserved is node:
                self._unplaced.unreserve(party)
                self._jobs.promise(party.resident, -1)
                node.is_reserved = False
                return

    def _note_if_empty(self, node: CpuNode) -> None:
        if node.is_drained():
            self._emptied.append(node.id)

    def _leaves_minimums(self, resident: Resident, *, beside_mb: int = 0) -> bool:
        """Is what other jobs are promised still free when it has come?"""
        if not self._limits or not resident.memory_mb:
            return True
        free_mb = self._nodes.free_mb + beside_mb
        return free_mb - resident.memory_mb >= self._jobs.kept_mb(resident.job)

    def _choose(self, resident: Resident, *, is_promised: bool = False) -> CpuNode | None:
        """The best node for it that has room, if its job may have it."""
        takes_room = self._takes_room(resident)
        if takes_room and not self._nodes.index(resident.selector).has_room(resident.memory_mb):
            return None
        if not (is_promised or self._jobs.is_within(resident)):
            return None
        if takes_room and not self._leaves_minimums(resident):
            return None
        return self._nodes.best(resident, takes_room=takes_room)

    def _assign(self, ticket: Ticket, resident: Resident, node: CpuNode, now: float) -> None:
        trajectory = ticket.action.trajectory
        if trajectory is None:
            node.num_lone += 1
        else:
            ticket.resident = resident
            if resident.node is None:
                self._settle(trajectory, resident, node)
        ticket.node = node.id
        ticket.prepare_s = self._spec.overhead_s
        if not resident.has_sandbox:
            ticket.prepare_s += self._creation.takes_s(now)
        form = ticket.form
        if form.resource == self._resource and form.amounts[-1] > node.cores:
            ticket.form = clipped(form, node.cores)

    def _settle(self, trajectory: TrajectoryId, resident: Resident, node: CpuNode) -> None:
        node.hold_memory(trajectory, resident.memory_mb)
        node.reserved_milli += self._policy.request_milli
        resident.node = node.id
        self._num_holding += resident.memory_mb > 0
        self._jobs.take(resident)
        self._nodes.refile(node)

    def _cores_of(self, ticket: Ticket) -> int:
        """The least it needs of a node here."""
        form = ticket.form
        if form.resource == self._resource:
            return form.amounts[0]
        return next(units for name, units in form.secondary if name == self._resource)

    def _resident_of(self, ticket: Ticket) -> Resident:
        trajectory = ticket.action.trajectory
        resident = self._residents.get(trajectory) if trajectory is not None else None
        if resident is not None:
            return resident
        asked = ticket.action.selector
        selector = frozenset(asked.items()) if asked else NOTHING
        alone = Resident(ticket.job, selector=selector, is_lone=True)
        alone.cores = self._cores_of(ticket)
        return alone


def _key(ticket: Ticket) -> PartyKey:
    return ticket if ticket.action.trajectory is None else ticket.action.trajectory
