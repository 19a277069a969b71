"""The snapshots that the nodes of a cluster keep: all of them, one by its name, and the end of one.

A node that does not answer in time is left out of a list; it is asked again the next time.
"""

import asyncio
from collections.abc import Mapping

from msgspec import structs

from artangram.core.errors import BadInput
from artangram.core.ids import NodeId
from artangram.managers.agent import AgentGone, NodeAgent
from artangram.orchestrator.records import Opening
from artangram.sandbox.errors import SandboxGone
from artangram.sandbox.protocol import Snapshot
from artangram.sandbox.snapshot import SnapshotInfo

PATIENCE_S = 5.0
"""A node that copies files for a snapshot answers late."""

_LIST = "`client.snapshots()` and `artangram snapshots` list them"

Nodes = Mapping[NodeId, NodeAgent]


async def kept(nodes: Nodes) -> tuple[SnapshotInfo, ...]:
    """Of all nodes, the newest first."""
    found = await asyncio.gather(*map(_of, nodes.values()))
    return tuple(sorted((one for all_of in found for one in all_of), key=lambda one: one.age_s))


async def _of(agent: NodeAgent) -> list[SnapshotInfo]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return [structs.replace(one, node=agent.node) for one in await agent.snapshots()]
    except (TimeoutError, AgentGone):
        return []


async def forgotten(nodes: Nodes, snapshot: Snapshot) -> None:
    """No node has it any more; without a node, no node has one of that name."""
    await _forget(nodes, await _matching(nodes, snapshot))


async def forgotten_elsewhere(nodes: Nodes, newest: Snapshot) -> None:
    """The name means `newest` from now on."""
    same = await _matching(nodes, Snapshot(name=newest.name), or_none=True)
    await _forget(nodes, [one for one in same if one != newest])


async def placed(nodes: Nodes, opening: Opening) -> Opening:
    """With a snapshot that is given by its name alone, the node and the provider that have it.

    One whose node is gone may have copies on others; `SandboxGone` without any.
    """
    source = opening.place.source
    if not isinstance(source, Snapshot) or source.node in nodes:
        return opening
    if source.node:
        copies = await _matching(nodes, Snapshot(name=source.name), or_none=True)
        if not copies:
            raise SandboxGone(f"{source.node} was lost, and its snapshots with it")
    else:
        copies = await _matching(nodes, source)
    return structs.replace(opening, place=structs.replace(opening.place, source=copies[0]))


async def _matching(nodes: Nodes, wanted: Snapshot, *, or_none: bool = False) -> list[Snapshot]:
    """The newest first. Raises `BadInput` without any, unless `or_none`."""
    found = [
        Snapshot(name=one.name, node=one.node, provider=one.provider)
        for one in await kept(nodes)
        if one.name == wanted.name
        and wanted.node in ("", one.node)
        and wanted.provider in ("", one.provider)
    ]
    if not found and not or_none:
        where = f" on {wanted.node}" if wanted.node else ""
        raise BadInput("snapshot", f"there is no {wanted.name[:128]!r}{where}", _LIST)
    return found


async def _forget(nodes: Nodes, snapshots: list[Snapshot]) -> None:
    for one in snapshots:
        agent = nodes.get(NodeId(one.node))
        if agent is not None:
            await agent.forget(one)
