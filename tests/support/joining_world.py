"""An orchestrator's roster and a machine that joins it, in one process over TCP with TLS."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from busy_machine import PATIENCE_S
from glitches import Relay, a_relay
from msgspec import structs

from artangram.core.ids import NodeId
from artangram.managers import wire
from artangram.managers.joined import JoinedAgent
from artangram.managers.joining import JoiningAgent, JoinTarget, MachineIdentity
from artangram.managers.local import LocalAgent
from artangram.managers.roster import Roster
from artangram.managers.tls import server_context
from artangram.sandbox import FakeProvider

NODE = NodeId("cpu-0")
TOKEN = "join-token"
SHAPE = wire.NodeShape(cores=(0, 1), numa=1, memory_mb=1000)


class RosterHeard:
    """A listener that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.joined: asyncio.Queue[JoinedAgent] = asyncio.Queue()
        self.told: list[str] = []
        self.changed = asyncio.Event()

    def on_joined(self, agent: JoinedAgent, hello: wire.JoinHello) -> None:
        assert hello.shape == SHAPE
        self.joined.put_nowait(agent)

    def on_suspect(self, node: NodeId) -> None:
        self.told.append("suspect")
        self.changed.set()

    def on_trusted(self, node: NodeId) -> None:
        self.told.append("trusted")
        self.changed.set()

    async def next(self) -> JoinedAgent:
        async with asyncio.timeout(PATIENCE_S):
            return await self.joined.get()

    async def until(self, *told: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.told != list(told):
                self.changed.clear()
                await self.changed.wait()


class JoiningWorld:
    """One roster, one relay, one machine."""

    def __init__(self, heard: RosterHeard, relay: Relay, target: JoinTarget) -> None:
        self.heard = heard
        self.relay = relay
        self.target = target
        self.lives: list[LocalAgent] = []
        self.identity = MachineIdentity(node=NODE, machine="machine-1", shape=SHAPE)

    async def _new_agent(self) -> LocalAgent:
        self.lives.append(LocalAgent(NODE, FakeProvider(), now=time.monotonic, function_slots=2))
        return self.lives[-1]

    def machine(self, *, silence_s: float = 0.3, **target: str) -> JoiningAgent:
        to = structs.replace(self.target, **target)
        return JoiningAgent(to, self.identity, self._new_agent, silence_s=silence_s)


@asynccontextmanager
async def a_joining_world(
    folder: Path, *, fence_s: float = 1.0, margin_s: float = 0.3, silence_s: float = 0.3
) -> AsyncIterator[JoiningWorld]:
    tls, fingerprint = server_context(folder)
    heard = RosterHeard()
    roster = Roster(
        heard,
        token=TOKEN,
        now=time.time,
        fence_s=fence_s,
        margin_s=margin_s,
        silence_s=silence_s,
    )
    port = await roster.open("127.0.0.1", 0, tls=tls)
    try:
        async with a_relay(port) as (relay, relayed):
            target = JoinTarget(
                addresses=(("127.0.0.1", relayed),), token=TOKEN, fingerprint=fingerprint
            )
            yield JoiningWorld(heard, relay, target)
    finally:
        await roster.close()


@asynccontextmanager
async def joined(world: JoiningWorld, machine: JoiningAgent) -> AsyncIterator[JoinedAgent]:
    """The machine is part of the cluster while the block lasts."""
    running = asyncio.create_task(machine.run())
    try:
        yield await world.heard.next()
    finally:
        machine.stop()
        await running
