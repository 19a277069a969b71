"""Which node a trajectory lives on.

A trajectory is housed at its first cpu action and stays: its files and memory are there. A node is
eligible when it has memory for the whole trajectory (and, with pods, the pod's request). Among
those, the best has for its size the fewest busy cores, trajectories and waiting actions, and the
least of its memory held; one sum weighs them. Who fits no node waits in line, and nobody who needs
room passes, so that a large trajectory does not wait for ever. Who needs none waits for no one, but
for a node.
"""

from collections import OrderedDict

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import CpuSpec
from artangram.core.scheduling.policies.base import Hindrance, Lane, LaneContext, Ticket
from artangram.core.scheduling.policies.policy import SchedulingPolicy
from artangram.core.scheduling.policies.queue import FairUsage
from artangram.core.scheduling.pools.cpu import CpuNode

QUEUE_WEIGHT = 4.0
"""A waiting action counts as much as so many resident trajectories, most of which are thinking."""


SAMPLE = 8
"""Nodes compared for one trajectory, in turn: the best of a few is nearly as good as the best."""


class Placement:
    """The nodes of one CPU pool, their lanes, who lives where, and who waits for memory."""

    def __init__(
        self,
        resource: Resource,
        spec: CpuSpec,
        policy: SchedulingPolicy,
        context: LaneContext,
        shares: dict[JobId, float],
    ) -> None:
        self.lanes: dict[NodeId, Lane] = {}
        #: Trajectories (or single tickets) that fit no node yet, oldest first, and their tickets.
        self._unplaced: OrderedDict[TrajectoryId | Ticket, list[Ticket]] = OrderedDict()
        self._resource = resource
        self._spec = spec
        self._policy = policy
        self._context = context
        self._shares = shares
        self._nodes: dict[NodeId, CpuNode] = {}
        self._ids: list[NodeId] = []
        self._turn = 0
        self._memory_mb: dict[TrajectoryId, int] = {}
        self._node_of: dict[TrajectoryId, NodeId] = {}
        #: Trajectories whose sandbox exists.
        self._with_sandbox: set[TrajectoryId] = set()
        self._next_pod_at = 0.0

    def add(self, node_id: NodeId) -> None:
        """A node joins, empty."""
        for party, (ticket, *_) in reversed(list(self._unplaced.items())):
            if not self._takes_room(ticket):
                self._unplaced.move_to_end(party, last=False)
        node = CpuNode(self._resource, node_id, self._spec)
        self._nodes[node_id] = node
        self._ids.append(node_id)
        self.lanes[node_id] = self._policy.cpu(node, self._context, FairUsage(self._shares))

    def lose(self, node_id: NodeId) -> None:
        """A node is gone with all who live there."""
        del self.lanes[node_id]
        self._ids.remove(node_id)
        for trajectory in self._nodes.pop(node_id).trajectories:
            del self._node_of[trajectory]
            self._with_sandbox.discard(trajectory)

    def open(self, trajectory: TrajectoryId, memory_mb: int) -> None:
        """`trajectory` will need `memory_mb` once it has a first action here."""
        self._memory_mb[trajectory] = memory_mb

    def leave(self, trajectory: TrajectoryId) -> None:
        """`trajectory` ended."""
        self._memory_mb.pop(trajectory, None)
        self._with_sandbox.discard(trajectory)
        home = self._node_of.pop(trajectory, None)
        if home is not None:
            node = self._nodes[home]
            node.give_back_memory(trajectory)
            node.reserved_milli -= self._policy.request_milli

    def check(self, ticket: Ticket) -> None:
        """`BadInput` if no node could ever hold the trajectory of `ticket`."""
        if self._policy.request_milli > 1000 * self._spec.cores:
            raise BadInput(
                "policy",
                f"no node of {self._resource} has the cores that {self._policy.name} reserves",
                f"reserve {self._spec.cores} or less",
            )
        memory_mb, most = self._memory_of(ticket), self._spec.memory_mb
        if memory_mb > most:
            raise BadInput(
                "memory_mb",
                f"{memory_mb} can never fit: a node of {self._resource} has {most}",
                "open the trajectory with less memory",
            )

    def lives_here(self, trajectory: TrajectoryId | None) -> bool:
        """Has `trajectory` a node here, or does it wait for one?"""
        return trajectory in self._node_of or trajectory in self._unplaced

    def place(self, ticket: Ticket, now: float) -> bool:
        """Give `ticket` a node; `False` if it has to wait for memory, and now does."""
        trajectory = ticket.action.trajectory
        node = self._node_of.get(trajectory) if trajectory is not None else None
        if node is None and not (self._unplaced and self._takes_room(ticket)):
            node = self._choose(ticket)
        if node is None:
            self._unplaced.setdefault(_party(ticket), []).append(ticket)
            return False
        self._assign(ticket, node, now)
        return True

    def withdraw(self, ticket: Ticket) -> None:
        """`ticket`, which has no node, waits no longer."""
        party = _party(ticket)
        self._unplaced[party].remove(ticket)
        if not self._unplaced[party]:
            del self._unplaced[party]

    def has_sandbox(self, trajectory: TrajectoryId) -> None:
        """An action of `trajectory` started: its sandbox exists."""
        self._with_sandbox.add(trajectory)

    def has_files(self, trajectory: TrajectoryId | None) -> bool:
        """Would the loss of its node cost `trajectory` anything?"""
        return trajectory in self._with_sandbox

    def place_waiting(self, now: float) -> list[Ticket]:
        """Room came free: the tickets that have a node now, oldest first, nobody passed."""
        is_placed: list[Ticket] = []
        while self._unplaced:
            party, tickets = next(iter(self._unplaced.items()))
            node = self._choose(tickets[0])
            if node is None:
                break
            del self._unplaced[party]
            for ticket in tickets:
                self._assign(ticket, node, now)
            is_placed += tickets
        return is_placed

    def hindrance(self, ticket: Ticket) -> Hindrance:
        """Why `ticket` has no node."""
        needed = self._memory_of(ticket)
        free = max((node.memory_free_mb for node in self._nodes.values()), default=0)
        ahead = list(self._unplaced).index(_party(ticket))
        because = f"no node has {needed} MB (or room for a pod) for its trajectory"
        starts_when = f"trajectories end and free {needed} MB on one node; {ahead} go first"
        if not self._nodes:
            because, starts_when = "all nodes are lost", f"one is there again; {ahead} go first"
        return Hindrance(
            resource=Resource(f"{self._resource} memory_mb"),
            needed=needed,
            free=free,
            ahead=ahead,
            because=because,
            starts_when=starts_when,
        )

    def _takes_room(self, ticket: Ticket) -> bool:
        """Would `ticket` take room that somebody may wait for?"""
        return self._memory_of(ticket) > 0 or self._policy.request_milli > 0

    def _choose(self, ticket: Ticket) -> NodeId | None:
        memory_mb = self._memory_of(ticket)
        ids = self._ids
        if len(ids) > SAMPLE:
            first = self._turn = (self._turn + SAMPLE) % len(ids)
            some = self._best_of((ids[first:] + ids[:first])[:SAMPLE], memory_mb)
            if some is not None:
                return some
        return self._best_of(ids, memory_mb)

    def _best_of(self, ids: list[NodeId], memory_mb: int) -> NodeId | None:
        best: NodeId | None = None
        best_score = float("inf")
        request = self._policy.request_milli
        for node_id in ids:
            node = self._nodes[node_id]
            cores, free_mb = node.cores, node.memory_free_mb
            if memory_mb > free_mb or node.reserved_milli + request > 1000 * cores:
                continue
            waiting = self.lanes[node_id].num_waiting()
            crowd = len(node.trajectories) + cores - node.free + QUEUE_WEIGHT * waiting
            score = crowd / cores
            if node.memory_mb:
                score += 1.0 - free_mb / node.memory_mb
            if score < best_score:
                best, best_score = node_id, score
        return best

    def _assign(self, ticket: Ticket, node: NodeId, now: float) -> None:
        trajectory = ticket.action.trajectory
        if trajectory is not None and trajectory not in self._node_of:
            self._settle(trajectory, node)
        ticket.node = node
        ticket.prepare_s = self._spec.overhead_s
        if trajectory is None or trajectory not in self._with_sandbox:
            ticket.prepare_s += self._create_s(now)

    def _settle(self, trajectory: TrajectoryId, node_id: NodeId) -> None:
        node = self._nodes[node_id]
        node.hold_memory(trajectory, self._memory_mb.get(trajectory, 0))
        node.reserved_milli += self._policy.request_milli
        self._node_of[trajectory] = node_id

    def _memory_of(self, ticket: Ticket) -> int:
        trajectory = ticket.action.trajectory
        return self._memory_mb.get(trajectory, 0) if trajectory is not None else 0

    def _create_s(self, now: float) -> float:
        if not self._policy.has_control_plane:
            return self._spec.create_s
        slot = max(now, self._next_pod_at)
        self._next_pod_at = slot + 1.0 / self._spec.pods_per_s
        return slot - now + self._spec.create_s


def _party(ticket: Ticket) -> TrajectoryId | Ticket:
    """Who needs a node: a trajectory with all of its tickets, or a ticket without one."""
    return ticket if ticket.action.trajectory is None else ticket.action.trajectory
