"""Parents that hold memory and wait for children that wait for memory.

A trajectory that is opened with a `parent` is one that its parent waits for. When everything that
holds memory of a pool waits, directly or through its children, for one that has none, nothing will
ever be freed. Then the youngest of those that wait is refused: its parent hears of it and goes on.
"""

from collections.abc import Iterable, Mapping

from artangram.core.ids import TrajectoryId
from artangram.core.scheduling.policies.base import Ticket
from artangram.core.scheduling.pools.cpu import CpuNode, Resident
from artangram.core.scheduling.unplaced import Unplaced

STUCK = (
    "every trajectory that holds memory waits for one that waits for memory; open fewer of them at "
    "once, or with less memory"
)


def stuck(
    unplaced: Unplaced,
    residents: Mapping[TrajectoryId, Resident],
    nodes: Iterable[CpuNode],
    num_holding: int,
) -> list[Ticket]:
    """What has to be refused so that the others can go on; nothing while anything may be freed.

    `num_holding` trajectories hold memory of the pool, those included that are being closed. While
    none of its `nodes` takes trajectories, all wait for one that does.
    """
    if all(node.is_draining or node.is_suspect for node in nodes):
        return []
    waiting: set[TrajectoryId] = set()
    for party in unplaced.children.values():
        name = party.resident.parent
        while name is not None and name not in waiting and name in residents:
            waiting.add(name)
            name = residents[name].parent
    holding = sum(1 for name in waiting if _holds(residents[name]))
    if not num_holding or holding < num_holding:
        return []
    youngest = next(reversed(unplaced.children.values()))
    return list(youngest.tickets)


def _holds(resident: Resident) -> bool:
    return resident.node is not None and resident.memory_mb > 0 and not resident.is_leaving
