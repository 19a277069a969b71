"""Every CPU pool of the cluster, for what concerns trajectories and nodes rather than lanes.

A trajectory is known to all pools until its first action on cores shows which one it lives in.
"""

from collections.abc import Callable, Iterable

from artangram.core.errors import BadInput
from artangram.core.ids import JobId, NodeId, Resource, TrajectoryId
from artangram.core.scheduling.cluster import NodeSpec
from artangram.core.scheduling.events import TrajectoryOpened
from artangram.core.scheduling.expected import ExpectedWait, expected_wait
from artangram.core.scheduling.placement import Placement
from artangram.core.scheduling.policies.base import Lane, Ticket
from artangram.core.scheduling.pools.cpu import CpuNode

Push = Callable[[Ticket, float], None]


class CpuPools:
    """Placements by resource. `push` puts a ticket that got a node into its lane."""

    def __init__(self, placement: dict[Resource, Placement], push: Push) -> None:
        self._placement = placement
        self._push = push
        #: Was any trajectory ever opened for another one, and any node ever drained? Most clusters
        #: see neither, and need not look for what follows from it.
        self.has_families = self.has_drained = False

    def of(self, ticket: Ticket) -> Placement | None:
        """The CPU pool `ticket` needs, if any; a form has at most one."""
        form = ticket.form
        placement = self._placement.get(form.resource)
        if placement is not None or not form.secondary:
            return placement
        found = (self._placement[r] for r, _ in form.secondary if r in self._placement)
        return next(found, None)

    def check_home(self, ticket: Ticket, placement: Placement) -> None:
        """`BadInput` if the trajectory of `ticket` lives elsewhere than in `placement`."""
        trajectory = ticket.action.trajectory
        if placement.lives_here(trajectory):
            return
        for name, others in self._placement.items():
            # Two pools whose trajectories wait for memory of each other would wait for ever.
            if others is not placement and others.lives_here(trajectory):
                fix = "open another trajectory for the cores of another pool"
                raise BadInput("needs", f"its trajectory lives on {name}", fix)

    def nodes(self) -> list[CpuNode]:
        """The nodes that are there, to look at."""
        return [node for placement in self._placement.values() for node in placement.books.values()]

    def open(self, opened: TrajectoryOpened) -> None:
        """A trajectory begins."""
        self.has_families |= opened.parent is not None
        for placement in self._placement.values():
            placement.open(opened)

    def close(self, trajectory: TrajectoryId, now: float) -> None:
        """`trajectory` has nothing left to run. Without a sandbox, it is gone."""
        for placement in self._placement.values():
            if placement.close(trajectory):
                self.place_waiting(placement, now)

    def is_leaving(self, trajectory: TrajectoryId) -> bool:
        """Is it closed, with a sandbox that is not known to be gone?"""
        return any(placement.is_leaving(trajectory) for placement in self._placement.values())

    def leaving(self, resource: Resource, node: NodeId) -> list[TrajectoryId]:
        """The closed trajectories whose sandboxes are not known to be gone from a node."""
        placement = self._placement[resource]
        return placement.leaving(node) if node in placement.lanes else []

    def trajectory_gone(self, trajectory: TrajectoryId, now: float) -> None:
        """The memory of a closed trajectory is free."""
        for placement in self._placement.values():
            if placement.is_leaving(trajectory):
                placement.leave(trajectory)
                self.place_waiting(placement, now)

    def has_files(self, ticket: Ticket) -> bool:
        """Has the trajectory of `ticket` anything to lose on its node?"""
        placement = self.of(ticket)
        return placement is not None and placement.has_files(ticket.action.trajectory)

    def lone_ended(self, ticket: Ticket) -> None:
        """`ticket` waits or runs no longer; without a trajectory it leaves its node, too."""
        if ticket.node is not None and ticket.action.trajectory is None:
            placement = self.of(ticket)
            assert placement is not None
            placement.lone_ended(ticket.node)

    def join(self, resource: Resource, node: NodeId, spec: NodeSpec | None, now: float) -> None:
        """A node joins; nothing happens if it is there."""
        placement = self._placement[resource]
        if node not in placement.lanes:
            placement.add(node, spec)
            self.place_waiting(placement, now)

    def reconfigure(self, now: float) -> None:
        """What jobs may have is different now."""
        for placement in self._placement.values():
            placement.reconfigure(now)
            self.place_waiting(placement, now)

    def drain(self, resource: Resource, node: NodeId, now: float, *, is_on: bool) -> None:
        """A node takes no new trajectories, or takes them again; nothing happens without it."""
        placement = self._placement[resource]
        self.has_drained = True
        if node in placement.lanes:
            placement.drain(node, is_on=is_on)
            self.place_waiting(placement, now)

    def image_arrived(self, resource: Resource, node: NodeId, image: str) -> None:
        """A node has an image; nothing happens without the node."""
        placement = self._placement[resource]
        if node in placement.lanes:
            placement.images.arrived(placement.books[node], image)

    def stuck(self) -> list[Ticket]:
        """Tickets that have to be refused so that others can go on; see `kin`."""
        families = [one for one in self._placement.values() if one.children]
        return [ticket for placement in families for ticket in placement.stuck()]

    def expected_wait(self, job: JobId, waiting: Iterable[Ticket], now: float) -> ExpectedWait:
        """See `expected`."""
        return expected_wait(self._placement, job, waiting, now)

    def take_eased(self) -> list[Lane]:
        """Lanes where jobs wait that had their maximum and gave cores back since the last call."""
        eased = [one for one in self._placement.values() if one.use.eased]
        return [lane for placement in eased for lane in placement.take_eased()]

    def take_emptied(self) -> list[tuple[Resource, NodeId]]:
        """Draining nodes that became empty since the last call."""
        return [
            (resource, node)
            for resource, placement in self._placement.items()
            for node in placement.take_emptied()
        ]

    def place_waiting(self, placement: Placement, now: float) -> None:
        """Something changed in a pool: tickets that have a node now go into their lanes."""
        for ticket in placement.place_waiting(now):
            self._push(ticket, now)
