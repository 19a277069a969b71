"""Why a trajectory has no node yet, in words."""

from collections.abc import Sequence

from artangram.core.ids import Resource
from artangram.core.scheduling.policies.base import WaitReason
from artangram.core.scheduling.pools.cpu import CpuNode
from artangram.core.scheduling.unplaced import PlacementUnit


def without_node(
    resource: Resource,
    party: PlacementUnit,
    *,
    nodes: Sequence[CpuNode],
    ahead: int,
    is_within: bool,
    has_nodes: bool,
) -> WaitReason:
    """What `party` waits for. `nodes` have its labels; its job is `is_within` what it may have."""
    resident = party.resident
    needed = resident.memory_mb
    because = f"no node has {needed} MB (or room for a pod)"
    starts_when = f"trajectories end and free {needed} MB on one node; {ahead} go first"
    if not has_nodes:
        because, starts_when = "all nodes are lost", f"one is there again; {ahead} go first"
    elif all(node.is_draining or node.is_suspect for node in nodes):
        because = "every node it could live on is lost or draining, or does not answer"
        starts_when = f"such a node joins or answers; {ahead} go first"
    elif party.reserved is not None:
        because += f"; {party.reserved.id} is reserved for it"
        starts_when = f"trajectories on {party.reserved.id} end and free {needed} MB"
    elif not is_within:
        because = f"job {resident.job} has all the trajectories or memory it may have"
        starts_when = f"a trajectory of {resident.job} ends; {ahead} go first"
    return WaitReason(
        resource=Resource(f"{resource} memory_mb"),
        needed=needed,
        free=max((node.memory_free_mb for node in nodes), default=0),
        ahead=ahead,
        because=because,
        starts_when=starts_when,
    )
