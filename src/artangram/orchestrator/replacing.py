"""Gets a new agent for a node whose agent is gone, and tries again until one is there."""

import asyncio
from collections.abc import Awaitable, Callable

from artangram.aio import uncancelled
from artangram.core.ids import NodeId
from artangram.managers.agent import Listener, NodeAgent, NodeInventory
from artangram.managers.cpu import CpuManager
from artangram.sandbox.errors import SandboxError

NewAgent = Callable[[NodeId], Awaitable[NodeAgent]]
"""Gets an agent for a node whose agent is gone."""

REPLACE_AFTER_S = 0.5
"""Pause before the next attempt to get a new agent; doubled with every failure."""
REPLACE_AFTER_MOST_S = 30.0
"""What keeps agents from starting may pass, and a node without an agent runs nothing."""

OnError = Callable[[BaseException], None]


async def replaced(
    node: NodeId,
    new_agent: NewAgent,
    *,
    manager: CpuManager,
    listener: Listener,
    on_error: OnError,
) -> NodeInventory:
    """What the new agent of `node` has; `manager` knows it by then, and `listener` hears it."""
    pause_s = REPLACE_AFTER_S
    while True:
        try:
            agent = manager.agents[node] = await new_agent(node)
        except (SandboxError, OSError) as error:
            on_error(error)
        else:
            try:
                found = await agent.attach(listener)
                if manager.agents.get(node) is agent:
                    return found
            except SandboxError as error:
                on_error(error)
            manager.agents.pop(node, None)
            await uncancelled(agent.aclose())
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, REPLACE_AFTER_MOST_S)
