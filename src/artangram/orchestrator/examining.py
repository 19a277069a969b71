"""Examines every node of a cluster over the links that actions use, and measures these links.

All nodes are asked at once; what is sent to measure a link goes to one node at a time.
"""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from artangram import __version__
from artangram.core.ids import NodeId
from artangram.managers.agent import NodeAgent
from artangram.managers.selfexamination import directory_info
from artangram.orchestrator.diagnosis import ClusterDiagnosis, NodeDiagnosis, judged
from artangram.orchestrator.records import NodeState, NodeStatus
from artangram.sandbox.errors import SandboxError

PATIENCE_S = 10.0
"""For one node; far longer than a busy one takes."""
ROUND_TRIPS = 5
"""The quickest counts: the others waited for a core."""
SENT_BYTES = (1 << 18, 1 << 22)
"""The second only goes over a link that is quick with the first."""
QUICK_S = 0.2

Now = Callable[[], float]


async def examine_cluster(
    nodes: Sequence[NodeStatus],
    agents: Mapping[NodeId, NodeAgent],
    *,
    journal: Path | None,
    now: Now = time.time,
) -> ClusterDiagnosis:
    """Ask every node; one that does not answer costs `PATIENCE_S`."""
    turn = asyncio.Lock()
    asked = (_examined(node, agents.get(NodeId(node.node)), turn, now) for node in nodes)
    found = await asyncio.gather(*asked)
    return judged(
        ClusterDiagnosis(
            version=__version__,
            python=platform.python_version(),
            journal=None if journal is None else directory_info("journal", journal),
            nodes=tuple(found),
        )
    )


async def _examined(
    node: NodeStatus, agent: NodeAgent | None, turn: asyncio.Lock, now: Now
) -> NodeDiagnosis:
    known = NodeDiagnosis(node=NodeId(node.node), cores=node.cores, memory_mb=node.memory_mb)
    if agent is None or node.state is NodeState.SUSPECT:
        return known
    try:
        async with asyncio.timeout(PATIENCE_S):
            known = await _asked(known, agent, now)
        async with turn:
            return structs.replace(known, mb_per_s=await _mb_per_s(agent))
    except (TimeoutError, SandboxError):
        return known


async def _asked(known: NodeDiagnosis, agent: NodeAgent, now: Now) -> NodeDiagnosis:
    round_trip_s = min([await _took_s(agent.ping()) for _ in range(ROUND_TRIPS)])
    sent_at = now()
    about = await agent.examine()
    return structs.replace(
        known,
        examination=about,
        round_trip_s=round_trip_s,
        clock_ahead_s=about.unix_s - (sent_at + now()) / 2,
    )


async def _mb_per_s(agent: NodeAgent) -> float:
    """There and back."""
    async with asyncio.timeout(PATIENCE_S):
        for num_bytes in SENT_BYTES:
            took_s = await _took_s(agent.examine(bytes(num_bytes)))
            if took_s > QUICK_S:
                break
    return 2 * num_bytes / took_s / 1e6


async def _took_s(asked: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    await asked
    return loop.time() - began_at
